"""The panels of the league: what every intervention does to the loss, and to the price of looping."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from lib.figures import style

#: those that are an architecture of other figures too; all others are variants of the iso-depth model
ARCHITECTURES = {
    "hyper-connections": "hyper-connections",
    "truncated": "truncated",
    "Parcae": "parcae",
    "MoE": "looped-moe",
}
ABOVE = 0.18  # of a row: the seeds' dots stand so much above its middle, their interval below it


def colour(name: str) -> str:
    """Of an intervention."""
    return style.COLOURS[ARCHITECTURES.get(name, "isodepth")]


def far_out(means: pd.Series, low: pd.Series, high: pd.Series) -> pd.Series:
    """Which means lie so far out that the others could not be told apart beside them: beyond Tukey's outer fences, and
    beyond the intervals of all others."""
    first, last = means.quantile([0.25, 0.75])
    far = (means < first - 3 * (last - first)) | (means > last + 3 * (last - first))
    finite = np.isfinite(low) & np.isfinite(high) & ~far
    return far & ~means.between(low[finite].min(), high[finite].max())


def differences(axis: Axes, standings: pd.DataFrame, gains: pd.DataFrame, column: str) -> None:
    """One row an intervention: a dot a seed, and below them the 95 % interval of their mean; of what lies far out the
    value of its mean at the edge of the panel, with an arrow. standings: mean, low and high of ``column`` by
    intervention; gains: its number in each seed."""
    mean, low, high = (standings[f"{column}{end}"] for end in ("", "_low", "_high"))
    far, rows = far_out(mean, low, high), pd.Series(range(len(standings)), standings.index)
    for name in standings.index[~far]:
        y = rows[name] + ABOVE
        if np.isfinite([low[name], high[name]]).all():
            axis.plot([low[name], high[name]], [y, y], color="#999999", lw=2, solid_capstyle="butt", zorder=2.5)
        axis.plot(mean[name], y, "|", color="black", ms=6, zorder=3)
    for name, of in gains[~gains["intervention"].map(far)].groupby("intervention"):
        axis.plot(of[column], np.full(len(of), rows[name] - ABOVE), "o", ms=3, color=colour(str(name)))
    for name in standings.index[far]:
        words, x, side = f"$\\leftarrow$ {mean[name]:+.2f}", 0.01, "left"
        if mean[name] > 0:
            words, x, side = f"{mean[name]:+.2f} $\\rightarrow$", 0.99, "right"
        across = axis.get_yaxis_transform()
        axis.annotate(words, (x, rows[name]), xycoords=across, fontsize=6, ha=side, va="center")
