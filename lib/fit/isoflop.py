"""Compute-optimal models read off iso-FLOP curves, and how they scale with the budget."""

from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.special
from numpy.typing import ArrayLike

from lib.base.errors import InputError
from lib.fit.fits import isoflop_optimum, power_law


class Minimum(NamedTuple):
    """Of a parabola of the loss in log x: where, the loss there, the standard error of x, and whether it lies between
    the x that were tried. nan and outside where the parabola has none."""

    x: float
    loss: float
    stderr: float
    inside: bool


def minimum(x: ArrayLike, loss: ArrayLike) -> Minimum:
    """``fits.isoflop_optimum`` for curves that need not have one."""
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
    columns = runs[["N", "loss", "width", "F"]].to_numpy(float).T
    number = runs.groupby(by, sort=False).ngroup().to_numpy()
    rows = []
    for i, labels in enumerate(runs[by].drop_duplicates().to_dict("records")):
        cell = columns[:, number == i]
        sizes, losses, widths, flops = cell[:, np.argsort(cell[0], kind="stable")]
        N, loss, stderr, inside = minimum(sizes, losses)
        width, F = (np.exp(np.interp(np.log(N), np.log(sizes), np.log(of))) for of in (widths, flops))
        found = {"N": N, "stderr": stderr, "loss": loss, "width": width, "D": labels["budget"] / F, "inside": inside}
        rows.append(labels | found)
    return pd.DataFrame(rows)


def parabolas(runs: pd.DataFrame, by: list[str], column: str = "loss") -> tuple[np.ndarray, int]:
    """What the parabola in log N through each cell, the runs alike in the columns ``by``, says of its runs [n]; and how
    many coefficients all parabolas have: as many as a cell has runs where these are fewer than three."""
    fitted, coefficients = np.empty(len(runs)), 0
    x, y = np.log(runs["N"].to_numpy(float)), runs[column].to_numpy(float)
    for rows in runs.groupby(by).indices.values():
        degree = min(2, len(rows) - 1)
        fitted[rows] = np.polynomial.Polynomial.fit(x[rows], y[rows], degree)(x[rows])
        coefficients += degree + 1
    return fitted, coefficients


def exponent(optima: pd.DataFrame, column: str, of: str = "budget") -> tuple[float, tuple[float, float]]:
    """The exponent of a power law of ``column`` in ``of`` over the optima inside, and its 95 % interval (Student's t
    over the line's residuals); no interval below three of them."""
    inside = optima[optima["inside"]]
    if len(inside) < 2:
        return np.nan, (-np.inf, np.inf)
    _, slope, stderr = power_law(inside[of], inside[column])
    if len(inside) < 3:
        return slope, (-np.inf, np.inf)
    half = float(scipy.special.stdtrit(len(inside) - 2, 0.975)) * stderr
    return slope, (slope - half, slope + half)
