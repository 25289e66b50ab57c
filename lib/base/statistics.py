"""Intervals of what was measured: of a mean over seeds, of the least of several, and of a number that was resampled."""

import bisect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy.special
from numpy.typing import ArrayLike

LEVEL = 0.95
Z = scipy.special.ndtri((1 + LEVEL) / 2)  # standard errors from the middle of a normal interval to its end
MOST_REPLICATES = 1000  # beyond these nobody would go


def mean_and_interval(values: ArrayLike, level: float = LEVEL) -> tuple[float, float, float]:
    """(mean, low, high) of the mean by Student's t; a single value has no interval: -inf to inf."""
    x = np.asarray(values, dtype=float)
    if not len(x) or not np.isfinite(x).all():
        return math.nan, -math.inf, math.inf
    mean = float(x.mean())
    if len(x) == 1:
        return mean, -math.inf, math.inf
    half = float(scipy.special.stdtrit(len(x) - 1, (1 + level) / 2) * x.std(ddof=1) / math.sqrt(len(x)))
    return mean, mean - half, mean + half


class Interval(NamedTuple):
    """Where a mean lies: a 95 % interval, and its middle."""

    mean: float
    low: float
    high: float

    @property
    def above(self) -> bool:
        return self.low > 0

    @property
    def below(self) -> bool:
        return self.high < 0

    def inside(self, low: float, high: float) -> bool:
        return low <= self.low and self.high <= high

    def disjoint(self, low: float, high: float) -> bool:
        return self.high < low or high < self.low


class Comparison(NamedTuple):
    """One of k comparisons. ``own``: its interval, for what is said of all k: an intersection-union test needs no
    correction (Berger 1982). ``among``: its interval at an error divided by k, for what is said of one among them:
    the first step of Holm's correction, which decides whether there is any."""

    own: Interval
    among: Interval


def levels(k: int) -> tuple[float, float]:
    """Of a comparison's own interval, and of its interval among k."""
    return LEVEL, 1 - (1 - LEVEL) / k


def all_of(comparisons: Mapping[str, ArrayLike]) -> dict[str, Comparison]:
    """Each of k comparisons, for what a paper says of "all of them": name -> one number a seed; Student's t.

    "All lie above 0" is right with an error of at most 2.5 % where every ``own.low`` does, and "one of them lies below
    0" with the same error where an ``among.high`` does."""
    return {
        name: Comparison(*(Interval(*mean_and_interval(x, level)) for level in levels(len(comparisons))))
        for name, x in comparisons.items()
    }


def all_resampled(estimates: Mapping[str, float], draws: Mapping[str, ArrayLike]) -> dict[str, Comparison]:
    """The same for numbers that were resampled: name -> the estimate, name -> its resamples; percentiles."""
    return {
        name: Comparison(*(Interval(x, *percentile_interval(draws[name], level)) for level in levels(len(estimates))))
        for name, x in estimates.items()
    }


def percentile_interval(draws: ArrayLike, level: float = LEVEL) -> tuple[float, float]:
    """The percentiles between which ``level`` of the resamples of one number lie."""
    low, high = np.quantile(np.asarray(draws), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def wilson_interval(share: ArrayLike, n: ArrayLike, level: float = LEVEL) -> tuple[np.ndarray, np.ndarray]:
    """(low, high) of the chance of success, of which ``share`` of n trials had it: Wilson's score interval, which has
    a width at shares of 0 and 1 as well."""
    p, n, z = np.asarray(share, dtype=float), np.asarray(n, dtype=float), scipy.special.ndtri((1 + level) / 2)
    middle, half = p + z**2 / (2 * n), z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    return (middle - half) / (1 + z**2 / n), (middle + half) / (1 + z**2 / n)


# ---- how many replicates ---------------------------------------------------------------------------------------------


def power(effect: float, spread: float, n: int, level: float = LEVEL) -> float:
    """The chance that Student's interval over n seeds of standard deviation ``spread`` lies above 0 where the mean is
    ``effect``: the upper tail of the noncentral t."""
    if n < 2:
        return 0.0
    if spread == 0:
        return float(effect > 0)
    critical = scipy.special.stdtrit(n - 1, (1 + level) / 2)
    return float(1 - scipy.special.nctdtr(n - 1, math.sqrt(n) * effect / spread, critical))


def replicates(effect: float, spreads: Sequence[float], wanted: float = 0.8, level: float = LEVEL) -> int | None:
    """The fewest seeds whose intervals all lie above 0 with a chance of ``wanted``, where each of the comparisons, with
    these standard deviations over seeds, is ``effect``. They are taken as independent. None where MOST_REPLICATES are
    not enough, or where no effect is stated."""
    if not (effect > 0 and all(map(math.isfinite, spreads))):
        return None
    return _fewest(lambda n: math.prod(power(effect, spread, n, level) for spread in spreads) >= wanted)


def resampled_replicates(effect: float, widths: Sequence[float], wanted: float = 0.8) -> int | None:
    """The same for numbers that were resampled over a whole grid: how many such grids, where the 95 % intervals of one
    grid have these ``widths`` and shrink with the root of their number."""
    if not (effect > 0 and all(map(math.isfinite, widths))):
        return None
    errors = np.array([width / (2 * Z) for width in widths if width])  # of one grid; what has none always holds
    return _fewest(lambda n: bool(np.prod(scipy.special.ndtr(effect * math.sqrt(n) / errors - Z)) >= wanted))


def _fewest(enough: Callable[[int], bool]) -> int | None:
    """The least number that is enough, where every larger one is, too."""
    n = 1 + bisect.bisect_left(range(1, MOST_REPLICATES + 1), True, key=enough)
    return n if n <= MOST_REPLICATES else None


def fresh_draws(comparisons: Mapping[str, ArrayLike], draws: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    """What as many fresh seeds might have given, ``draws`` times: name -> one number a seed, from the predictive
    distribution of normal noise whose mean and variance are known from the seeds that there are (Jeffreys' prior).
    Comparisons are drawn one by one, as if nothing tied them. Each needs two numbers or more, all finite."""
    random = np.random.default_rng(seed)
    fresh = {}
    for name, values in comparisons.items():
        x = np.asarray(values, dtype=float)
        n = len(x)
        variances = (n - 1) * x.var(ddof=1) / random.chisquare(n - 1, draws)
        means = random.normal(x.mean(), np.sqrt(variances / n))
        fresh[name] = random.normal(means[:, None], np.sqrt(variances)[:, None], (draws, n))
    return [{name: x[i] for name, x in fresh.items()} for i in range(draws)]


def fresh_resamples(comparisons: Mapping[str, Comparison], draws: int, seed: int = 0) -> list[dict[str, Comparison]]:
    """The same for numbers that were resampled: a fresh grid's estimate lies around this one's by sqrt(2) of its
    standard error, and its intervals are as wide."""
    random = np.random.default_rng(seed)
    shifts = {
        name: random.normal(0.0, math.sqrt(2) * (one.own.high - one.own.low) / (2 * Z), draws)
        for name, one in comparisons.items()
    }
    return [
        {
            name: Comparison(*(Interval(*(end + shifts[name][i] for end in interval)) for interval in one))
            for name, one in comparisons.items()
        }
        for i in range(draws)
    ]
