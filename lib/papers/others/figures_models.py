"""The figures of a published model: loop by loop, layer by layer, exit by exit, and its tasks."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lib.base.statistics import wilson_interval
from lib.figures.style import COLOURS, PAGE, few_decades, shades

COLOUR = COLOURS["looped"]
#: criterion -> how its line is drawn
CRITERIA = {
    "entropy": ("-", "o"),
    "kl": ("--", "s"),
    "l2": (":", "^"),
    "acceleration": ("-.", "v"),
    "gate": ((0, (5, 1, 1, 1)), "D"),
}


def loops(table: pd.DataFrame, mean_loops: int) -> Figure:
    """``models.by_loops`` in four panels; the dotted line stands at the loops of training."""
    figure, axes = plt.subplots(1, 4, figsize=(PAGE, 2.0))
    panels = {
        "loss": "loss (nats per token)",
        "norm": "$|h_T|$",
        "move": "$|h_T - h_{T-1}|\\,/\\,|h_T|$",
        "agree": f"share of tokens predicted\nas after {mean_loops} loops",
    }
    for axis, (column, label) in zip(axes, panels.items(), strict=True):
        axis.plot(table.index, table[column], "o-", color=COLOUR, ms=3.5)
        _of_loops(axis, table.index, mean_loops)
        axis.set_ylabel(label)
    few_decades(axes[2])
    axes[2].margins(y=0.15)
    axes[3].set_ylim(top=1.04)
    return figure


def _of_loops(axis: Axes, depths: pd.Index, mean_loops: int) -> None:
    axis.set_xscale("log", base=2)
    ticks = [T for T in 2 ** np.arange(12) if depths.min() <= T <= depths.max()]
    axis.set_xticks(ticks, [str(T) for T in ticks])
    axis.set_xlabel("loops T")
    axis.axvline(mean_loops, color="#666666", lw=0.8, ls=":")


def layers(table: pd.DataFrame) -> Figure:
    """``models.by_layer``: the stream's norm along the whole depth, and how near each layer of the loop is to what it
    makes of the stream in the last loop."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE, 2.3), width_ratios=(1.5, 1))
    looped = table["loop"] > 0
    left.plot(range(1, len(table) + 1), table["norm"], "-", color="#999999", lw=0.8)
    if not looped.all():
        left.plot(table.index[~looped] + 1, table["norm"][~looped], "s", color="#6B6B6B", ms=3.5, label="runs once")
    if looped.any():
        left.plot(table.index[looped] + 1, table["norm"][looped], "o", color=COLOUR, ms=3, label="in the loop")
    for first in table.index[looped & (table["layer"] == table["layer"][looped].min())]:
        left.axvline(first + 0.5, color="#666666", lw=0.6, ls="--")
    left.set_xlabel("layers computed")
    left.set_ylabel("norm of the stream")
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    left.legend()
    if not looped.any():  # nothing settles
        right.axis("off")
        return figure
    of_loop = table[looped].pivot(index="loop", columns="layer", values="settled")
    for colour, layer in zip(shades("looped", of_loop.shape[1]), of_loop, strict=True):
        right.plot(of_loop.index, of_loop[layer], "o-", color=colour, ms=3, label=f"layer {int(str(layer)) + 1}")
    if 1 < of_loop.shape[1] <= 8:
        right.legend()
    right.set_xlabel("loop")
    right.set_ylabel("cosine with the last loop's")
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def exits(table: pd.DataFrame) -> Figure:
    """``models.leaving``: perplexity against the share of the depth that is saved. A line ends where no threshold saves
    more."""
    figure, axis = plt.subplots(figsize=(PAGE / 2, 2.4))
    for criterion, colour in zip(table, shades("looped", table.shape[1] + 1)[1:], strict=True):
        style, marker = CRITERIA[str(criterion)]
        axis.plot(
            100 * table.index,
            table[criterion],
            ls=style,
            marker=marker,
            color=colour,
            ms=4.5,
            mfc="none",  # at no share saved all are one
            label=criterion,
        )
    axis.set_xlabel("depth saved (%)")
    axis.set_ylabel("perplexity")
    axis.legend()
    return figure


def speed(table: pd.DataFrame, rounds: int) -> Figure:
    """``models.speed_up``: the share of the time saved against that of the FLOPs; on the dotted line they are alike.
    Bars span the rounds."""
    figure, axis = plt.subplots(figsize=(PAGE / 2, 2.4))
    criteria = list(dict.fromkeys(table["criterion"]))
    for criterion, colour in zip(criteria, shades("looped", len(criteria) + 1)[1:], strict=True):
        own = table[table["criterion"] == criterion]
        marker = CRITERIA[criterion][1]
        axis.plot(100 * own["FLOPs"], 100 * own["time"], marker, color=colour, mfc="none", ms=4.5, label=criterion)
        axis.vlines(100 * own["FLOPs"], 100 * own["time low"], 100 * own["time high"], color=colour, lw=0.9)
    ends = [100 * min(table["FLOPs"].min(), 0), 100 * max(table["FLOPs"].max(), 0.05)]
    axis.plot(ends, ends, ":", color="#666666", lw=0.8)
    axis.set_xlabel("FLOPs saved (%)")
    axis.set_ylabel("time saved (%)")
    axis.set_title("one round of timing" if rounds == 1 else f"{rounds} rounds of timing, bars span them")
    axis.legend()
    return figure


def tasks(table: pd.DataFrame, mean_loops: int) -> Figure:
    """``models.answers``: accuracy against the loops, a panel a task; bars are Wilson's 95 % intervals over questions,
    the grey line is chance, the dotted one stands at the loops of training."""
    names = list(dict.fromkeys(table["task"]))
    figure, axes = plt.subplots(1, len(names), figsize=(PAGE, 2.0), squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        own = table[table["task"] == name].set_index("T")
        low, high = wilson_interval(own["accuracy"], own["n"])
        axis.plot(own.index, 100 * own["accuracy"], "o-", color=COLOUR, ms=3.5)
        axis.vlines(own.index, 100 * low, 100 * high, color=COLOUR, lw=1.1)
        axis.axhline(100 * own["chance"].iloc[0], color="#999999", lw=0.8)
        _of_loops(axis, own.index, mean_loops)
        axis.set_ylim(-3, max(10.0, 100 * high.max()) + 3)
        axis.set_title(f"{name}, {own['n'].iloc[0]} questions")
    axes[0][0].set_ylabel("right answers (%)")
    return figure
