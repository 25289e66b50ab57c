"""The best of a budget, by parabolas through other groups' runs: how many parameters, and how many loops; and whether
the fit that 000 prints reaches the optimum of its own objective."""

import numpy as np
import pandas as pd

from lib.base.statistics import percentile_interval
from lib.fit import isoflop
from lib.fit.fits import Noise, bootstrap, fit_chinchilla, fit_joint, fresh_fits
from lib.fit.laws import JOINT
from lib.fit.optimum import DELTA, huber
from lib.papers.isodepth.designs import PUBLISHED
from lib.papers.isodepth.readings import a_D, joint_arrays
from lib.papers.shared.reported import with_intervals

#: tokens a stored parameter that arXiv 2609.19107 trains its ladders with as compute-optimal (ladder recipes)
PRINTED_RATIO = {"vanilla": 5.0, "operator_1": 6.0, "loop_2": 6.0, "untied_2": 6.0, "deep_vanilla": 6.0}
UNTIED = "untied_2"  # the arm that the others' losses are compared with
#: FLOPs at which the authors compare numbers of loops
BUDGETS = (0.846120e18, 1.419447e18, 2.381258e18, 3.994787e18, 6.701636e18)
#: recipe and arm of what is compared there
SETS = {
    "one epoch, tied": ("tuned", "tied"),
    "one epoch, own weights": ("tuned", "untied"),
    "one recipe, 1 epoch": ("fresh", "tied"),
    "one recipe, 4 epochs": ("replay250m4", "tied"),
    "one recipe, 10 epochs": ("replay100m10", "tied"),
}

# ---- how many parameters ---------------------------------------------------------------------------------------------


def optima(runs: pd.DataFrame) -> pd.DataFrame:
    """One row an arm and budget: the minimum of the parabola of the loss in log N, N the stored parameters
    (``isoflop.optima``); ``ratio``, tokens a stored parameter there; and ``gap``, how far the loss is above that of own
    weights, which have none themselves."""
    found = isoflop.optima(runs, ["arm", "budget"]).set_index(["arm", "budget"])
    gap = found["loss"] - found["loss"][UNTIED].reindex(found.index, level="budget")
    return found.assign(ratio=found["D"] / found["N"], gap=gap.where(found.index.get_level_values("arm") != UNTIED))


def fresh_optima(runs: pd.DataFrame, resamples: int, seed: int) -> list[pd.DataFrame]:
    """``optima`` of so many sets of runs that might have been: the parabolas, and noise anew as large as they leave
    over."""
    curve, coefficients = isoflop.parabolas(runs, ["arm", "budget"])
    noise = Noise.left_over([runs["loss"] - curve], coefficients)
    draws = noise.draws(resamples, len(runs), np.random.default_rng(seed))
    return [optima(runs.assign(loss=curve + shifts)) for shifts in draws]


def ratios(optima: pd.DataFrame) -> pd.DataFrame:
    """One row an arm: tokens a stored parameter at the optimum, the geometric mean over the budgets."""
    return np.exp(np.log(optima["ratio"]).groupby("arm").mean()).to_frame("ours")


def ratios_beside_printed(optima: pd.DataFrame, fresh: list[pd.DataFrame]) -> pd.DataFrame:
    """``ratios`` as printed and ours, with the 95 % interval over ``fresh_optima``, low and high."""
    printed = pd.Series(PRINTED_RATIO, name="printed").rename_axis("arm").to_frame()
    return printed.join(with_intervals(ratios(optima), map(ratios, fresh)))


def own_laws(runs: pd.DataFrame, resamples: int, seed: int) -> pd.DataFrame:
    """Chinchilla's law of each arm in its stored parameters: its constants and R2; a_D = beta / (alpha + beta), the
    exponent of D* by it, and its 95 % interval over fresh runs, low and high."""
    laws = {str(arm): fit_chinchilla(own["N"], own["D"], own["loss"]) for arm, own in runs.groupby("arm")}
    fresh = fresh_fits(laws, resamples, seed)
    rows = {}
    for arm, law in laws.items():
        low, high = percentile_interval([a_D(one[arm]) for one in fresh])
        rows[arm] = {**law.params, "R2": law.r2, "a_D": a_D(law), "low": low, "high": high}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("arm")


# ---- how many loops --------------------------------------------------------------------------------------------------


def best_loops(loops: pd.DataFrame) -> pd.DataFrame:
    """One row a set and budget: K, the minimum of a parabola of the loss in log loops; ``inside`` where it lies between
    the loops that were tried there.

    loops: ``runs.loops``. The loss of a number of loops at a budget is read off its models of several sizes, linear in
    compute, and is missing where none is smaller or larger. One pass is the same model, tied or not."""
    rows = {}
    for name, (recipe, arm) in SETS.items():
        own = loops[(loops["recipe"] == recipe) & ((loops["arm"] == arm) | (loops["loops"] == 1))]
        ladders = {k: at.sort_values("compute") for k, at in own.groupby("loops")}
        for budget in BUDGETS:
            losses = {k: np.interp(budget, at["compute"], at["loss"], np.nan, np.nan) for k, at in ladders.items()}
            there = pd.Series(losses).dropna()
            found = isoflop.minimum(there.index.to_numpy(float), there)
            rows[name, budget] = {"K": found.x, "loss": found.loss, "inside": found.inside, "tried": len(there)}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["set", "budget"])


def fresh_best_loops(loops: pd.DataFrame, noise: float, resamples: int, seed: int) -> list[pd.DataFrame]:
    """``best_loops`` of so many sets of runs whose losses have another noise, of standard deviation ``noise`` nats."""
    shifts = np.random.default_rng(seed).normal(0.0, noise, (resamples, len(loops)))
    return [best_loops(loops.assign(loss=loops["loss"] + shift)) for shift in shifts]


# ---- does 000's fit reach its own optimum? -----------------------------------------------------------------------


def authors_fit(grid: pd.DataFrame, resamples: int, seed: int) -> pd.DataFrame:
    """The objective of the joint law that 000 prints and of ours on the same points, its ``grid``: a column with how
    many points; printed, ours, and how much lower ours is; then each constant, printed and ours with its 95 % interval
    (low, high) by a bootstrap of (budget, r) cells as in the paper."""
    arrays = joint_arrays(grid)
    own, draws = fit_joint(*arrays), bootstrap(fit_joint, arrays, grid[["budget", "r"]], resamples, seed)
    theirs = float(huber(np.log(JOINT.loss(PUBLISHED, *own.inputs) / own.loss), DELTA).sum())
    row = {"points": len(grid), "printed": theirs, "ours": own.objective, "lower": 1 - own.objective / theirs}
    for name, value in PUBLISHED.items():
        low, high = percentile_interval(draws[name])
        row |= {f"{name}, printed": value, f"{name}, ours": own.params[name]}
        row |= {f"{name}, ours low": low, f"{name}, ours high": high}
    return pd.DataFrame(pd.Series(row, name="000, joint")).rename_axis(columns="fit")
