"""What is read off the iso-depth grid of 000: optima, frontiers, laws, phi, and how sure each is."""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import spearmanr

from lib.base.statistics import percentile_interval
from lib.config import Label, RunConfig
from lib.fit import isoflop
from lib.fit.fits import Fit, Noise, cell_signs, fit_chinchilla, fit_joint, flipped, refits, split
from lib.papers.isodepth.designs import size
from lib.papers.shared.frames import finished
from lib.papers.shared.reported import Drawn
from lib.store.result import RunResult

# ---- the runs --------------------------------------------------------------------------------------------------------

Margins = dict[str, dict[str, float]]  # name -> comparison -> number; a claim's only comparison has no name

DRAWS = 4000  # of numbers that cost nothing to draw
FLAT = 0.006  # nats that the gap may change by between the two largest budgets (000, Sec. 4.2)
MATCHED = 0.015  # nats within which a looped model matches the plain one: half the least gap of r = 2 (Sec. 4.2)

CELL = ("budget", "r", "width", "seed")
COLUMNS = (*CELL, "n_once", "n_rec", "N", "F", "D", "loss")


def frame(results: Iterable[RunResult], plan: dict[Label, RunConfig], status: str = "finished") -> pd.DataFrame:
    """One row a run of the plan: budget, r, width, seed, n_once, n_rec, N = n_once + n_rec, F FLOPs per token, D
    tokens, loss in nats per token.

    plan: (group, budget, r, width, seed) -> run, as ``designs.grid`` makes it. Those that diverged are left out, or
    asked for by their ``status``.
    """
    runs = finished(results, plan, ["group", *CELL], lambda cfg: size(cfg.model), status)
    return runs.rename(columns={"tokens": "D"})[[*COLUMNS]]


def gains(runs: pd.DataFrame) -> pd.DataFrame:
    """By how much the looped runs under each probe end below those of the baseline: a row a budget, r, width and seed,
    a column a probe. runs: several of ``frame`` with a column probe."""
    losses = runs.pivot(index=["budget", "r", "width", "seed"], columns="probe", values="loss").query("r > 1")
    return losses.drop(columns="baseline").rsub(losses["baseline"], axis=0)


# ---- optima ----------------------------------------------------------------------------------------------------------


