"""The figures of Looped-MoE and early exit (004)."""

import math
from collections.abc import Iterable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator, PercentFormatter
from matplotlib.typing import ColorType

from lib.figures.style import (
    COLOURS,
    MARKERS,
    PAGE,
    count_axis,
    isoflop_curve,
    legend_above,
    rate,
    row_of_panels,
    shades,
)
from lib.fit.fits import power_law
from lib.model.routing import KINDS
from lib.papers.looped_moe.core_nine import NINE
from lib.papers.looped_moe.designs import LOOK, TITLES

KAPLAN = 0.076  # the exponent of L ~ N^-a that 004 compares with
PALE = 0.75  # opacity of the bars of chance


def isoflop_curves(runs: pd.DataFrame, optima: pd.DataFrame) -> Figure:
    """004, Fig. isoflops: loss against active parameters; a panel an architecture, a shade a budget with its parabola
    and star. Three stars or more have a line through them, and beside it, dashed, Kaplan's slope."""
    titles = {name: TITLES[name] for name in runs["architecture"].unique()}
    slopes: list[Line2D] = []
    budgets = sorted(runs["budget"].unique())
    figure, axes = row_of_panels(titles.values(), 2.6, ylabel="validation loss (nats per token)", sharey=True)
    for axis, name in zip(axes, titles, strict=True):
        own, stars = runs[runs["architecture"] == name], optima[(optima["architecture"] == name) & optima["inside"]]
        for budget, colour in zip(budgets, shades(LOOK[name], len(budgets)), strict=True):
            cell = own[own["budget"] == budget]
            best = stars[stars["budget"] == budget]
            isoflop_curve(axis, cell, best, colour, "o")  # a MoE's own marker is a star
        if len(stars) > 2:
            coef, slope, _ = power_law(stars["N"], stars["loss"])
            N = np.array([own["N"].min(), own["N"].max()])
            slopes = axis.plot(N, coef * N**slope, color="#444444", lw=0.9, label="through the stars")
            middle = np.exp(np.log(stars["N"]).mean()), np.exp(np.log(stars["loss"]).mean())
            kaplan = middle[1] * (N / middle[0]) ** -KAPLAN
            slopes += axis.plot(N, kaplan, "--", color="#999999", lw=0.9, label=f"slope {-KAPLAN}")
            axis.set_title(f"{TITLES[name]}\n$L \\sim N^{{{slope:.2f}}}$")
        count_axis(axis, "active parameters")
    span = runs["loss"].max() - runs["loss"].min()
    axes[0].set_ylim(runs["loss"].min() - 0.08 * span, runs["loss"].max() + 0.08 * span)
    handles = [
        Line2D([], [], color=colour, marker="o", ms=3.5, lw=0.9, label=f"{rate(budget)} FLOPs")
        for budget, colour in zip(budgets, shades("looped-nanochat", len(budgets)), strict=True)
    ]
    handles += slopes
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return figure


# ---- routing ---------------------------------------------------------------------------------------------------------


def overlaps(panels: dict[str, Any]) -> Figure:
    """004, Fig. "Expert assignment overlap": a panel a model, title -> table of ``routing.divergence`` averaged over
    seeds; a bar a layer and pair of loops, and beside it, narrow and pale, what chance gives at the same load."""
    sizes = [len(table) for table in panels.values()]
    figure, axes = plt.subplots(
        1, len(panels), figsize=(PAGE, 2.7), sharey=True, squeeze=False, width_ratios=[max(4, size) for size in sizes]
    )
    colours = dict(zip(KINDS, (COLOURS["looped-moe"], "#D9D9D9", "#6B6B6B"), strict=True))
    for axis, (title, table) in zip(axes[0], panels.items(), strict=True):
        x = np.arange(len(table))
        for suffix, offset, width, alpha in (("", -0.12, 0.5, 1.0), (" by chance", 0.28, 0.22, PALE)):
            bottom = np.zeros(len(table))
            for kind, colour in colours.items():
                share = table[kind + suffix].to_numpy()
                label = kind if not suffix else None
                axis.bar(x + offset, share, width, bottom, color=colour, alpha=alpha, label=label)
                bottom += share
        several = table[["first", "second"]].drop_duplicates().shape[0] > 1
        names = [f"{row.layer}: {row.first}-{row.second}" if several else f"{row.layer}" for row in table.itertuples()]
        axis.set_xticks(x, names, rotation=90 if len(names) > 8 else 0)
        axis.set(title=title, xlabel="layer: loops" if several else "layer")
        axis.grid(visible=False, axis="x")
        axis.set_axisbelow(True)
    in_percent(axes[0, 0].yaxis)
    axes[0, 0].set_ylabel("tokens")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    words = [f"{label} of the experts kept" if label == "none" else label for label in labels]
    pale = Line2D([], [], ls="", marker="|", ms=7, mew=3.5, color=COLOURS["looped-moe"], alpha=PALE)
    figure.legend([*handles, pale], [*words, "narrow and pale: by chance"], loc="outside upper center", ncols=4)
    return figure


# ---- exits -----------------------------------------------------------------------------------------------------------


def look_of(names: Iterable[str]) -> dict[str, tuple[ColorType, str]]:
    """(colour, marker) of each model's name, ordered by architecture, the same in every figure. With two loops they are
    the architecture's own. With more, up to 16, the colour is the darker, and the marker changes at three, six and
    twelve."""
    looks: dict[str, tuple[ColorType, str]] = {}
    names = list(dict.fromkeys(names))
    for architecture, title in TITLES.items():
        own = LOOK[architecture]
        colours, markers = [COLOURS[own], *shades(own, 33)[17:]], MARKERS[own] + "so^"
        for name in (name for name in names if name.rsplit(" ", 1)[0] == title):
            loops = int(name.rpartition("x")[2]) if name != title else 2
            doublings = min(max(math.log2(loops) - 1, 0), 3)
            looks[name] = (colours[round(16 * doublings / 3)], markers[round(doublings)])
    return looks


def perplexities(axis: Axes) -> None:
    """A log y axis that spans less than a decade."""
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(MaxNLocator(6))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_locator(NullLocator())


def in_percent(*axes: Axis) -> None:
    """Axes of shares."""
    for axis in axes:
        axis.set_major_formatter(PercentFormatter(1, decimals=0))


def core_9(runs: pd.DataFrame) -> Figure:
    """The accuracy of 004's architectures on the tasks of Core 9, the mean of the seeds; bars are standard errors over
    examples, dotted lines the accuracy of guessing. runs: ``core_nine.nine_scores`` with a column architecture."""
    figure, panel = plt.subplots(figsize=(PAGE, 2.6))
    tasks = list(NINE)
    at, chance = np.arange(len(tasks)), np.array([task.chance for task in NINE.values()])
    means = runs.groupby("architecture").mean(numeric_only=True)
    groups = means.reindex([name for name in LOOK if name in means.index])
    for i, (architecture, mean) in enumerate(groups.iterrows()):
        panel.errorbar(
            at + 0.16 * (i - (len(groups) - 1) / 2),
            mean[tasks],
            mean[[f"{name} stderr" for name in tasks]],
            ls="",
            lw=1,
            ms=4,
            label=TITLES[architecture],
            color=COLOURS[LOOK[architecture]],
            marker=MARKERS[LOOK[architecture]],
        )
    panel.hlines(chance, at - 0.4, at + 0.4, color="#888888", lw=0.8, ls=":")
    panel.set_xticks(at, tasks)
    panel.grid(axis="x", visible=False)
    panel.set_ylabel("accuracy (%)")
    legend_above(figure, panel)
    return figure
