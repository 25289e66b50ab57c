"""Iso-FLOP optima and Chinchilla laws of other groups' runs, and whether the fit that 000 prints reaches the optimum of
its own objective."""

import numpy as np
import pandas as pd

from lib.base.statistics import percentile_interval, with_interval
from lib.fit import isoflop
from lib.fit.fits import bootstrap, fit_chinchilla, fit_joint, fresh_fits, objective_at
from lib.fit.laws import JOINT
from lib.fit.noise import Noise
from lib.papers.isodepth.designs import PUBLISHED
from lib.papers.isodepth.readings import a_D, joint_arrays

#: tokens a stored parameter that arXiv 2609.19107 trains its ladders with as compute-optimal (ladder recipes)
PRINTED_RATIO = {"vanilla": 5.0, "operator_1": 6.0, "loop_2": 6.0, "untied_2": 6.0, "deep_vanilla": 6.0}

# ---- arXiv 2609.19107 ------------------------------------------------------------------------------------------------


def optima(runs: pd.DataFrame) -> pd.DataFrame:
    """One row an arm and budget: the minimum of the parabola of the loss in log N, N the stored parameters
    (``isoflop.optima``), and ``ratio``, tokens a stored parameter there."""
    found = isoflop.optima(runs, ["arm", "budget"])
    return found.assign(ratio=found["D"] / found["N"])


def gaps(optima: pd.DataFrame, than: str) -> pd.DataFrame:
    """Loss at the optimum above that of another arm, in nats: one row a budget, one column an arm."""
    losses = optima.pivot(index="budget", columns="arm", values="loss")
    return losses.sub(losses[than], axis=0).drop(columns=than)


def fresh_optima(runs: pd.DataFrame, resamples: int, seed: int) -> list[pd.DataFrame]:
    """``optima`` of so many sets of runs that might have been: the parabolas, and noise anew as large as they leave
    over."""
    curve, coefficients = isoflop.parabolas(runs, ["arm", "budget"])
    noise = Noise.left_over([runs["loss"] - curve], coefficients)
    draws = noise.draws(resamples, len(runs), np.random.default_rng(seed))
    return [optima(runs.assign(loss=curve + shifts)) for shifts in draws]


def ratios(optima: pd.DataFrame) -> dict[str, float]:
    """Arm -> tokens a stored parameter at the optimum, the geometric mean over the budgets."""
    return np.exp(np.log(optima["ratio"]).groupby(optima["arm"]).mean()).to_dict()


def ratios_beside_printed(optima: pd.DataFrame, fresh: list[pd.DataFrame]) -> pd.DataFrame:
    """One row an arm: tokens a stored parameter at the optimum as printed and ours (``ratios``), with its 95 % interval
    over ``fresh_optima``, low and high."""
    found, draws = ratios(optima), [*map(ratios, fresh)]
    rows = {
        arm: {"printed": printed, **with_interval("ours", found[arm], [one[arm] for one in draws])}
        for arm, printed in PRINTED_RATIO.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("arm")


def gaps_with_intervals(optima: pd.DataFrame, fresh: list[pd.DataFrame], than: str) -> pd.DataFrame:
    """``gaps`` as one row an arm and budget, with ``ratio`` there, each with its 95 % interval over ``fresh_optima``;
    ``than`` itself has no gap."""
    by = ["arm", "budget"]
    found, draws = optima.set_index(by), [one.set_index(by) for one in fresh]
    off, offs = gaps(optima, than), [gaps(one, than) for one in fresh]
    rows = {}
    for arm, budget in found.index:
        row = with_interval("ratio", found["ratio"][arm, budget], [one["ratio"][arm, budget] for one in draws])
        if arm != than:
            row |= with_interval("gap", off[arm][budget], [one[arm][budget] for one in offs])
        rows[arm, budget] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(by)


def own_laws(runs: pd.DataFrame, resamples: int, seed: int) -> pd.DataFrame:
    """Chinchilla's law of each arm in its stored parameters: its constants and R2; a_D = beta / (alpha + beta), the
    exponent of D* by it, and its 95 % interval over fresh runs, low and high."""
    by = {str(arm): (own["N"], own["D"], own["loss"]) for arm, own in runs.groupby("arm")}
    laws = {arm: fit_chinchilla(*arrays) for arm, arrays in by.items()}
    fresh = fresh_fits(laws, resamples, seed)
    rows = {}
    for arm, law in laws.items():
        low, high = percentile_interval([a_D(one[arm]) for one in fresh])
        rows[arm] = {**law.params, "R2": law.r2, "a_D": a_D(law), "low": low, "high": high}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("arm")


# ---- does 000's fit reach its own optimum? -----------------------------------------------------------------------


def authors_fit(grid: pd.DataFrame, resamples: int, seed: int) -> pd.DataFrame:
    """The objective of the joint law that 000 prints and of ours on the same points, its ``grid``: a column with how
    many points; printed, ours, and how much lower ours is; then each constant, printed and ours with its 95 % interval
    (low, high) by a bootstrap of (budget, r) cells as in the paper."""
    arrays = joint_arrays(grid)
    own, draws = fit_joint(*arrays), bootstrap(fit_joint, arrays, grid[["budget", "r"]], resamples, seed)
    theirs = objective_at(JOINT, PUBLISHED, arrays[:-1], arrays[-1])
    row = {"points": len(grid), "printed": theirs, "ours": own.objective, "lower": 1 - own.objective / theirs}
    for name, value in PUBLISHED.items():
        row |= {f"{name}, printed": value, **with_interval(f"{name}, ours", own.params[name], draws[name])}
    return pd.DataFrame(pd.Series(row, name="000, joint")).rename_axis(columns="fit")