def optima(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a budget and r: the minimum of the parabola of the loss in log N (000, Fig. 2)."""
    return isoflop.optima(runs.sort_values(["budget", "r"]), ["budget", "r"])


def frontier_gaps(optima: pd.DataFrame) -> pd.DataFrame:
    """Loss at the optimum of each r above that of r = 1 (000, Sec. 4.2): one row a budget, one column an r. nan where
    one of the two optima lies outside the widths trained."""
    losses = optima.assign(loss=optima["loss"].where(optima["inside"])).pivot(
        index="budget", columns="r", values="loss"
    )
    return losses.drop(columns=1, errors="ignore").sub(losses.get(1, np.nan), axis=0)


def a_D(fit: Fit) -> float:
    """beta / (alpha + beta). 000 (Table 1) calls it the data-scaling exponent; by the law N* ~ C^a_D and D* ~ C^(1 -
    a_D)."""
    return fit.params["beta"] / (fit.params["alpha"] + fit.params["beta"])


def fresh_runs(runs: pd.DataFrame, repeated: pd.DataFrame, n: int, seed: int) -> Iterator[pd.DataFrame]:
    """n grids that might have been: each cell's parabola in log N, and noise as large as all of them leave over, and as
    runs of the same cell and width differ by their seed."""
    runs = runs.sort_values(["budget", "r"], kind="stable")
    fitted, coefficients = isoflop.parabolas(runs, ["budget", "r"])
    again = [own["loss"] - own["loss"].mean() for _, own in repeated.groupby(["budget", "r", "width"]) if len(own) > 1]
    noise = Noise.left_over([runs["loss"] - fitted, *again], coefficients + len(again))
    for shifts in noise.draws(n, len(runs), np.random.default_rng(seed)):
        yield runs.assign(loss=fitted + shifts)


# ---- each recurrence by its own law ----------------------------------------------------------------------------------


def own_laws(runs: pd.DataFrame, coupling: float | str = 1) -> dict[int, Fit]:
    """r -> its Chinchilla law (000, Table 1); those with too few runs are left out."""
    groups: dict[Any, pd.DataFrame] = dict(iter(runs.groupby("r")))
    given = {r: (own["N"], own["D"], own["loss"]) for r, own in groups.items() if len(own) > 5}
    return {r: fit_chinchilla(*arrays, coupling=coupling) for r, arrays in given.items()}


def matched_gap(runs: pd.DataFrame, noise: Noise, seed: int) -> np.ndarray:
    """What r = 4 loses on r = 1, the mean over the pairs of runs that share a seed, and its draws, from a run's
    noise. nan where none of them has both."""
    pairs = runs.pivot(index="seed", columns="r", values="loss").reindex(columns=[1, 4]).dropna()
    if pairs.empty:
        return np.full(1 + DRAWS, np.nan)
    shifts = np.exp(noise.draws(DRAWS, pairs.size, np.random.default_rng(seed))).reshape(DRAWS, *pairs.shape)
    plain, looped = (pairs.to_numpy() * np.concatenate([np.ones((1, *pairs.shape)), shifts])).mean(1).T
    return looped - plain


def law_optima(laws: dict[int, Fit], families: dict[int, pd.DataFrame], budgets: Iterable[float]) -> pd.DataFrame:
    """One row a budget and r: the compute-optimal model by the law of that r (000, Sec. 4.2 and Fig. 3)."""
    rows = [allocations(fit, families[r], r, sorted(budgets)).assign(r=r, inside=True) for r, fit in laws.items()]
    return pd.concat(rows, ignore_index=True)


def cost_of_sharing(optima: pd.DataFrame) -> Margins:
    """What 000's Sec. 4.2 says of the compute-optimal models at r = 1, 2, 4, 8. Gaps are in nats above r = 1, means
    over the budgets but for ``everywhere``; octaves are of r = 4 against r = 1, means over the budgets."""
    gaps = frontier_gaps(optima)
    mean, top = gaps.mean(skipna=False).to_dict(), (gaps.iloc[-1] - gaps.iloc[-2]).to_dict()
    at = optima.set_index(["budget", "r"])[["width", "N", "D"]].unstack("r")
    octaves = {column: float(np.log2(at[column][4] / at[column][1]).mean()) for column in ("width", "N", "D")}
    return {
        **{f"r = {r}": {"": gap} for r, gap in mean.items()},
        "from 2 to 4": {"": mean[4] - mean[2]},
        "from 4 to 8": {"": mean[8] - mean[4]},
        "everywhere": {f"{r}, {budget}": gap for r, of in every_gap(optima).items() for budget, gap in of.items()},
        "fades": {"": float((gaps.iloc[0] - gaps.iloc[-1]).mean())},
        "flat": {f"r = {r}, {way}": FLAT - sign * x for r, x in top.items() for way, sign in (("up", 1), ("down", -1))},
        "wider": {"": octaves["width"]},
        "fewer": {"": -octaves["N"]},
        "fewer tokens": {"": -octaves["D"]},
        "tokens": {"": octaves["D"] - octaves["N"]},
    }


def every_gap(optima: pd.DataFrame) -> Margins:
    """The gap of each r, budget by budget (000, Sec. 4.2)."""
    return {
        f"r = {r}": {f"{budget:.3g} FLOPs": gap for budget, gap in of.items()}
        for r, of in frontier_gaps(optima).to_dict().items()
    }


def flatter(runs: pd.DataFrame) -> Margins:
    """By how much each r's parabolas are flatter than those of the r before it: their coefficient of (log N)^2,
    averaged over the budgets (000, Fig. 2)."""
    cells: Any = runs.assign(x=np.log(runs["N"])).groupby(["budget", "r"])
    each = [(r, np.polyfit(own["x"], own["loss"], 2)[0]) for (_, r), own in cells if len(own) > 2]
    bent = pd.DataFrame(each, columns=["r", "bend"]).groupby("r")["bend"].mean()
    return {"flatter": {f"r = {after}": bent[r] - bent[after] for r, after in itertools.pairwise(bent.index)}}


def of_own_laws(laws: dict[int, Fit]) -> Margins:
    """The share of the losses' variance that each r's law leaves, its largest residual in nats, a_D, by how much a_D is
    larger than that of r = 1, and how far alpha differs between every two r."""
    exponents = {r: a_D(fit) for r, fit in laws.items()}
    looped = [r for r in laws if r > 1]
    return {
        "unexplained": {f"r = {r}": 1 - fit.r2 for r, fit in laws.items()},
        "largest residual": {f"r = {r}": float(np.abs(fit.off).max()) for r, fit in laws.items()},
        "a_D, r = 1": {"": exponents[1]},
        "a_D": {f"r = {r}": exponents[r] for r in looped},
        "a_D, larger": {f"r = {r}": exponents[r] - exponents[1] for r in looped},
        "alpha": {
            f"r = {a} less {b}": laws[a].params["alpha"] - laws[b].params["alpha"]
            for a, b in itertools.combinations(laws, 2)
        },
    }


# ---- the joint law ---------------------------------------------------------------------------------------------------


def joint_arrays(runs: pd.DataFrame) -> tuple[pd.Series, pd.Series, pd.Series, pd.Series, pd.Series]:
    """The arguments of ``fit_joint``."""
    return runs["n_once"], runs["n_rec"], runs["r"], runs["D"], runs["loss"]


def misfit(runs: pd.DataFrame, fit: Fit) -> pd.Series:
    """Measured less predicted loss of each run that a law was fitted to, in nats."""
    return runs["loss"] * -np.expm1(fit.residuals)


def joint_fits(runs: pd.DataFrame, n: int, seed: int) -> list[Fit]:
    """The joint law, and the same on n grids that might have been: what it leaves over in a (budget, r) cell keeps
    together (``fits.flipped``)."""
    law = fit_joint(*joint_arrays(runs))
    return [law, *flipped(law, cell_signs(runs[["budget", "r"]], n, seed))]


def joint_quality(fits: Sequence[Fit], runs: pd.DataFrame, seed: int) -> dict[str, Drawn]:
    """How well the joint law fits (000, App. F.1), and on fresh grids (``joint_fits``): the share of the variance that
    it leaves, the root mean square and the largest of its residuals in nats, and their rank correlations with N and D.

    Fresh grids are made by the law, so that their correlations count from the one that was found. What is left over is
    known as well as the variance of so many independent residuals."""
    law, *fresh = fits
    trend = {name: [float(spearmanr(law.residuals, runs[name]).statistic)] for name in ("N", "D")}
    for name, drawn in trend.items():
        drawn += [drawn[0] + float(spearmanr(own.residuals, runs[name]).statistic) for own in fresh]
    freedom = len(runs) - law.free
    of_variance = np.append(1.0, freedom / np.random.default_rng(seed).chisquare(freedom, DRAWS))  # to what was found
    return {
        "unexplained": {"": (1 - law.r2) * of_variance},
        "rms": {"": law.rms_residual * of_variance**0.5},
        "largest residual": {"": float(np.abs(law.off).max()) * of_variance**0.5},
        "trend": trend,
    }


def held_phi_margin(fits: Sequence[Fit], runs: pd.DataFrame) -> list[float]:
    """R2 with phi held at 0 less R2 with phi held at 1 (000, Table 2), and on fresh grids (``joint_fits``)."""
    losses, coupling = [own.loss for own in fits], "free" if fits[0].law.coupled else 1
    zero, one = (refits(fit_joint(*joint_arrays(runs), phi=phi, coupling=coupling), losses) for phi in (0.0, 1.0))
    return [a.r2 - b.r2 for a, b in zip(zero, one, strict=True)]


def phi_of_parts(
    fits: Sequence[Fit], parts: Iterable[np.ndarray], weights: ArrayLike = 1.0, free: Collection[str] = ("phi", "E")
) -> np.ndarray:
    """phi of each part of the runs, and on fresh grids (``joint_fits``), which are made with one phi [parts, fits].
    A part moves what is ``free``; a half of a small grid does not identify the rest, which is the whole grid's. parts:
    which of the runs; weights: how often each fit counts a run [fits, runs]."""
    held = {name: [own.params[name] for own in fits] for name in fits[0].params if name not in free}
    counts, phis = np.broadcast_to(weights, (len(fits), len(fits[0].loss))), []
    for part in parts:
        first = dataclasses.replace(fits[0], inputs=[x[part] for x in fits[0].inputs], loss=fits[0].loss[part])
        own_losses = [own.loss[part] for own in fits]
        phis.append([own.params["phi"] for own in refits(first, own_losses, counts[:, part], **held)])
    return np.array(phis)


def drift_of_phi(fits: Sequence[Fit], runs: pd.DataFrame) -> list[float]:
    """phi of the higher half of the budgets less that of the lower half (000, App. F.3), and on fresh grids
    (``phi_of_parts``), which count from the drift that was found."""
    found, *draws = np.diff(phi_of_parts(fits, split(runs["budget"])), axis=0)[0]
    return [found, *(found + draw for draw in draws)]


def probe_draws(
    sets: dict[str, pd.DataFrame], fitting: Callable[..., Fit], resamples: int, seed: int
) -> dict[str, list[Fit]]:
    """The fit to each set of runs, and then on so many grids that might have been (``fits.flipped``): the plain runs,
    which all sets share, have the same signs in all. Cells that not every set has, since all its runs diverged there,
    are left out."""
    every = pd.concat(sets, names=["set"]).reset_index(level="set")
    kept = every[every.groupby(["budget", "r"])["set"].transform("nunique") == len(sets)]
    signs = cell_signs(kept[["budget", "r"]].assign(of=kept["set"].where(kept["r"] > 1, "")), resamples, seed)
    drawn = {}
    for name in sets:
        own = kept["set"] == name
        law = fitting(*joint_arrays(kept[own]))
        drawn[name] = [law, *flipped(law, signs[:, own.to_numpy()])]
    return drawn


def phi_shifts(drawn: dict[str, list[Fit]]) -> pd.DataFrame:
    """One row a set of runs: phi, its interval over fresh grids (low, high), its distance ``delta`` from the first
    set's, and the interval of that (delta_low, delta_high) (000, Table 3). From ``probe_draws``."""
    phis = {name: np.array([own.params["phi"] for own in fits]) for name, fits in drawn.items()}
    first, rows = next(iter(phis.values())), {}
    for name, phi in phis.items():
        (low, high), shifts = percentile_interval(phi[1:]), phi - first
        delta_low, delta_high = percentile_interval(shifts[1:])
        rows[name] = [phi[0], shifts[0], low, high, delta_low, delta_high]
    return pd.DataFrame.from_dict(
        rows, orient="index", columns=["phi", "delta", "low", "high", "delta_low", "delta_high"]
    ).rename_axis("fit")


def of_probes(
    drawn: dict[str, list[Fit]], families: dict[str, pd.DataFrame], r: int, budgets: Iterable[float]
) -> dict[str, pd.DataFrame]:
    """What the fits of ``probe_draws`` say of each set of runs, one row a fit: phi, a_D and, at r, ``width``, the
    compute-optimal width in octaves, mean over the budgets."""

    def read(fit: Fit, family: pd.DataFrame) -> dict[str, float]:
        return {
            "phi": fit.params["phi"],
            "a_D": a_D(fit),
            "width": float(np.log2(allocations(fit, family, r, budgets)["width"]).mean()),
        }

    return {name: pd.DataFrame([read(own, families[name]) for own in fits]) for name, fits in drawn.items()}


def lead_over_plain(runs: pd.DataFrame, r: int, seed: int) -> np.ndarray:
    """How far below ``MATCHED`` the loss of one r stands above the plain model's at the same budget, width and seed,
    mean over all, and its draws, with the noise that the joint law leaves over in every run."""
    losses = runs.pivot(index=["budget", "width", "seed"], columns="r", values="loss")[[1, r]].dropna()
    room = MATCHED - float((losses[r] - losses[1]).mean())
    squared = fit_joint(*joint_arrays(runs), objective="squares")
    noise = Noise.left_over([squared.loss * squared.residuals], squared.free)
    shifts = noise.draws(DRAWS, 2 * len(losses), np.random.default_rng(seed)).reshape(DRAWS, 2, -1).mean(-1)
    return np.append(room, room + shifts[:, 0] - shifts[:, 1])


def without(fits: list[Fit], runs: pd.DataFrame, r: int) -> dict[str, np.ndarray]:
    """What becomes of the joint law without the runs of one r, and on fresh grids (``fits``, the law first): how far
    phi moves, and how much less of the losses' variance is left (000, Table 3). Fresh grids are made with one phi for
    all r, so that theirs counts from the move that was found."""
    rest = (runs["r"] != r).to_numpy()
    part = fit_joint(*joint_arrays(runs[rest]), coupling="free" if fits[0].law.coupled else 1)
    parts = [part, *refits(part, [own.loss[rest] for own in fits[1:]])]
    moves = np.array([b.params["phi"] - a.params["phi"] for a, b in zip(fits, parts, strict=True)])
    moves[1:] += moves[0]
    return {"phi": moves, "r2": np.array([b.r2 - a.r2 for a, b in zip(fits, parts, strict=True)])}


def worst_fitted(fit: Fit, runs: pd.DataFrame, r: int, seed: int) -> dict[str, np.ndarray]:
    """By how many octaves the root mean square of one r's residuals about the joint law exceeds that of each other r,
    and draws of that for residuals that are independent and normal, of a variance for each r (the F distribution)."""
    random, spread = np.random.default_rng(seed), {}
    for of, own in pd.Series(fit.residuals**2, runs.index).groupby(runs["r"]):
        drawn = np.sqrt(len(own) / random.chisquare(len(own), DRAWS))
        spread[of] = np.sqrt(own.mean()) * np.append(1.0, drawn)
    return {f"r = {of}": np.log2(spread[r] / other) for of, other in spread.items() if of != r}


def cell_means(gains: pd.Series, seed: int) -> dict[str, np.ndarray]:
    """The mean over the widths of each (budget, r) cell, and draws of it: its noise is the spread of all runs about
    the mean of their cell. gains: of pairs of runs that share a seed, by budget, r and width."""
    runs = gains.dropna().rename("gain").reset_index()
    cells = {f"r = {r}, {budget:.3g} FLOPs": own["gain"] for (budget, r), own in runs.groupby(["budget", "r"])}
    noise = Noise.left_over([own - own.mean() for own in cells.values()], len(cells))
    shifts = noise.draws(DRAWS, len(cells), np.random.default_rng(seed)).T
    return {
        name: own.mean() + np.append(0.0, shift / np.sqrt(len(own)))
        for (name, own), shift in zip(cells.items(), shifts, strict=True)
    }


# ---- what a law says -------------------------------------------------------------------------------------------------


def predicted(runs: pd.DataFrame, fits: Sequence[Fit]) -> pd.DataFrame:
    """The runs with what a joint law predicts for them, the interval of that by the laws of fresh grids (low, high),
    and its error in per cent of the loss. fits: the law, and those (``joint_fits``)."""
    inputs = [x.to_numpy(float) for x in joint_arrays(runs)[:-1]]
    loss, *fresh = (own.predict(*inputs) for own in fits)
    low, high = np.quantile(fresh, [0.025, 0.975], axis=0)
    return runs.assign(predicted=loss, low=low, high=high, **{"error (%)": 100 * (loss / runs["loss"] - 1)})


def allocations(fit: Fit, family: pd.DataFrame, r: int, budgets: Iterable[float]) -> pd.DataFrame:
    """One row a budget: the law's compute-optimal model of one family, and ``budget``."""
    return pd.DataFrame([{"budget": budget, **isoflop.compute_optimal(fit, family, r, budget)} for budget in budgets])


def frontiers(fit: Fit, unrolled: Fit, families: dict[int, pd.DataFrame], budgets: Iterable[float]) -> pd.DataFrame:
    """One row an r and budget: the compute-optimal loss by a law, and by the one fitted with phi held at 1 (000, Fig.
    1, right). Budgets run from half the least to twice the most given. Optima at the edge of a family's widths are left
    out."""
    at = np.geomspace(min(budgets) / 2, 2 * max(budgets), 25)
    lines = [
        allocations(fit, family, r, at).assign(r=r, loss_unrolled=allocations(unrolled, family, r, at)["loss"])
        for r, family in families.items()
    ]
    return pd.concat(lines, ignore_index=True).query("not at_edge")


def worth(families: dict[int, pd.DataFrame], phi: float) -> pd.DataFrame:
    """One row an r, at the widest common width: unique and effective parameters and FLOPs per token, relative to the
    smallest r's unique ones (000, Fig. 1, left)."""
    at = pd.DataFrame({r: family.iloc[-1] for r, family in sorted(families.items())}).T
    N, first = at["n_once"] + at["n_rec"], at.index[0]
    worth = isoflop.effective_parameters(at["n_once"], at["n_rec"], at.index, phi)
    columns = {"unique": N / N[first], "effective": worth / N[first], "flops": at["flops"] / at["flops"][first]}
    return pd.DataFrame(columns).rename_axis("r").reset_index()
