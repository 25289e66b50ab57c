"""The iso-depth grid of 000: budgets x recurrences x widths at one effective depth, and what is read off it.

Every model has ``once`` + ``looped`` effective layers; at r loops the looped part is looped / r unique ones. A run's
tokens are what its budget buys: D = C / F, F the paper's training FLOPs per token.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import scipy.special

from lib.base.errors import InputError
from lib.base.statistics import percentile_interval
from lib.config import DataConfig, Label, ModelConfig, RunConfig
from lib.fit import isoflop, laws
from lib.fit.fits import Fit, bootstrap, fit, fit_joint, r2, resampled, split
from lib.fit.frontier import (
    at_width,
    compute_optimal,
    data_to_match,
    effective_parameters,
    phi_to_cross,
    sizes,
)
from lib.fit.laws import hold, joint
from lib.flops import count
from lib.papers.shared.budgets import run
from lib.presets import head_count, preset
from lib.store.runs import RunResult

#: the joint law of 000 at full precision (its project page), and its widths / 64 per budget
PUBLISHED = dict(A=28.027, B=915.82, E=1.56773, alpha=0.19924, beta=0.36863, phi=0.459)
PUBLISHED_WIDTHS = {
    4.64e17: (6, 8, 10, 12),
    1e18: (6, 8, 10, 12, 14),
    2.15e18: (8, 10, 12, 14, 16),
    4.64e18: (10, 12, 14, 16, 18, 20),
    1e19: (12, 16, 18, 20, 24),
    2.15e19: (18, 24, 28, 34),
}
PUBLISHED_RECURRENCES = (1, 2, 4, 8)
#: phi on its lower four budgets, under its probes and without (Sec. 5)
PUBLISHED_PROBES = {"baseline": 0.45, "truncated": 0.38, "hyper-connections": 0.65}


# ---- the runs --------------------------------------------------------------------------------------------------------


def model(r: int, width: int, head_dim: int, looped: int, once: int, **fields: Any) -> ModelConfig:
    """000's model at r loops: once / 2 layers, looped / r layers looped r times, once / 2 layers.

    Raises InputError where the layers cannot be cut so.
    """
    if r < 1 or looped % r:
        raise InputError(f"recurrences: {looped} looped layers are not shared by {r} loops, use divisors of {looped}")
    if once < 0 or once % 2:
        raise InputError(f"once: {once} layers are no prelude and coda of the same size, use an even number")
    layers = dict(prelude=once // 2, recur=looped // r, coda=once // 2, mean_loops=r)
    shape = dict(width=width, heads=head_count(width, head_dim, "widths"), mlp_width=4 * width)
    return preset("isodepth-s10-r1" if r == 1 else "isodepth-s10-r4", **{**layers, **shape, **fields})


#: 000, App. C.2: the injections of its ablation, as changes to its model
INJECTIONS: dict[str, dict[str, Any]] = {
    "linear": {},
    "additive": {"injection": "add", "state_init": "zero"},
    "passthrough": {"injection": "none"},
    "hyper-connections": {"injection": "hyper-connections"},
}


def injection(name: str) -> dict[str, Any]:
    """The fields of one of the ablation's injections."""
    if name not in INJECTIONS:
        raise InputError(f"injections: {name!r} is not known, use {', '.join(INJECTIONS)}")
    return INJECTIONS[name]


