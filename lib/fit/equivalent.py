"""phi without a law of loops: how large a plain model each looped run is worth, and what that says of phi.

A surface log L = s(log N, log D) is fitted to the runs of r = 1 alone. At a looped run's D it has the run's loss at one
size, N_eff, where it falls with N:

    s(log N_eff, log D) = log L,    phi = log((N_eff - n_once) / n_rec) / log r

So phi may differ from run to run, where a joint law (000, Eq. 5) holds it to one number. Units: N, n_once, n_rec
parameters, D tokens, r loops, L nats per token.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from lib.base.errors import InputError
from lib.fit import fits, laws


class RunPhi(NamedTuple):
    """phi of each run, as measured and then by each resample [1 + resamples, runs], nan where a run has none; how often
    each of these counts a run, 0 those of r = 1, of the same shape; and how many looped runs have no phi."""

    phi: np.ndarray
    weights: np.ndarray
    outside: int

    def told_by(self, design: pd.DataFrame) -> pd.DataFrame:
        """Coefficients of phi on the columns of a design [runs] by least squares: value, low and high, between
        which 95 % of the resamples lie that have the column, and n, of how many runs with a phi it is not 0. The mean's
        design is a column of ones, that of means by budget pd.get_dummies(budget), and a slope stands beside one of
        these."""
        x = design.to_numpy(float)
        if x.shape[0] != self.phi.shape[1]:
            raise InputError(f"design: has {x.shape[0]} rows, give one for each of {self.phi.shape[1]} runs")
        known = np.where(np.isnan(self.phi), 0, self.weights)
        root = np.sqrt(known)[..., None]
        found = (np.linalg.pinv(root * x) @ (root * np.nan_to_num(self.phi)[..., None]))[..., 0]
        found[known @ (x != 0) == 0] = np.nan
        low, high = pd.DataFrame(found[1:]).quantile([0.025, 0.975]).to_numpy()
        return pd.DataFrame({"value": found[0], "low": low, "high": high, "n": known[0] @ (x != 0)}, design.columns)


def run_phi(
    n_once: ArrayLike,
    n_rec: ArrayLike,
    r: ArrayLike,
    D: ArrayLike,
    loss: ArrayLike,
    cells: Any,
    surface: int | laws.Law = 2,
    law: laws.Law | None = None,
    n: int = 200,
    seed: int = 0,
) -> RunPhi:
    """phi of every looped run, through the surface of the runs of r = 1 among the same arrays [runs].

    It is nan where the surface has the loss at no size between half the least of r = 1 and twice the largest, or at one
    that is not above n_once. surface: the degree of a polynomial in log N and log D, fitted by least squares of log
    loss; or a law of N and D, ``laws.coupled(laws.CHINCHILLA, "free")`` say. cells: what is drawn together, as in
    ``fits.bootstrap``, budget and r say: the surface is fitted anew to each of n resamples that have runs of r = 1 from
    more cells than its degree (2 where it is a law), all others are drawn again.

    law: a joint law, ``laws.JOINT`` say, what it says of the runs, fitted to each resample anew, stands in the place of
    their losses. So one has the phi that it implies, through the same surface, whatever that cannot bend to; and
    ``a._replace(phi=a.phi - b.phi)`` of the same seed is what it misses. Raises InputError where r = 1 has too few
    cells, and where all runs have it."""
    laws.same_index({"loss": loss, "cells": cells})
    *inputs, measured = laws.points(
        {"n_once": n_once, "n_rec": n_rec, "r": r, "D": D, "loss": loss}, {"n_once": laws.NOT_NEGATIVE, "r": (1, 1e30)}
    )
    once, rec, loops, tokens = inputs
    N, looped, (number, _) = once + rec, loops > 1, fits.numbered(cells, measured.size)
    degree, objective = (surface, "squares") if isinstance(surface, int) else (2, "huber")
    if looped.all() or not looped.any() or len(np.unique(number[~looped])) <= degree:
        raise InputError(f"r: {np.sum(~looped)} of {looped.size} runs have r = 1, give looped ones, and of r = 1 more")
    draws = fits.resampled(laws.JOINT, [*inputs, measured], number, 9 * n, seed)  # of which most serve
    served = [counts for counts in draws if len(np.unique(number[~looped & (counts > 0)])) > degree]
    weights = np.array([np.ones(looped.size), *served[:n]])
    losses = np.broadcast_to(measured, weights.shape)
    if law is not None:
        losses = _losses(fits.refits(fits.fit(law, inputs, measured), losses, weights), *inputs)
    plain, at = [N[~looped], tokens[~looped]], losses[:, looped]
    first = fits.fit(
        _polynomial(surface, *plain) if isinstance(surface, int) else surface, plain, losses[0, ~looped], objective
    )
    surfaces = fits.refits(first, losses[:, ~looped], weights[:, ~looped])
    # the first of a grid of sizes at which the loss lies below the run's, and then the step before it in halves
    grid = np.linspace(np.log(plain[0].min() / 2), np.log(plain[0].max() * 2), 65)
    below = np.array([_losses(surfaces, np.exp(x), tokens[looped]) < at for x in grid]).argmax(0)
    x = grid[below - 1]
    for halved in (grid[1] - grid[0]) / 2.0 ** np.arange(1, 45):
        x += np.where(_losses(surfaces, np.exp(x + halved), tokens[looped]) < at, 0, halved)
    more = np.where(below > 0, np.exp(x) - once[looped], np.nan)
    phi = np.full(losses.shape, np.nan)
    phi[:, looped] = np.log(np.where(more > 0, more, np.nan) / rec[looped]) / np.log(loops[looped])
    return RunPhi(phi, weights * looped, int(np.isnan(phi[0, looped]).sum()))


def _polynomial(degree: int, N: np.ndarray, D: np.ndarray) -> laws.Law:
    """log L as a polynomial in log N and log D about the middle of these points, as a law of a single term."""
    orders = {f"{i} of N, {j} of D": (i, j) for i in range(degree + 1) for j in range(degree + 1 - i) if i + j}
    x, y = np.log(N).mean(), np.log(D).mean()
    return laws.Law(
        f"polynomial of degree {degree}",
        ("N", "D"),
        {"L": laws.FLOOR},
        dict.fromkeys(orders, laws.HELD),
        lambda p, N, D: [sum(p[name] * (np.log(N) - x) ** i * (np.log(D) - y) ** j for name, (i, j) in orders.items())],
        {name: np.zeros(1) for name in orders},
    )


def _losses(found: list[fits.Fit], *inputs: ArrayLike) -> np.ndarray:
    """Of one law's fits [sets] at inputs [n], or [sets, n]: nats [sets, n]."""
    shape = (len(found), np.shape(inputs[-1])[-1])
    params: dict[str, Any] = {
        name: np.repeat([own.params[name] for own in found], shape[1]) for name in found[0].params
    }
    return found[0].law.loss(params, *(np.broadcast_to(x, shape).ravel() for x in inputs)).reshape(shape)


def r2_of_gaps(fit: fits.Fit, cells: Any) -> float:
    """R2 of a joint law, not of losses, most of whose variance is that of sizes and tokens, but of gaps: the loss of a
    looped run less the mean of the plain ones of its cell. cells: labels as in ``fits.bootstrap``, the same for runs
    that differ in r alone: budget and width, say. A looped run without a plain one does not count."""
    r = laws.columns(dict(zip(fit.law.inputs, fit.inputs, strict=True)), ["r"])["r"]
    plain, (number, _) = np.where(r == 1, 1, np.nan), fits.numbered(cells, r.size)
    table = pd.DataFrame({"measured": fit.loss, "off": fit.off})
    gaps = (table - table.mul(plain, axis=0).groupby(number).transform("mean"))[np.isnan(plain)].dropna()
    return float(1 - (gaps["off"] ** 2).mean() / gaps["measured"].var(ddof=0)) if len(gaps) else np.nan
