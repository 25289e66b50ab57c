"""Permutation over seeds: how often a mean lies as high if each number might as well have the other sign."""

import numpy as np
from numpy.typing import ArrayLike

EXACT = 12  # numbers up to which all signs are tried
DRAWN = 2**EXACT  # draws of signs beyond


def p_above(values: ArrayLike, at: float = 0.0) -> float:
    """The one-sided p-value of a mean that is not above ``at``: the share of all changes of signs of the distances from
    ``at`` that have a mean as high (Fisher 1935). It is exact where the noise is symmetric, whatever else it is."""
    x = np.asarray(values, dtype=float) - at
    n = len(x)
    if n <= EXACT:
        signs = 1 - 2 * (np.arange(2**n)[:, None] >> np.arange(n) & 1)
    else:
        drawn = np.random.default_rng(0).integers(0, 2, (DRAWN - 1, n))
        signs = np.concatenate([np.ones((1, n), dtype=int), 1 - 2 * drawn])
    return float(np.mean(signs @ x >= x.sum() - 1e-12 * np.abs(x).sum()))