def intervention(name: str, r: int) -> dict[str, Any]:
    """The fields that one of 000's probes changes in its model at r loops (App. G.1); nothing at r = 1.

    truncated: only the last ceil(r / 2) loops carry gradient. hyper-connections: two lanes instead of the injection.
    """
    changes: dict[str, dict[str, Any]] = {
        "baseline": {},
        "truncated": {"backprop_loops": -(-r // 2)},
        "hyper-connections": INJECTIONS["hyper-connections"],
    }
    if name not in changes:
        raise InputError(f"probes: {name!r} is not known, use {', '.join(changes)}")
    return changes[name] if r > 1 else {}


def parameters(cfg: ModelConfig) -> int:
    """Unique parameters N without the tables."""
    counts = count(cfg)
    return counts.n_once + counts.n_rec


def layout(p: dict[str, Any]) -> dict[str, Any]:
    """What the models of a notebook with parameters ``p`` have in common."""
    return {name: p[name] for name in ("head_dim", "looped", "once", "vocab_size", "context")}


def settings(p: dict[str, Any]) -> tuple[DataConfig, dict[str, Any], dict[str, Any]]:
    """(data, rates, training) that the runs of a notebook with parameters ``p`` have in common."""
    rates = {"muon_lr": p["muon_lr"], "embedding_lr": p["table_lr"], "head_lr": p["head_lr"], "norm_lr": p["norm_lr"]}
    training = {"batch": p["batch"], "micro_batch": p["micro_batch"] or None, "precision": p["precision"]}
    return DataConfig.of(p), rates, training


def grid(
    recurrences: list[int], budgets: list[float], widths: dict[float, list[int]], seeds: list[int],
    layout: dict[str, Any], data: DataConfig, rates: dict[str, Any], training: dict[str, Any], probe: str = "baseline",
) -> dict[Label, RunConfig]:  # fmt: skip
    """("r = ...", budget, r, width, seed) -> run, for every budget, its widths, every r and seed; under a probe the
    first part is its name."""
    for budget in budgets:
        if budget not in widths:
            raise InputError(f"widths: has none for the budget {budget:g}, list them")
    return {
        (f"r = {r}" if probe == "baseline" else probe, budget, r, width, seed): run(
            model(r, width, **layout, **intervention(probe, r)), budget, data, rates, {**training, "seed": seed}
        )
        for r in recurrences for budget in budgets for width in widths[budget] for seed in seeds
    }  # fmt: skip


def matched_tokens(
    recurrences: list[int], width: int, budget: float, layout: dict[str, Any], data: DataConfig, rates: dict[str, Any],
    training: dict[str, Any],
) -> dict[Label, RunConfig]:  # fmt: skip
    """("beyond the grid", budget, r, width, seed) -> run, all on the tokens that ``budget`` FLOPs buy the first of them
    (000, App. I)."""
    models = {r: model(r, width, **layout) for r in recurrences}
    flops = {r: count(cfg, data.context).published["000"] for r, cfg in models.items()}
    return {
        ("beyond the grid", budget, r, width, training["seed"]): run(
            cfg, budget * flops[r] / flops[recurrences[0]], data, rates, training
        )
        for r, cfg in models.items()
    }


def grid_with_noise(p: dict[str, Any]) -> dict[Label, RunConfig]:
    """The grid of a notebook with parameters ``p``: its seed everywhere, its noise_seeds in one cell."""
    noisy = noise_cell(p["recurrences"], p["budgets"], p["widths"])
    return grid(p["recurrences"], p["budgets"], p["widths"], [p["seed"]], layout(p), *settings(p)) | grid(
        *noisy, p["noise_seeds"], layout(p), *settings(p)
    )


def noise_cell(
    recurrences: list[int], budgets: list[float], widths: dict[float, list[int]]
) -> tuple[list[int], list[float], dict[float, list[int]]]:
    """Where seeds are repeated: the lowest budget's second width, at the least and the most recurrences."""
    budget = min(budgets)
    if len(widths.get(budget, [])) < 2:
        raise InputError(f"widths: has fewer than two for the budget {budget:g}, where seeds are repeated, list more")
    ends = sorted({min(recurrences), max(recurrences)})
    return ends, [budget], {budget: widths[budget][1:2]}


COLUMNS = ("budget", "r", "width", "seed", "n_once", "n_rec", "N", "F", "D", "loss")


def frame(results: Iterable[RunResult], plan: dict[Label, RunConfig]) -> pd.DataFrame:
    """One row a run of the plan: budget, r, width, seed, n_once, n_rec, N = n_once + n_rec, D tokens, F FLOPs per
    token, loss.

    plan: (group, budget, r, width, seed) -> run, as ``grid`` makes it. A run that diverged has no loss and is left out.
    """
    found = {result.key: result for result in results}
    rows = []
    for (_, *cell), cfg in plan.items():
        result = found[cfg.key]
        if result.status == "finished":
            label = dict(zip(("budget", "r", "width", "seed"), cell, strict=True))
            rows.append(
                label | _size(result.config.model, result.config.data.context)
                | {"D": result.summary["tokens"], "loss": result.summary["val_loss"]}
            )  # fmt: skip
    return pd.DataFrame(rows, columns=COLUMNS)


def _size(cfg: ModelConfig, context: int) -> dict[str, Any]:
    counts = count(cfg, context)
    return {
        "n_once": counts.n_once,
        "n_rec": counts.n_rec,
        "N": counts.n_once + counts.n_rec,
        "F": counts.published["000"],
    }


def published_grid() -> pd.DataFrame:
    """The 116 runs of 000 with the losses that its own law gives them."""
    rows = []
    for budget, widths in PUBLISHED_WIDTHS.items():
        for s in widths:
            for r in PUBLISHED_RECURRENCES:
                size = _size(preset(f"isodepth-s{s}-r{r}"), 2048)
                rows.append({"budget": budget, "r": r, "width": 64 * s, "seed": 0, **size, "D": budget / size["F"]})
    runs = pd.DataFrame(rows)
    return runs.assign(loss=laws.JOINT.loss(PUBLISHED, runs["n_once"], runs["n_rec"], runs["r"], runs["D"]))


def joint_arrays(runs: pd.DataFrame) -> tuple[pd.Series, pd.Series, pd.Series, pd.Series, pd.Series]:
    """The arguments of ``fit_joint``."""
    return runs["n_once"], runs["n_rec"], runs["r"], runs["D"], runs["loss"]


def r2_interval(runs: pd.DataFrame, resamples: int, seed: int) -> tuple[float, float]:
    """Interval of the joint law's R2 over resamples of the cells."""
    return percentile_interval(_resampled_r2(runs, None, resamples, seed))


def _resampled_r2(runs: pd.DataFrame, phi: float | None, resamples: int, seed: int) -> np.ndarray:
    """R2 of the joint law on each resample that it is fitted to."""
    law, arrays, cells = joint(phi), joint_arrays(runs), runs[["budget", "r"]]
    *inputs, loss = (x.to_numpy(float) for x in arrays)
    draws = bootstrap(partial(fit_joint, phi=phi), arrays, cells, resamples, seed).to_dict("records")
    weights = resampled(law, arrays, cells, resamples, seed)  # the same ones
    return np.array([r2(law.loss(p, *inputs), loss, w) for p, w in zip(draws, weights, strict=True)])


def a_D(fit: Fit | dict[str, float]) -> float:
    """beta / (alpha + beta) of a fit or its parameters, which 000 (Table 1) calls the data-scaling exponent; by the law
    N* ~ C^a_D and D* ~ C^(1 - a_D)."""
    p = fit if isinstance(fit, dict) else fit.params
    return p["beta"] / (p["alpha"] + p["beta"])


def drift_of_phi(runs: pd.DataFrame, resamples: int, seed: int) -> np.ndarray:
    """phi of the higher half of the budgets less that of the lower half, for resamples of the cells of each (000, App.
    F.3)."""
    low, high = (
        bootstrap(fit_joint, joint_arrays(runs[half]), runs[half][["budget", "r"]], resamples, [seed, side])["phi"]
        for side, half in enumerate(split(runs["budget"]))
    )
    return (high - low).to_numpy()


def seed_noise(runs: pd.DataFrame) -> float:
    """Half the width of the 95 % interval of one run's loss over seeds: Student's t times the standard deviation,
    pooled over the (budget, r, width) cells with several. inf without any."""
    cells = [cell["loss"] for _, cell in runs.groupby(["budget", "r", "width"]) if len(cell) > 1]
    freedom = sum(len(cell) - 1 for cell in cells)
    if not freedom:
        return np.inf
    pooled = np.sqrt(sum(((cell - cell.mean()) ** 2).sum() for cell in cells) / freedom)
    return float(scipy.special.stdtrit(freedom, 0.975) * pooled)


def phi_alone(baseline: Fit) -> Callable[..., Fit]:
    """A fit of the joint law that moves nothing but phi, all other constants held at a baseline's."""
    held = hold(baseline.law, **{name: value for name, value in baseline.params.items() if name != "phi"})
    return lambda *arrays: fit(held, arrays[:-1], arrays[-1])


def phi_shifts(sets: dict[str, pd.DataFrame], fitting: Callable[..., Fit], resamples: int, seed: int) -> pd.DataFrame:
    """One row a set of runs: phi, its bootstrap interval (low, high), its distance ``delta`` from the first set's, and
    the interval of that, for which both sides draw the same (budget, r) cells (000, Table 3).

    Cells that not every set has, since all its runs diverged there, are left out.
    """
    common = set.intersection(*({*zip(runs["budget"], runs["r"], strict=True)} for runs in sets.values()))
    rows, first = {}, None
    for name, runs in sets.items():
        kept = runs[[cell in common for cell in zip(runs["budget"], runs["r"], strict=True)]]
        phi = fitting(*joint_arrays(kept)).params["phi"]
        draws = bootstrap(fitting, joint_arrays(kept), kept[["budget", "r"]], resamples, seed)["phi"]
        first = first or (phi, draws)
        ends = dict(zip(("low", "high"), percentile_interval(draws), strict=True))
        ends |= dict(zip(("delta_low", "delta_high"), percentile_interval(draws - first[1]), strict=True))
        rows[name] = {"phi": phi, "delta": phi - first[0], **ends}
    return pd.DataFrame(rows).T.rename_axis("fit")


def held_phi_margin(runs: pd.DataFrame, resamples: int, seed: int) -> tuple[float, tuple[float, float]]:
    """R2 with phi held at 0 less R2 with phi held at 1 (000, Table 2), and its interval over resamples of the cells."""
    zero, one = (fit_joint(*joint_arrays(runs), phi=phi).r2 for phi in (0.0, 1.0))
    draws = _resampled_r2(runs, 0.0, resamples, seed) - _resampled_r2(runs, 1.0, resamples, seed)
    return zero - one, percentile_interval(draws)


# ---- what is read off ------------------------------------------------------------------------------------------------


def optima(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a budget and r: the minimum of the parabola of the loss in log N (000, Fig. 2)."""
    return isoflop.optima(runs.sort_values(["budget", "r"]), ["budget", "r"])


def families(
    recurrences: list[int], widths: dict[float, list[int]], layout: dict[str, Any], probe: str = "baseline"
) -> dict[int, pd.DataFrame]:
    """r -> the sizes of its family at every width of the grid."""
    every = sorted({width for some in widths.values() for width in some})
    return {r: sizes([model(r, width, **layout, **intervention(probe, r)) for width in every]) for r in recurrences}


def published_families(probe: str = "baseline") -> dict[int, pd.DataFrame]:
    return {
        r: sizes([preset(f"isodepth-s{s}-r{r}", **intervention(probe, r)) for s in range(6, 36, 2)])
        for r in PUBLISHED_RECURRENCES
    }


def published_token_gain(probe: str) -> float:
    """Median over the cells of the paper's lower four budgets of the tokens that a probe buys relative to full
    backpropagation through the linear injection (App. G.1)."""
    ratios = []
    for budget in sorted(PUBLISHED_WIDTHS)[:4]:
        for s in PUBLISHED_WIDTHS[budget]:
            for r in PUBLISHED_RECURRENCES[1:]:
                full, probed = (preset(f"isodepth-s{s}-r{r}", **intervention(x, r)) for x in ("baseline", probe))
                ratios.append(count(full).published["000"] / count(probed).published["000"])
    return float(np.median(ratios))


def frontier_gaps(optima: pd.DataFrame) -> pd.DataFrame:
    """Loss at the optimum of each r above that of r = 1 (000, Sec. 4.2): one row a budget, one column an r; nan where
    one of the two optima lies outside the widths trained."""
    losses = optima.assign(loss=optima["loss"].where(optima["inside"])).pivot(
        index="budget", columns="r", values="loss"
    )
    return losses.drop(columns=1).sub(losses[1], axis=0)


def equivalences(fit: Fit, families: dict[int, pd.DataFrame], budget: float) -> pd.DataFrame:
    """What looping makes of the compute-optimal plain model of a budget, at its width: one row an r (000, App. F.4).

    unique, worth, cost: unique and effective parameters and FLOPs per token, relative to the plain model (at r = 4 a
    looped 410M is worth 580M and costs 1B). tokens: as many times the plain model's to reach its loss, inf where none
    do. phi to cross: where the compute-optimal losses of both families would meet.
    """
    plain = compute_optimal(fit, families[1], 1, budget)
    *_, plain_flops = at_width(families[1], plain["width"])
    rows = []
    for r in sorted(r for r in families if r > 1):
        n_once, n_rec, flops = at_width(families[r], plain["width"])
        worth = effective_parameters(n_once, n_rec, r, fit.params["phi"])
        rows.append({
            "r": r,
            "unique": (n_once + n_rec) / plain["N"],
            "worth": worth / plain["N"],
            "cost": flops / plain_flops,
            "tokens": data_to_match(fit, n_once, n_rec, r, plain["loss"]) / plain["D"],
            "phi to cross": phi_to_cross(fit, families[r], families[1], r, budget),
        })  # fmt: skip
    return pd.DataFrame(rows).set_index("r")


def predicted(runs: pd.DataFrame, fit: Fit, draws: pd.DataFrame) -> pd.DataFrame:
    """The runs with what a joint law predicts for them, the interval of that over a bootstrap's laws (low, high), and
    its error in per cent of the loss."""
    inputs = [x.to_numpy(float) for x in joint_arrays(runs)[:-1]]
    of_draws = np.array([fit.law.loss(p, *inputs) for p in draws.to_dict("records")])
    low, high = np.quantile(of_draws, [0.025, 0.975], axis=0)
    loss = fit.predict(*inputs)
    return runs.assign(predicted=loss, low=low, high=high, **{"error (%)": 100 * (loss / runs["loss"] - 1)})


def allocations(fit: Fit, family: pd.DataFrame, r: int, budgets: Iterable[float]) -> pd.DataFrame:
    """One row a budget: the law's compute-optimal model of one family, and ``budget``."""
    return pd.DataFrame([{"budget": budget, **compute_optimal(fit, family, r, budget)} for budget in budgets])


def worth(families: dict[int, pd.DataFrame], phi: float) -> pd.DataFrame:
    """One row an r, at the widest common width: unique and effective parameters and FLOPs per token, relative to the
    smallest r's unique ones (000, Fig. 1, left)."""
    at = {r: family.iloc[-1] for r, family in families.items()}
    first = at[min(at)]
    N = first["n_once"] + first["n_rec"]
    return pd.DataFrame([
        {
            "r": r,
            "unique": (row["n_once"] + row["n_rec"]) / N,
            "effective": effective_parameters(row["n_once"], row["n_rec"], r, phi) / N,
            "flops": row["flops"] / first["flops"],
        }
        for r, row in sorted(at.items())
    ])  # fmt: skip


def frontiers(fit: Fit, unrolled: Fit, families: dict[int, pd.DataFrame], budgets: Iterable[float]) -> pd.DataFrame:
    """One row a budget and r: the compute-optimal loss by a law, and by the one fitted with phi held at 1 (000, Fig. 1,
    right). Budgets run from half the least to twice the most given; optima at the edge of a family's widths are left
    out."""
    rows = []
    for budget in np.geomspace(min(budgets) / 2, 2 * max(budgets), 25):
        for r, family in families.items():
            best = compute_optimal(fit, family, r, budget)
            at_one = compute_optimal(unrolled, family, r, budget)["loss"]
            if not best["at_edge"]:
                rows.append({"budget": budget, "r": r, "loss": best["loss"], "loss_unrolled": at_one})
    return pd.DataFrame(rows, columns=["budget", "r", "loss", "loss_unrolled"])
