"""How many loops a row makes and how many of them backpropagate: (n, k) per row.

n loops run without gradient, then k with (001, App. "Sampling of Truncated Recurrence", the corrected rule): the total
T = n + k follows the depth rule alone, and k = min(T, backprop_loops).
"""

import numpy as np

from lib import seeds
from lib.config import ModelConfig

SIGMA = 0.5  # of the log-normal rule


def split(loops: np.ndarray, backprop_loops: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Totals [B] -> (n, k), loops without and with gradient."""
    k = loops if backprop_loops is None else np.minimum(loops, backprop_loops)
    return loops - k, k


def sample(cfg: ModelConfig, seed: int, step: int, rows: range | list[int]) -> np.ndarray:
    """Totals [B] for these global rows of a step, each a function of (seed, step, row)."""
    if cfg.depth == "fixed":
        return np.full(len(rows), cfg.mean_loops)
    if cfg.depth_per == "batch":
        return np.full(len(rows), _draw(cfg, seeds.stream("depth", seed, step)))
    return np.array([_draw(cfg, seeds.stream("depth", seed, step, row)) for row in rows])


def _draw(cfg: ModelConfig, random: np.random.Generator) -> int:
    if cfg.depth == "poisson":
        return max(int(random.poisson(cfg.mean_loops)), 1)
    if cfg.mean_loops == 1:
        return 1
    # Poisson(e^tau) + 1 has the mean E[e^tau] + 1, so that e^tau must average mean_loops - 1
    tau = random.normal(np.log(cfg.mean_loops - 1) - SIGMA**2 / 2, SIGMA)
    return int(random.poisson(np.exp(tau))) + 1


def distribution(cfg: ModelConfig) -> np.ndarray:
    """P(T = t) for t = 0, 1, 2, ... up to where nothing is left."""
    last = 20 + 12 * cfg.mean_loops
    p = np.zeros(last + 1)
    if cfg.depth == "fixed" or (cfg.depth == "lognormal-poisson" and cfg.mean_loops == 1):
        p[cfg.mean_loops] = 1
    elif cfg.depth == "poisson":
        p[:] = _poisson(cfg.mean_loops, last)
        p[1] += p[0]  # max(Poisson, 1)
        p[0] = 0
    else:
        nodes, weights = np.polynomial.hermite_e.hermegauss(64)
        taus = np.log(cfg.mean_loops - 1) - SIGMA**2 / 2 + SIGMA * nodes
        p[1:] = sum(w * _poisson(np.exp(tau), last - 1) for w, tau in zip(weights / weights.sum(), taus, strict=True))
    return p / p.sum()


def _poisson(mean: float, last: int) -> np.ndarray:
    t = np.arange(last + 1)
    log_factorial = np.concatenate([[0], np.cumsum(np.log(np.arange(1, last + 1)))])
    return np.exp(t * np.log(mean) - mean - log_factorial)


def expected(cfg: ModelConfig) -> tuple[float, float]:
    """(E[n], E[k]): the expected loops without and with gradient of a training step."""
    p = distribution(cfg)
    n, k = split(np.arange(len(p)), cfg.max_backprop_loops)
    return float(p @ n), float(p @ k)
