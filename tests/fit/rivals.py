"""Other people's ways to fit Chinchilla's law, written anew, so that ours is held against what is in use.

Each takes N, D and losses [n] and returns theta = (log A, log B, log E, alpha, beta). All minimise our objective, the
sum of Huber(1e-3) of log L_fit - log L, so that they can be compared.
"""

import itertools

import numpy as np
import scipy.optimize

from lib.papers.isodepth import published
from tests.fit.known import huber

DELTA = 1e-3

#: of L-BFGS-B, with an objective that is scaled so that scipy's absolute tolerance on slopes is a tight one as well
SCALE, TIGHT = 1e4, dict(maxiter=10_000, maxfun=100_000, ftol=1e-15, gtol=1e-10)

#: log A, log B, log E, alpha, beta that Hoffmann et al. start from (arXiv 2203.15556, App. D.2), and the middle of them
STARTS = [*itertools.product(range(0, 30, 5), range(0, 30, 5), (-1, -0.5, 0, 0.5, 1), *2 * [(0, 0.5, 1, 1.5, 2)])]
MIDDLE = np.mean(STARTS, 0)


def published_runs(r: int) -> tuple:
    """N, D and losses of the 29 runs of the baseline of 000 at this r."""
    table = published.sets(published.runs())["all"]
    return tuple(table.loc[table["r"] == r, name].to_numpy(float) for name in ("N", "D", "loss"))


def misfit(theta, N, D, loss) -> float:
    """The objective."""
    a, b, e, alpha, beta = theta
    predicted = np.logaddexp(np.logaddexp(a - alpha * np.log(N), b - beta * np.log(D)), e)
    return float(huber(predicted - np.log(loss), DELTA))


# ---- variable projection: the exponents are sought, the amplitudes solved for (vpnls, arXiv 2603.22339) --------------


def terms(alpha, beta, N, D):
    """N^-alpha, D^-beta, 1 [..., n, 3] of exponents that are numbers or columns [..., 1]."""
    return np.stack(np.broadcast_arrays(N**-alpha, D**-beta, 1.0), -1)


def projected(x, loss, passes=10):
    """Amplitudes [..., 3] of terms [..., n, 3], and log residuals [..., n]: least squares of relative residuals, then
    as many passes of reweighted least squares as vpnls takes. (It has Huber's loss of the residuals in nats.)"""
    fitted = loss
    with np.errstate(divide="ignore", invalid="ignore"):  # a cell may pass through losses below zero
        for _ in range(1 + passes):
            residuals = np.log(fitted / loss)
            slopes = x / fitted[..., None]
            weighted = (np.minimum(1, DELTA / np.abs(residuals))[..., None] * slopes).swapaxes(-1, -2)
            amplitudes = np.linalg.solve(weighted @ slopes, weighted @ (1 - residuals)[..., None])
            fitted = (x @ amplitudes)[..., 0]
        return amplitudes[..., 0], np.log(fitted / loss)


def grid(N, D, loss, step):
    """The best of all pairs of exponents from .01 to .99. A pair that would subtract a term is left out."""
    exponents = np.arange(0.01, 0.99 + step / 2, step)
    least, best = np.inf, None
    for alpha in exponents:
        amplitudes, residuals = projected(terms(alpha, exponents[:, None], N, D), loss)
        values = np.where((amplitudes > 0).all(-1), huber(residuals, DELTA), np.inf)
        i = np.argmin(values)
        if values[i] < least:
            least, best = values[i], [*np.log(amplitudes[i]), alpha, exponents[i]]
    return np.array(best)


def refined(N, D, loss, passes=10):
    """The best pair of a grid of .01, and L-BFGS-B over the exponents from there. At solved amplitudes their slopes
    are those of the objective (the envelope theorem)."""

    def value(exponents):
        x = terms(*exponents, N, D)
        amplitudes, residuals = projected(x, loss, passes)
        shares = x * amplitudes / (x @ amplitudes)[:, None]
        slopes = np.clip(residuals, -DELTA, DELTA) @ (-shares[:, :2] * np.log([N, D]).T)
        return SCALE * huber(residuals, DELTA), SCALE * slopes

    start = grid(N, D, loss, 0.01)[3:]
    box = [(0.01, 0.99)] * 2
    end = scipy.optimize.minimize(value, start, jac=True, method="L-BFGS-B", bounds=box, options=TIGHT).x
    return np.array([*np.log(projected(terms(*end, N, D), loss, passes)[0]), *end])


# ---- all five at once ------------------------------------------------------------------------------------------------


def lbfgs(N, D, loss, starts, scale=1.0, **tolerances):
    """The best end of scipy's L-BFGS-B from these starts, on the log-sum-exp of the terms and with exact slopes, at
    scipy's own tolerances where no others are given."""

    def value(theta):
        a, b, e, alpha, beta = theta
        logs = np.stack(np.broadcast_arrays(a - alpha * np.log(N), b - beta * np.log(D), e))  # [3, n]
        predicted = logs.max(0) + np.log(np.exp(logs - logs.max(0)).sum(0))
        residuals = predicted - np.log(loss)
        by_term = np.exp(logs - predicted) * np.clip(residuals, -DELTA, DELTA)
        slopes = [*by_term.sum(1), -by_term[0] @ np.log(N), -by_term[1] @ np.log(D)]
        return scale * huber(residuals, DELTA), scale * np.array(slopes)

    ends = [scipy.optimize.minimize(value, s, jac=True, method="L-BFGS-B", options=tolerances) for s in starts]
    return min(ends, key=lambda end: end.fun).x
