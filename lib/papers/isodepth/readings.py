"""What is read off the iso-depth grid of 000: optima, frontiers, laws, phi, and how sure each is."""

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import pandas as pd
import scipy.special

from lib.base.statistics import percentile_interval
from lib.config import Label, RunConfig
from lib.fit import isoflop
from lib.fit.fits import Fit, bootstrap, fit, fit_chinchilla, fit_joint, r2, resampled, split
from lib.fit.frontier import at_width, compute_optimal, data_to_match, effective_parameters, phi_to_cross
from lib.fit.laws import hold, joint
from lib.papers.isodepth.designs import size
from lib.store.runs import RunResult

# ---- the runs, and the noise of one ----------------------------------------------------------------------------------

COLUMNS = ("budget", "r", "width", "seed", "n_once", "n_rec", "N", "F", "D", "loss")


def frame(results: Iterable[RunResult], plan: dict[Label, RunConfig]) -> pd.DataFrame:
    """One row a run of the plan: budget, r, width, seed, n_once, n_rec, N = n_once + n_rec, F FLOPs per token, D
    tokens, loss in nats per token.

    plan: (group, budget, r, width, seed) -> run, as ``designs.grid`` makes it. A run that diverged has no loss and is
    left out.
    """
    found = {result.key: result for result in results}
    rows = []
    for (_, *cell), cfg in plan.items():
        result = found[cfg.key]
        if result.status == "finished":
            label = dict(zip(("budget", "r", "width", "seed"), cell, strict=True))
            outcome = {"D": result.summary["tokens"], "loss": result.summary["val_loss"]}
            rows.append(label | size(result.config.model) | outcome)
    return pd.DataFrame(rows, columns=COLUMNS)


def seed_noise(runs: pd.DataFrame) -> float:
    """Half the width of the 95 % interval of one run's loss over seeds: Student's t times the standard deviation,
    pooled over the (budget, r, width) cells that have several seeds. inf where none has."""
    cells = [cell["loss"] for _, cell in runs.groupby(["budget", "r", "width"]) if len(cell) > 1]
    freedom = sum(len(cell) - 1 for cell in cells)
    if not freedom:
        return np.inf
    pooled = np.sqrt(sum(((cell - cell.mean()) ** 2).sum() for cell in cells) / freedom)
    return float(scipy.special.stdtrit(freedom, 0.975) * pooled)


# ---- optima ----------------------------------------------------------------------------------------------------------


