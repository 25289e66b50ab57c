"""Intervals of what was measured: of a mean over seeds, and of a number that was resampled."""

import math

import numpy as np
import scipy.special
from numpy.typing import ArrayLike


def mean_and_interval(values: ArrayLike, level: float = 0.95) -> tuple[float, float, float]:
    """(mean, low, high) of the mean by Student's t; a single value has no interval: -inf to inf."""
    x = np.asarray(values, dtype=float)
    if not len(x) or not np.isfinite(x).all():
        return math.nan, -math.inf, math.inf
    mean = float(x.mean())
    if len(x) == 1:
        return mean, -math.inf, math.inf
    half = float(scipy.special.stdtrit(len(x) - 1, (1 + level) / 2) * x.std(ddof=1) / math.sqrt(len(x)))
    return mean, mean - half, mean + half


def percentile_interval(draws: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """The percentiles between which ``level`` of the resamples of one number lie."""
    low, high = np.quantile(np.asarray(draws), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
