"""Compute-optimal models read off iso-FLOP curves, and how they scale with the budget."""

from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.special
from numpy.typing import ArrayLike

from lib.base.errors import InputError
from lib.fit.arrays import ANY_SIGN, columns, floats, points
from lib.fit.fits import isoflop_optimum, power_law


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
    sized = points(columns(runs, ["N", "width", "F"]))
    table = np.stack([*sized, *floats(columns(runs, ["loss"])).values()])
    number = runs.groupby([*columns(runs, by).values()], sort=False, dropna=False).ngroup().to_numpy()
    rows = []
    for i, labels in enumerate(runs[by].drop_duplicates().to_dict("records")):
        cell = table[:, number == i]
        sizes, widths, flops, losses = cell[:, np.argsort(cell[0], kind="stable")]
        N, loss, stderr, inside = minimum(sizes, losses)
        width, F = (np.exp(np.interp(np.log(N), np.log(sizes), np.log(of))) for of in (widths, flops))
        D = labels["budget"] / F
        rows.append({**labels, "N": N, "stderr": stderr, "loss": loss, "width": width, "D": D, "inside": inside})
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
