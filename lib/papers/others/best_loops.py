"""How many loops are best for a budget: arXiv 2609.19107 on fresh text and on text that is repeated."""

import numpy as np
import pandas as pd

from lib.base.statistics import percentile_interval
from lib.fit import isoflop

#: FLOPs at which the authors compare numbers of loops
BUDGETS = (0.846120e18, 1.419447e18, 2.381258e18, 3.994787e18, 6.701636e18)
SETS = {
    "one epoch, tied": ("tuned", "tied"),
    "one epoch, own weights": ("tuned", "untied"),
    "one recipe, 1 epoch": ("fresh", "tied"),
    "one recipe, 4 epochs": ("replay250m4", "tied"),
    "one recipe, 10 epochs": ("replay100m10", "tied"),
}


def optima(loops: pd.DataFrame) -> pd.DataFrame:
    """One row a set and budget: K, the minimum of a parabola of the loss in log loops; ``inside`` where it lies between
    the loops that were tried there.

    loops: ``runs.loops``. The loss of a number of loops at a budget is read off its models of several sizes, linear in
    compute, and is missing where none is smaller or larger. One pass is the same model, tied or not."""
    rows = {}
    for name, (recipe, arm) in SETS.items():
        own = loops[(loops["recipe"] == recipe) & ((loops["arm"] == arm) | (loops["loops"] == 1))]
        own = own.sort_values("compute")
        ladders = {k: (at["compute"].to_numpy(), at["loss"].to_numpy()) for k, at in own.groupby("loops")}
        for budget in BUDGETS:
            losses = np.array([np.interp(budget, *at, np.nan, np.nan) for at in ladders.values()])
            there = np.isfinite(losses)
            found = isoflop.minimum(np.array([*ladders], dtype=float)[there], losses[there])
            rows[name, budget] = {"K": found.x, "loss": found.loss, "inside": found.inside, "tried": int(there.sum())}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["set", "budget"])


def fresh_optima(loops: pd.DataFrame, noise: float, resamples: int, seed: int) -> list[pd.DataFrame]:
    """``optima`` of so many sets of runs whose losses have another noise, of standard deviation ``noise`` nats."""
    shifts = np.random.default_rng(seed).normal(0.0, noise, (resamples, len(loops)))
    return [optima(loops.assign(loss=loops["loss"] + shift)) for shift in shifts]


def with_intervals(optima: pd.DataFrame, fresh: list[pd.DataFrame]) -> pd.DataFrame:
    """``optima`` with the 95 % interval of K over ``fresh_optima`` (low, high)."""
    draws = np.array([one["K"] for one in fresh])
    low, high = np.array([percentile_interval(K) for K in draws.T]).T
    return optima.assign(low=low, high=high)[["K", "low", "high", "loss", "inside", "tried"]]
