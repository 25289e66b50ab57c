"""The noise of one run, known from what fits leave over, and grids of runs that might have been."""

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy import ndarray
from numpy.typing import ArrayLike


class Noise(NamedTuple):
    """The variance of a run's loss, and the degrees of freedom that it is known with: nan where there are none."""

    variance: float
    freedom: int

    @classmethod
    def left_over(cls, residuals: Sequence[ArrayLike], parameters: int) -> Self:
        """Of the residuals of several fits that have so many parameters in all."""
        every = np.concatenate([np.empty(0), *(np.asarray(some, dtype=float) for some in residuals)])
        freedom = len(every) - parameters
        return cls(float(every @ every / freedom), freedom) if freedom > 0 else cls(math.nan, 0)

    def draws(self, n: int, size: int, random: np.random.Generator) -> ndarray:
        """Normal noise [n, size]. Its variance is drawn too, for each of the n, as far as it is open (scaled inverse
        chi-square), so that percentiles of what is linear in it are Student's t. nan where it is not known."""
        if not self.freedom:
            return np.full((n, size), math.nan)
        deviations = np.sqrt(self.variance * self.freedom / random.chisquare(self.freedom, n))
        return deviations[:, None] * random.standard_normal((n, size))
