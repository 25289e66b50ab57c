"""The second opinion on a claim, by permutation over seeds; the first (lib/workbook/claims.py) is by Student's t."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.stats

FEWEST = 6  # seeds: 2^-6 is the first power of 1/2 below ERROR
ERROR = 0.025
TOO_FEW = "too few seeds"
SIGNS = 2**12  # changes of signs: all of up to twelve numbers, so many drawn beyond


def p_above(values: Sequence[float], at: float = 0.0) -> float:
    """The one-sided p-value of a mean that is not above ``at``: the share of all changes of signs of the distances from
    ``at`` that have a mean as high (Fisher 1935). It is exact where the noise is symmetric, whatever else it is."""
    distances = np.asarray(values, dtype=float) - at
    found = scipy.stats.permutation_test(
        (distances,), np.mean, permutation_type="samples", alternative="greater", n_resamples=SIGNS, rng=0
    )
    return float(found.pvalue)


def p_below(values: Sequence[float], at: float = 0.0) -> float:
    """The same of a mean that is not below ``at``."""
    return p_above([-x for x in values], -at)


class Permuted(NamedTuple):
    """Where a mean lies, with a one-sided ``error``: what an ``Interval`` says, said by permutation."""

    values: Sequence[float]
    error: float

    @property
    def above(self) -> bool:
        return p_above(self.values) <= self.error

    @property
    def below(self) -> bool:
        return p_below(self.values) <= self.error

    def inside(self, low: float, high: float) -> bool:
        """Two one-sided tests, against each end."""
        return max(p_above(self.values, low), p_below(self.values, high)) <= self.error

    def disjoint(self, low: float, high: float) -> bool:
        return min(p_below(self.values, low), p_above(self.values, high)) <= self.error
