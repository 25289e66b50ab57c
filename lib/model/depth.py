"""How many loops a row makes and how many of them backpropagate: (n, k) per row, n loops without gradient, then k with.

Two rules (001, App. "Sampling of Truncated Recurrence"). Corrected: the total T follows the distribution, and k =
min(T, backprop_loops). Fill, after Geiping et al.: n follows the distribution around mean_loops - backprop_loops, and k
= backprop_loops always, which squeezes the total. A third is that of 001's released sampler per batch. On top: n
follows the distribution around mean_loops, and k = min(n, backprop_loops) is not taken off n, so that the total is
about mean_loops + backprop_loops and never 1.
"""

import dataclasses

import numpy as np

from lib.base import seeds
from lib.config import ModelConfig

SIGMA = 0.5  # of the log-normal


def split(loops: np.ndarray, backprop_loops: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Totals [B] -> (n, k), loops without and with gradient."""
    k = loops if backprop_loops is None else np.minimum(loops, backprop_loops)
    return loops - k, k


def turns(n: np.ndarray, k: np.ndarray) -> list[tuple[int, bool]]:
    """(how many rows run, whether with gradient) in each loop of a batch: all rows make their n, and then their k."""
    return [(int((of > t).sum()), of is k) for of in (n, k) for t in range(of.max())]


@dataclasses.dataclass(frozen=True)
class DepthRule:
    """The depth rule of a config."""

    cfg: ModelConfig

    def sample(self, seed: int, step: int, rows: range | list[int]) -> tuple[np.ndarray, np.ndarray]:
        """(n, k), each [B], for these global rows of a step; a row's own are a function of (seed, step, row)."""
        if self.cfg.depth == "fixed":
            drawn = np.full(len(rows), self.cfg.mean_loops)
        elif self.cfg.depth_per == "batch":
            drawn = np.full(len(rows), self._draw(seeds.stream("depth", seed, step)))
        else:
            drawn = np.array([self._draw(seeds.stream("depth", seed, step, row)) for row in rows])
        return self._split(drawn)

    def distribution(self) -> np.ndarray:
        """P(T = t) of the total for t = 0, 1, 2, ... up to where nothing is left."""
        drawn, n, k = self._drawn()
        p = np.zeros((n + k).max() + 1)
        p[n + k] = drawn
        return p

    def expected(self) -> tuple[float, float]:
        """(E[n], E[k]): the loops without and with gradient of a training step on average."""
        drawn, n, k = self._drawn()
        return float(drawn @ n), float(drawn @ k)

    def _drawn(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """P of 0, 1, 2, ... in the distribution that is drawn from, and the n and the k of each."""
        last = 20 + 12 * self.cfg.mean_loops
        p = np.zeros(last + 1)
        if self.cfg.depth == "fixed":
            p[self.cfg.mean_loops] = 1
        elif self.cfg.depth == "poisson":
            p[:] = _poisson(self._poisson_mean, last)
            if not self.cfg.fill:
                p[1] += p[0]  # max(Poisson, 1)
                p[0] = 0
        elif self._poisson_mean == 0:
            p[1] = 1
        else:
            nodes, weights = np.polynomial.hermite_e.hermegauss(64)
            taus = np.log(self._poisson_mean) - SIGMA**2 / 2 + SIGMA * nodes
            weights = weights / weights.sum()
            p[1:] = sum(w * _poisson(np.exp(tau), last - 1) for w, tau in zip(weights, taus, strict=True))
        return p / p.sum(), *self._split(np.arange(last + 1))

    def _split(self, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What was drawn [B] -> (n, k)."""
        k = self.cfg.max_backprop_loops
        if self.cfg.fill:
            return drawn, np.full_like(drawn, k)
        return (drawn, np.minimum(drawn, k or 0)) if self.cfg.on_top else split(drawn, k)

    @property
    def _poisson_mean(self) -> int:
        """Mean of the Poisson inside. Poisson(e^tau) + 1 has the mean E[e^tau] + 1; the corrected rule takes that one
        off, so that a mean of 4 is 4, while fill has it as published."""
        if self.cfg.fill:
            return self.cfg.mean_loops - (self.cfg.max_backprop_loops or 0)
        return self.cfg.mean_loops - (self.cfg.depth == "lognormal-poisson")

    def _draw(self, random: np.random.Generator) -> int:
        mean = self._poisson_mean
        if self.cfg.depth == "poisson":
            return max(int(random.poisson(mean)), 0 if self.cfg.fill else 1)
        if mean == 0:
            return 1
        return 1 + int(random.poisson(np.exp(random.normal(np.log(mean) - SIGMA**2 / 2, SIGMA))))


def _poisson(mean: float, last: int) -> np.ndarray:
    t = np.arange(last + 1)
    if mean == 0:
        return (t == 0).astype(float)
    log_factorial = np.concatenate([[0], np.cumsum(np.log(np.arange(1, last + 1)))])
    return np.exp(t * np.log(mean) - mean - log_factorial)
