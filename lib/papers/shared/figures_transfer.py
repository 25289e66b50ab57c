"""Figures of learning-rate transfer: loss against the base rate, condition by condition."""

import itertools
from collections.abc import Iterable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.typing import ColorType

from lib.figures.style import panels_beside, rate, row_of_panels, shades

LINES = "osD^PXph"  # markers of conditions
APART = 0.04  # of an axis, from one line's best rates to the next one's


def loss_curves(
    runs: pd.DataFrame,
    best: pd.DataFrame,
    panel: str,
    condition: str,
    look: dict[str, str],
    x: str = "base learning rate",
) -> Figure:
    """002, Fig. 5: loss against base rate, the mean of the seeds. Each value of the column ``panel`` has a panel, in
    the colour that ``look`` has for it; each value of ``condition`` has a shade and a marker. The triangle below is the
    parabola's minimum, from ``best_rates``. Of losses so far above the others that the minima could not be seen, the
    value stands at the panel's top."""
    means = runs.groupby([panel, condition, "lr"])["loss"].mean()
    first, last = np.quantile(means, [0.25, 0.75])
    most = last + 3 * (last - first)  # Tukey's outer fence, beyond which a loss is far out
    titles, lines = list(dict.fromkeys(runs[panel])), list(dict.fromkeys(runs[condition]))
    below = x if len(titles) < 5 else x.replace(" ", "\n", 1)
    figure, axes = row_of_panels(titles, 2.6, below, "validation loss (nats per token)", sharey=True)
    for axis, title in zip(axes, titles, strict=True):
        cell, optima = runs[runs[panel] == title], best[(best[panel] == title) & best["inside"]]
        for i, (line, colour, marker) in enumerate(
            zip(lines, shades(look[title], len(lines)), itertools.cycle(LINES), strict=False)
        ):
            losses = cell[cell[condition] == line].groupby("lr")["loss"].mean()
            axis.plot(losses.index, losses, marker + "-", color=colour, ms=3.5)
            for lr, loss in losses[losses > most].items():
                at, coordinates = (lr, 1), ("data", "axes fraction")
                over = dict(fc="white", ec="none", pad=0.5)  # the line
                words = f"{loss:.2f} $\\uparrow$"
                axis.annotate(words, at, xycoords=coordinates, bbox=over, ha="right", va="top", fontsize=6)
            minima(axis, optima[optima[condition] == line], colour, i)
        rate_axis(axis, cell["lr"])
    if means.max() > most:
        axes[0].set_ylim(top=most)
    room_below(axes[0], len(lines))
    # of one colour for all panels, or grey
    colours = shades(look[titles[0]] if len(set(look.values())) == 1 else "looped-nanochat", len(lines))
    figure.legend(
        handles=[
            Line2D([], [], marker=marker, ms=3.5, color=colour, label=line)
            for line, colour, marker in zip(lines, colours, itertools.cycle(LINES), strict=False)
        ],
        loc="outside upper center",
        ncols=len(lines),
    )
    return figure


def minima(axis: Axes, found: pd.DataFrame, colour: ColorType, i: int) -> None:
    """Triangles at the best rates of the i-th line, below the data and each line's at a height of its own."""
    y, across = 0.03 + APART * i, axis.get_xaxis_transform()
    axis.plot(found["lr"], [y] * len(found), "v", color=colour, ms=4, mec="white", mew=0.3, transform=across)


def room_below(axis: Axes, lines: int) -> None:
    """For the triangles of so many lines."""
    low, high = axis.get_ylim()
    share = APART * lines  # of the axis, for the triangles
    axis.set_ylim(low - share / (1 - share) * (high - low), high)


def rate_axis(axis: Axes, rates: Iterable[float]) -> None:
    """A log x axis of learning rates, with a tick at each."""
    axis.set_xscale("log", base=2)
    ticks = sorted(set(rates))
    every = 1 if len(ticks) < 7 and len(ticks) * panels_beside(axis) < 30 else 2  # there is room for so many names
    axis.set_xticks(ticks, ["" if i % every else rate(lr) for i, lr in enumerate(ticks)], rotation=45)
    axis.minorticks_off()
