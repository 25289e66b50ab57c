"""Compute-optimal models: read off iso-FLOP curves, and by a law (000, Eq. 3 or 5) for a family of widths."""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.optimize
import scipy.special
from numpy.typing import ArrayLike

from lib.base.errors import InputError
from lib.config import ModelConfig
from lib.fit.fits import Fit, isoflop_optimum, power_law
from lib.fit.laws import ANY_SIGN, LEVEL, NOT_NEGATIVE, PHI, POSITIVE, columns, floats, number, points
from lib.flops import count


class Minimum(NamedTuple):
    """Of a parabola of the loss in log x: where, the loss there, the standard error of x, and whether it lies between
    the x that were tried. nan and outside where the parabola has none."""

    x: float
    loss: float
    stderr: float
    inside: bool


def minimum(x: ArrayLike, loss: ArrayLike) -> Minimum:
    """``fits.isoflop_optimum`` for curves that need not have one, or losses that are not all known."""
    x, loss = floats({"x": x, "loss": loss}).values()
    try:
        best, at_best, stderr = isoflop_optimum(x, loss)
    except InputError:
        return Minimum(np.nan, np.nan, np.nan, False)
    return Minimum(best, at_best, stderr, bool(np.min(x) <= best <= np.max(x)))


def optima(runs: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """One row for each combination of the columns ``by``, one of which is ``budget``: the minimum of the parabola of
    the loss in log N over all its runs (000, Fig. 2; 004, Fig. 1): N, its standard error, the loss there, its width
    and D = C / F(N); ``inside`` where it lies between the sizes trained (nan without minimum).

    runs: columns N parameters, width, F training FLOPs per token and loss in nats besides."""
    # many resamples are read so, and of each cell a data frame would take most of the time
    table = np.stack([*points(columns(runs, ["N", "width", "F"])), *floats(columns(runs, ["loss"])).values()])
    number = runs.groupby([*columns(runs, by).values()], sort=False, dropna=False).ngroup().to_numpy()
    rows = []
    for i, labels in enumerate(runs[by].drop_duplicates().to_dict("records")):
        cell = table[:, number == i]
        sizes, widths, flops, losses = cell[:, np.argsort(cell[0], kind="stable")]
        N, loss, stderr, inside = minimum(sizes, losses)
        width, F = (np.exp(np.interp(np.log(N), np.log(sizes), np.log(of))) for of in (widths, flops))
        rows.append(
            {
                **labels,
                "N": N,
                "stderr": stderr,
                "loss": loss,
                "width": width,
                "D": labels["budget"] / F,
                "inside": inside,
            }
        )
    return pd.DataFrame(rows)


def parabolas(runs: pd.DataFrame, by: list[str], column: str = "loss") -> tuple[np.ndarray, int]:
    """What the parabola in log N through each cell, the runs alike in the columns ``by``, says of its runs [n]; and how
    many coefficients all parabolas have: as many as a cell has sizes where these are fewer than three."""
    fitted, coefficients = np.empty(len(runs)), 0
    N, y = points(columns(runs, ["N", column]), {column: ANY_SIGN})
    x = np.log(N)
    for rows in runs.groupby([*columns(runs, by).values()], dropna=False).indices.values():
        degree = min(2, len(np.unique(x[rows])) - 1)
        fitted[rows] = np.polynomial.Polynomial.fit(x[rows], y[rows], degree)(x[rows])
        coefficients += degree + 1
    return fitted, coefficients


def exponent(optima: pd.DataFrame, column: str, of: str = "budget") -> tuple[float, tuple[float, float]]:
    """The exponent of a power law of ``column`` in ``of`` over the optima inside, and its 95 % interval (Student's t
    over the line's residuals); no interval below three of them."""
    inside = optima[columns(optima, ["inside", of, column])["inside"].eq(True)]
    if len(inside) < 2:
        return np.nan, (-np.inf, np.inf)
    _, slope, stderr = power_law(*points(columns(inside, [of, column])))
    half = float(scipy.special.stdtrit(len(inside) - 2, 0.975)) * stderr if len(inside) > 2 else np.inf
    return slope, (slope - half, slope + half)


# ---- by a law --------------------------------------------------------------------------------------------------------


def sizes(configs: list[ModelConfig], seq_len: int | None = None) -> pd.DataFrame:
    """One row a model of a family that differs in its width: width, n_once, n_rec, and training FLOPs per token, as 000
    counts them (``flops``)."""
    each = [(cfg.width, count(cfg, seq_len)) for cfg in sorted(configs, key=lambda cfg: cfg.width)]
    rows = [(width, counts.n_once, counts.n_rec, counts.published["000"]) for width, counts in each]
    return pd.DataFrame(rows, columns=["width", "n_once", "n_rec", "flops"])


def at_width(table: pd.DataFrame, width: float) -> tuple[float, float, float]:
    """n_once, n_rec and FLOPs per token of a family at a width; between the table's widths they are power laws."""
    return _interpolated(_logs(table), np.log(width))


def _logs(table: pd.DataFrame) -> np.ndarray:
    """log width, n_once, n_rec and FLOPs per token [4, widths], from narrow to wide."""
    found = np.log(points(columns(table, ["width", "n_once", "n_rec", "flops"])))
    return found[:, np.argsort(found[0])]


def _interpolated(logs: np.ndarray, log_width: float) -> tuple[float, float, float]:
    n_once, n_rec, flops = (math.exp(np.interp(log_width, logs[0], column)) for column in logs[1:])
    return n_once, n_rec, flops


def compute_optimal(fit: Fit, table: pd.DataFrame, r: int, budget: float) -> dict[str, Any]:
    """The width of a family (``sizes``) whose loss is least when ``budget`` FLOPs are spent on it: width, n_once,
    n_rec, N = n_once + n_rec, D = C / F(N) tokens, loss, and at_edge where it is the narrowest or widest of the table.

    minimise L(N, C / F(N)) over N (000, Sec. 4.2). fit: of the joint law, or of one in N and D for this r alone.
    """
    budget = number("budget", budget, POSITIVE)
    if len(table) < 2:
        raise InputError("table: a family needs at least two widths")
    logs = _logs(table)
    narrowest, widest = logs[0].min(), logs[0].max()

    def loss(log_width: float) -> float:
        n_once, n_rec, flops = _interpolated(logs, log_width)
        D = budget / flops
        return float(fit.predict(n_once, n_rec, r, D) if "r" in fit.law.inputs else fit.predict(n_once + n_rec, D))

    found = scipy.optimize.minimize_scalar(loss, bounds=(narrowest, widest), method="bounded", options={"xatol": 1e-9})
    if not max(loss(narrowest), loss(widest)) > found.fun * (1 + LEVEL):
        raise InputError("fit: its loss is the same at every width, none is optimal; fit runs of more sizes")
    n_once, n_rec, flops = _interpolated(logs, found.x)
    return {
        "width": float(np.exp(found.x)),
        "n_once": n_once,
        "n_rec": n_rec,
        "N": n_once + n_rec,
        "D": budget / flops,
        "loss": float(found.fun),
        "at_edge": bool(min(found.x - narrowest, widest - found.x) < 1e-4),
    }


def effective_parameters(n_once: ArrayLike, n_rec: ArrayLike, r: ArrayLike, phi: float) -> np.ndarray:
    """N_eff = N_once + r^phi N_rec: the plain model that a looped one is worth (000, App. F.4: at phi .46 a looped 410M
    at the cost of 1B is worth 580M)."""
    once, rec, loops, power = points(
        {"n_once": n_once, "n_rec": n_rec, "r": r, "phi": phi},
        {"n_once": NOT_NEGATIVE, "n_rec": NOT_NEGATIVE, "phi": PHI},
    )
    return once + loops**power * rec


def with_phi(fit: Fit, phi: float) -> Fit:
    """The same law with another phi, all else kept."""
    return dataclasses.replace(
        fit, theta=np.where(np.array(fit.law.names) == "phi", number("phi", phi, PHI), fit.theta)
    )