def optima(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a budget and r: the minimum of the parabola of the loss in log N (000, Fig. 2)."""
    return isoflop.optima(runs.sort_values(["budget", "r"]), ["budget", "r"])


def frontier_gaps(optima: pd.DataFrame) -> pd.DataFrame:
    """Loss at the optimum of each r above that of r = 1 (000, Sec. 4.2): one row a budget, one column an r. nan where
    one of the two optima lies outside the widths trained."""
    resolved = optima.assign(loss=optima["loss"].where(optima["inside"]))
    losses = resolved.pivot(index="budget", columns="r", values="loss")
    return losses.drop(columns=1).sub(losses[1], axis=0)


def a_D(fit: Fit | dict[str, float]) -> float:
    """beta / (alpha + beta) of a fit or of its parameters. 000 (Table 1) calls it the data-scaling exponent; by the law
    N* ~ C^a_D and D* ~ C^(1 - a_D)."""
    params = fit if isinstance(fit, dict) else fit.params
    return params["beta"] / (params["alpha"] + params["beta"])


def a_D_interval(runs: pd.DataFrame, resamples: int, seed: int) -> tuple[float, float]:
    """Interval of the a_D of one recurrence's runs over resamples of their budgets."""
    arrays = runs["N"], runs["D"], runs["loss"]
    draws = bootstrap(fit_chinchilla, arrays, runs["budget"], resamples, seed)
    return percentile_interval(draws["beta"] / (draws["alpha"] + draws["beta"]))


# ---- the joint law ---------------------------------------------------------------------------------------------------


def joint_arrays(runs: pd.DataFrame) -> tuple[pd.Series, pd.Series, pd.Series, pd.Series, pd.Series]:
    """The arguments of ``fit_joint``."""
    return runs["n_once"], runs["n_rec"], runs["r"], runs["D"], runs["loss"]


def misfit(runs: pd.DataFrame, fit: Fit) -> pd.Series:
    """Measured less predicted loss of each run that a law was fitted to, in nats."""
    return runs["loss"] * -np.expm1(fit.residuals)


def r2_interval(runs: pd.DataFrame, resamples: int, seed: int) -> tuple[float, float]:
    """Interval of the joint law's R2 over resamples of the (budget, r) cells."""
    return percentile_interval(_resampled_r2(runs, None, resamples, seed))


def held_phi_margin(runs: pd.DataFrame, resamples: int, seed: int) -> tuple[float, tuple[float, float]]:
    """R2 with phi held at 0 less R2 with phi held at 1 (000, Table 2), and its interval over resamples of the cells."""
    zero, one = (fit_joint(*joint_arrays(runs), phi=phi).r2 for phi in (0.0, 1.0))
    draws = _resampled_r2(runs, 0.0, resamples, seed) - _resampled_r2(runs, 1.0, resamples, seed)
    return zero - one, percentile_interval(draws)


def _resampled_r2(runs: pd.DataFrame, phi: float | None, resamples: int, seed: int) -> np.ndarray:
    """R2 of the joint law, phi free where None, on each resample that it is fitted to."""
    law, arrays, cells = joint(phi), joint_arrays(runs), runs[["budget", "r"]]
    *inputs, loss = (x.to_numpy(float) for x in arrays)
    draws = bootstrap(partial(fit_joint, phi=phi), arrays, cells, resamples, seed).to_dict("records")
    weights = resampled(law, arrays, cells, resamples, seed)  # the same resamples
    return np.array([r2(law.loss(params, *inputs), loss, w) for params, w in zip(draws, weights, strict=True)])


def drift_of_phi(runs: pd.DataFrame, resamples: int, seed: int) -> np.ndarray:
    """phi of the higher half of the budgets less that of the lower half, for resamples of the cells of each (000, App.
    F.3)."""
    low, high = (
        bootstrap(fit_joint, joint_arrays(runs[half]), runs[half][["budget", "r"]], resamples, [seed, side])["phi"]
        for side, half in enumerate(split(runs["budget"]))
    )
    return (high - low).to_numpy()


def phi_alone(baseline: Fit) -> Callable[..., Fit]:
    """A fit of the joint law that moves nothing but phi; all other constants are held at a baseline's."""
    held = hold(baseline.law, **{name: value for name, value in baseline.params.items() if name != "phi"})
    return lambda *arrays: fit(held, arrays[:-1], arrays[-1])


def phi_shifts(sets: dict[str, pd.DataFrame], fitting: Callable[..., Fit], resamples: int, seed: int) -> pd.DataFrame:
    """One row a set of runs: phi, its bootstrap interval (low, high), its distance ``delta`` from the first set's, and
    the interval of that (delta_low, delta_high), for which both sides draw the same (budget, r) cells (000, Table 3).

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


# ---- what a law says -------------------------------------------------------------------------------------------------


def predicted(runs: pd.DataFrame, fit: Fit, draws: pd.DataFrame) -> pd.DataFrame:
    """The runs with what a joint law predicts for them, the interval of that over a bootstrap's laws (low, high), and
    its error in per cent of the loss."""
    inputs = [x.to_numpy(float) for x in joint_arrays(runs)[:-1]]
    of_draws = np.array([fit.law.loss(params, *inputs) for params in draws.to_dict("records")])
    low, high = np.quantile(of_draws, [0.025, 0.975], axis=0)
    loss = fit.predict(*inputs)
    return runs.assign(predicted=loss, low=low, high=high, **{"error (%)": 100 * (loss / runs["loss"] - 1)})


def allocations(fit: Fit, family: pd.DataFrame, r: int, budgets: Iterable[float]) -> pd.DataFrame:
    """One row a budget: the law's compute-optimal model of one family, and ``budget``."""
    return pd.DataFrame([{"budget": budget, **compute_optimal(fit, family, r, budget)} for budget in budgets])


def frontiers(fit: Fit, unrolled: Fit, families: dict[int, pd.DataFrame], budgets: Iterable[float]) -> pd.DataFrame:
    """One row a budget and r: the compute-optimal loss by a law, and by the one fitted with phi held at 1 (000, Fig. 1,
    right). Budgets run from half the least to twice the most given. Optima at the edge of a family's widths are left
    out."""
    rows = []
    for budget in np.geomspace(min(budgets) / 2, 2 * max(budgets), 25):
        for r, family in families.items():
            best = compute_optimal(fit, family, r, budget)
            at_one = compute_optimal(unrolled, family, r, budget)["loss"]
            if not best["at_edge"]:
                rows.append({"budget": budget, "r": r, "loss": best["loss"], "loss_unrolled": at_one})
    return pd.DataFrame(rows, columns=["budget", "r", "loss", "loss_unrolled"])


def worth(families: dict[int, pd.DataFrame], phi: float) -> pd.DataFrame:
    """One row an r, at the widest common width: unique and effective parameters and FLOPs per token, relative to the
    smallest r's unique ones (000, Fig. 1, left)."""
    at = {r: family.iloc[-1] for r, family in families.items()}
    first = at[min(at)]
    N = first["n_once"] + first["n_rec"]
    return pd.DataFrame(
        [
            {
                "r": r,
                "unique": (row["n_once"] + row["n_rec"]) / N,
                "effective": effective_parameters(row["n_once"], row["n_rec"], r, phi) / N,
                "flops": row["flops"] / first["flops"],
            }
            for r, row in sorted(at.items())
        ]
    )


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
        rows.append(
            {
                "r": r,
                "unique": (n_once + n_rec) / plain["N"],
                "worth": worth / plain["N"],
                "cost": flops / plain_flops,
                "tokens": data_to_match(fit, n_once, n_rec, r, plain["loss"]) / plain["D"],
                "phi to cross": phi_to_cross(fit, families[r], families[1], r, budget),
            }
        )
    return pd.DataFrame(rows).set_index("r")
