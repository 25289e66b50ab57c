"""Ladders of tokens at one width: does the gap between r loops and one depend on the tokens D alone?

A law that adds what parameters and tokens cost, L = E + A N_eff^-alpha + B D^-beta (000, Eq. 3), says no: at one width
its gap is A (N_eff(r)^-alpha - N_eff(1)^-alpha), whatever D. Losses are in nats per token; rungs in tokens for each of
the plain model's parameters.
"""

import numpy as np
import pandas as pd
from scipy import stats

#: parts of a run's label
CELL = ("width", "rung", "lr", "r", "seed")
SERIES = ["width", "r", "seed"]
FEWEST = 5  # rungs; a width with fewer of some r and seed has no slope


def gaps(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a looped run: ``gap``, its loss less that of r = 1 on the same width, rung, rate and seed."""
    same = ["width", "rung", "lr", "seed"]
    plain = runs[runs["r"] == 1].set_index(same)["loss"].rename("plain")
    looped = runs[runs["r"] > 1].join(plain, on=same)
    return looped.assign(gap=looped["loss"] - looped["plain"]).dropna()[[*CELL, "gap"]]


def slopes(gaps: pd.DataFrame, fewest: int = FEWEST) -> pd.DataFrame:
    """One row a width, r and seed: ``slope``, by least squares, of the gap in ln D, nats an e-fold; none of a width
    where one of them has fewer rungs than ``fewest``."""
    rungs = gaps.groupby(SERIES)["rung"].transform("nunique").groupby(gaps["width"]).transform("min")
    gaps = gaps[rungs >= fewest]
    if gaps.empty:
        return pd.DataFrame(columns=[*SERIES, "slope"])
    lines = gaps.groupby(SERIES)[["rung", "gap"]]
    found = lines.apply(lambda of: float(np.polyfit(np.log(of["rung"]), of["gap"], 1)[0]))
    return found.rename("slope").reset_index()


def by_width(slopes: pd.DataFrame) -> pd.DataFrame:
    """A width's mean slope over r and seeds with its 95 % interval, ``low`` and ``high``: Student's t. Seeds of one r
    and width tell the spread, all of them together, since each has few."""
    cells = slopes.groupby(["width", "r"])["slope"]
    freedom = len(slopes) - cells.ngroups
    spread = np.sqrt(cells.var().mul(cells.size() - 1).sum() / freedom) if freedom else np.nan
    found = slopes.groupby("width")["slope"].agg(["mean", "size"])
    half = stats.t.ppf(0.975, max(freedom, 1)) * spread / np.sqrt(found["size"])
    return found.assign(low=found["mean"] - half, high=found["mean"] + half).drop(columns="size")
