"""The figure of the league: what every intervention does to the loss, to the price of looping, and to phi."""

import textwrap
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.figures import style
from lib.papers.league.designs import BASELINE

#: those that are an architecture of other figures too; all others are variants of the iso-depth model
ARCHITECTURES = {
    "hyper-connections": "hyper-connections",
    "truncated": "truncated",
    "Parcae": "parcae",
    "MoE": "looped-moe",
}

ABOVE = 0.18  # of a row: the seeds' dots stand so much above its middle, their interval below it


def league(standings: pd.DataFrame, gains: pd.DataFrame, shifts: pd.DataFrame, r: int) -> Figure:
    """Three panels, one row an intervention, the lowest loss on top. Loss and price: a dot a seed, and below them the
    95 % interval of their mean, or the mean's value alone where it lies far from the others. phi's shift: the refit and
    its bootstrap interval, or why there is none, also where that of its own phi is not within (0, 1)."""
    figure, axes = plt.subplots(1, 3, figsize=(style.PAGE, 1.05 + 0.24 * len(standings)), sharey=True)
    rows: dict[Any, int] = {name: y for y, name in enumerate(standings.index)}
    for axis, column, of in zip(axes, ("loss", "price"), ("the baseline's", "its own plain model's"), strict=False):
        _differences(axis, standings, gains, column, rows)
        axis.axvline(0, color="#666666", lw=0.8)
        axis.set_xlabel(f"loss at r = {r} less\n{of}\n(nats per token)")
    band = standings.loc[BASELINE, ["price_low", "price_high"]].astype(float)
    if np.isfinite(band).all():
        axes[1].axvspan(*band, color="#e6e6e6", zorder=0)
    axes[2].set_xlabel("shift of $\\varphi$")
    _phi(axes[2], shifts, rows)
    names = standings.index + " (" + standings["paper"] + np.where(standings.index == BASELINE, "), baseline", ")")
    lost = standings["diverged"].map(lambda n: f", {n} diverged" if n else "")
    axes[0].set_yticks(range(len(rows)), names + lost)
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    return figure


def _colour(name: Any) -> dict[str, Any]:
    return {"color": style.COLOURS[ARCHITECTURES.get(name, "isodepth")]}


def far_out(means: pd.Series, low: pd.Series, high: pd.Series) -> pd.Series:
    """Which means lie so far out that the others could not be told apart beside them: beyond Tukey's outer fences, and
    beyond the intervals of all others."""
    first, last = means.quantile([0.25, 0.75])
    far = (means < first - 3 * (last - first)) | (means > last + 3 * (last - first))
    finite = np.isfinite(low) & np.isfinite(high) & ~far
    return far & ~means.between(low[finite].min(), high[finite].max())


def _differences(axis: Axes, standings: pd.DataFrame, gains: pd.DataFrame, column: str, rows: dict[Any, int]) -> None:
    """Seeds and intervals; of what lies far out the value of its mean at the edge of the panel, with an arrow."""
    mean, low, high = (standings[f"{column}{end}"] for end in ("", "_low", "_high"))
    far = far_out(mean, low, high)
    for name in standings.index[~far]:
        y = rows[name] + ABOVE
        if np.isfinite([low[name], high[name]]).all():
            axis.plot([low[name], high[name]], [y, y], color="#999999", lw=2, solid_capstyle="butt", zorder=2.5)
        axis.plot(mean[name], y, "|", color="black", ms=6, zorder=3)
    for name, of in gains[~gains["intervention"].map(far)].groupby("intervention"):
        axis.plot(of[column], np.full(len(of), rows[name] - ABOVE), "o", ms=3, **_colour(name))
    for name in standings.index[far]:
        words, x, side = f"$\\leftarrow$ {mean[name]:+.2f}", 0.01, "left"
        if mean[name] > 0:
            words, x, side = f"{mean[name]:+.2f} $\\rightarrow$", 0.99, "right"
        across = axis.get_yaxis_transform()
        axis.annotate(words, (x, rows[name]), xycoords=across, fontsize=6, ha=side, va="center")


def _phi(axis: Axes, shifts: pd.DataFrame, rows: dict[Any, int]) -> None:
    if shifts.empty:
        words = textwrap.fill(f"not resolved by this grid: {shifts.attrs['why']}", 22)
        axis.text(0.5, 0.5, words, ha="center", va="center", transform=axis.transAxes, fontsize=7)
        axis.set_xticks([])
        return
    axis.axvline(0, color="#666666", lw=0.8)
    for name, shift in shifts.drop(BASELINE).iterrows():
        if not 0 < shift["low"] <= shift["high"] < 1:
            at, coordinates = (0.99, rows[name]), ("axes fraction", "data")
            axis.annotate("not resolved", at, xycoords=coordinates, fontsize=6, ha="right", va="center")
            continue
        axis.plot(shift[["delta_low", "delta_high"]], [rows[name]] * 2, lw=1.5, **_colour(name))
        axis.plot(shift["delta"], rows[name], "D", ms=3.5, **_colour(name))
