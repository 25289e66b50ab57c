"""Points whose law is known, with noise, and the least that scipy's minimisers find on them."""

import functools
import itertools

import numpy as np
import pandas as pd
import scipy.optimize

from lib.fit import laws
from lib.papers.isodepth import designs


def iso_depth_grid(noise=0.0, seed=0) -> pd.DataFrame:
    """The 116 runs of 000 with the losses of its law, and log-normal noise."""
    families = {r: family.set_index("width") for r, family in designs.published_families().items()}
    rows = [
        {"budget": budget, "r": r, "width": 64 * s, "seed": 0, **families[r].loc[64 * s]}
        for budget, widths in designs.PUBLISHED_WIDTHS.items()
        for s in widths
        for r in designs.PUBLISHED_RECURRENCES
    ]
    frame = pd.DataFrame(rows).rename(columns={"flops": "F"}).eval("N = n_once + n_rec\nD = budget / F")
    loss = laws.JOINT.loss(designs.PUBLISHED, frame.n_once, frame.n_rec, frame.r, frame.D)
    return frame.assign(loss=loss * np.exp(np.random.default_rng(seed).normal(0, noise, len(frame))))


def joint_arrays(frame) -> tuple:
    return frame.n_once, frame.n_rec, frame.r, frame.D, frame.loss


def unified_grid(noise=0.0, seed=0, **changes) -> tuple:
    """540 points: 6 mu_rec x 5 token counts x 18 test-time loops (001)."""
    truth = dict(E=2.4, X=5000.0, x=0.5, Y=6386.0, y=0.448, Z=1.2, z=3.0, gamma=1.18) | changes
    points = itertools.product((2, 4, 6, 8, 10, 12), 1e9 * 2.0 ** np.arange(5), range(1, 19))
    mu, D, T = np.array([*points], dtype=float).T
    inputs = 1e8 * mu**0.6, D, mu, T
    loss = laws.unified().loss(truth, *inputs) * np.exp(np.random.default_rng(seed).normal(0, noise, len(T)))
    return (*inputs, loss), truth


def line(n=30, noise=0.01, seed=0) -> tuple:
    """T [n], losses of 3 T^-0.4 with noise in logs, and the design matrix of (log Z, z)."""
    T = np.geomspace(1, 40, n)
    loss = 3 * T**-0.4 * np.exp(np.random.default_rng(seed).normal(0, noise, n))
    return T, loss, np.stack([np.ones(n), -np.log(T)], axis=1)


def huber(residuals, delta=1e-3):
    r = np.abs(residuals)
    return np.where(r <= delta, r * r / 2, delta * (r - delta / 2)).sum(-1)


def by_scipy(law, arrays, restarts, seed=0, truth=None) -> float:
    """The best of many tight L-BFGS-B runs from uniform starts in the law's box, on the plain objective.

    About one start in twenty ends near the optimum, and which one does depends on the processor's rounding.
    `truth` gives the parameters that made the points: five more starts around it, from which every machine comes near.
    """
    *inputs, loss = (np.asarray(a, dtype=float) for a in arrays)
    k = len(law.amplitudes)
    box = [*law.amplitudes.values(), *law.shapes.values()]

    def value(theta):
        """And its slopes by the differences that scipy takes by itself, all in one array."""
        moved = theta + np.vstack([np.zeros(len(theta)), 1e-8 * np.eye(len(theta))])
        p = dict(zip(law.shapes, moved.T[k:, :, None], strict=True))
        terms = [g + a for g, a in zip(law.log_terms(p, *inputs), moved.T[:k, :, None], strict=True)]
        values = 1e4 * huber(functools.reduce(np.logaddexp, terms) - np.log(loss))
        return values[0], (values[1:] - values[0]) / 1e-8

    random, best = np.random.default_rng(seed), np.inf
    starts = [[random.uniform(*bounds) for bounds in box] for _ in range(restarts)]
    if truth:
        known = [*(np.log(truth[name]) for name in law.amplitudes), *(truth[name] for name in law.shapes)]
        starts.extend(known * random.normal(1, 0.01, (5, len(known))))
    options = dict(maxiter=10_000, maxfun=100_000, ftol=1e-15, gtol=1e-10)
    for start in starts:
        end = scipy.optimize.minimize(value, start, jac=True, method="L-BFGS-B", bounds=box, options=options)
        best = min(best, end.fun / 1e4)
    return best
