"""Does 000's base rate serve everywhere (App. D)? Losses near it, by parabolas in the log rate.

The conditions of an architecture share the curvature of their parabolas, so that three rates each leave something over
by which the noise of a run is known. Every number is an array [1 + n]: the estimate, then its n draws.
"""

import dataclasses
from typing import Self

import numpy as np
import pandas as pd
from numpy import ndarray

from lib.fit.noise import Noise

ALLOWED = 0.005  # nats that the base rate may lose (App. D.2)


@dataclasses.dataclass(frozen=True)
class Parabolas:
    """loss = level + slope x + bend x^2, x = log(rate / base rate): level and slope of each (architecture, condition),
    bend of each architecture, as arrays [1 + n]."""

    base: float
    level: dict[tuple[str, str], ndarray]
    slope: dict[tuple[str, str], ndarray]
    bend: dict[str, ndarray]

    @classmethod
    def of(cls, runs: pd.DataFrame, base: float, n: int, seed: int) -> Self:
        """runs: columns group (architecture), condition, lr and loss, each run once. Draws have normal noise, as large
        as all parabolas together leave over."""
        x, loss = np.log(runs["lr"].to_numpy(float) / base)[:, None], runs["loss"].to_numpy()
        cells = [*dict.fromkeys(zip(runs["group"], runs["condition"], strict=True))]
        of_cell = np.array(
            [(runs["group"] == group) & (runs["condition"] == condition) for group, condition in cells]
        ).T
        groups = runs["group"].unique()
        of_group = np.array([runs["group"] == group for group in groups]).T
        design = np.hstack([of_cell, of_cell * x, of_group * x**2])
        solved = np.linalg.pinv(design)
        best = solved @ loss
        noise = Noise.left_over([loss - design @ best], design.shape[1])
        draws = best + noise.draws(n, len(runs), np.random.default_rng(seed)) @ solved.T
        level, slope, bend = np.split(np.vstack([best, draws]).T, [len(cells), 2 * len(cells)])
        levels, slopes = dict(zip(cells, level, strict=True)), dict(zip(cells, slope, strict=True))
        return cls(base, levels, slopes, dict(zip(groups, bend, strict=True)))

    def room(self, group: str, condition: str) -> dict[str, ndarray]:
        """How far the slope at the base rate is from one at which it loses ALLOWED, upwards and downwards, in nats an
        e-fold of the rate: the loss above the minimum is slope^2 / (4 bend)."""
        most = np.sqrt(4 * ALLOWED * np.maximum(self.bend[group], 0))
        slope = self.slope[group, condition]
        return {f"{group}, {condition}, falling": most + slope, f"{group}, {condition}, rising": most - slope}

    def best(self, group: str, condition: str) -> ndarray:
        """The rate at the minimum; 0 or infinity where the parabola has none and falls that way."""
        with np.errstate(over="ignore"):
            return self.base * np.exp(self._away(group, condition))

    def apart(self, groups: tuple[str, str], condition: str) -> ndarray:
        """Octaves of the best rate of the second architecture above that of the first."""
        first, second = (self._away(group, condition) for group in groups)
        with np.errstate(invalid="ignore"):  # both infinite
            return (second - first) / np.log(2)

    def _away(self, group: str, condition: str) -> ndarray:
        """log(best rate / base rate)"""
        bend, slope = self.bend[group], self.slope[group, condition]
        nearest = -slope / (2 * np.maximum(bend, 1e-300))
        return np.where(bend > 0, nearest, np.where(slope > 0, -np.inf, np.inf))
