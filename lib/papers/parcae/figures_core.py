"""The figures of CORE (001)."""

from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.figures.style import (
    COLOURS,
    MARKERS,
    NAMES,
    PAGE,
    budget_axis,
    count_axis,
    doublings_axis,
    few_decades,
    legend_above,
    row_of_panels,
    shades,
)
from lib.papers.parcae.figures_transformer import VARIANTS


def by_size(runs: pd.DataFrame) -> Figure:
    """CORE, Core-Extended where some of it was asked, and LAMBADA's perplexity against parameters (001, Table
    "Comparing Parcae to Fixed-Depth Transformers"). Each architecture has a line through its means over seeds, with
    bars of one standard error over examples; each seed is a dot. runs: ``core_benchmark.transformer_scores`` with a
    column architecture."""
    units = {"Core": "points", "Core-Extended": "points", "LAMBADA per token": "perplexity"}
    shown = {column: unit for column, unit in units.items() if runs[column].notna().any()}
    figure, row = row_of_panels(shown, 2.6)
    for panel, (column, unit) in zip(row, shown.items(), strict=True):
        for architecture, own in runs.groupby("architecture", sort=False):
            look = {"color": COLOURS[architecture], "marker": MARKERS[architecture]}
            mean = own.groupby("parameters")[[column, f"{column} stderr"]].mean()
            panel.errorbar(mean.index, *mean.T.to_numpy(), ms=4, lw=1, label=NAMES[architecture], **look)
            panel.plot(own["parameters"], own[column], ls="", ms=2.5, alpha=0.5, **look)
        count_axis(panel, "parameters")
        panel.set_ylabel(unit)
        if unit == "perplexity":
            few_decades(panel)
    legend_above(figure, row[0])
    return figure


def ladder_and_frontier(ladder: pd.DataFrame, frontier: pd.DataFrame) -> Figure:
    """Left, CORE of the rungs of 001's table of stability against test-time loops T; right, CORE of the best looped
    runs and of those at fixed depth against the budget. Means over seeds have bars of one standard error over examples.

    ladder, frontier: ``core_benchmark.transformer_scores``, with a column variant, and with columns which, width and
    budget; the frontier has a pair of lines for each size, in colours that no rung has, darker for a larger one."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE, 2.9), sharey=True)
    ladder = ladder.dropna(subset="Core")
    groups = [*ladder.groupby("variant", sort=False)]
    for i, (rung, own) in enumerate(groups):
        colour, marker = VARIANTS[rung]
        _suite_line(left, own, "T", 1.04 ** (i - (len(groups) - 1) / 2), color=colour, marker=marker, label=rung)
    doublings_axis(left, ladder["T"], "test-time loops T")
    left.set_ylabel("Core (points)")
    widths = sorted(frontier["width"].unique())
    colours = [COLOURS["parcae"]] if len(widths) == 1 else shades("residual-norm", len(widths))
    for width, colour in zip(widths, colours, strict=True):
        own, of = frontier[frontier["width"] == width], f", d = {width}" if len(widths) > 1 else ""
        for which, beside, look in (
            ("looped", 0.97, {"label": r"best $\mu_{rec}$" + of}),
            ("fixed depth", 1.03, {"label": r"$\mu_{rec} = 1$" + of, "ls": "--", "mfc": "white"}),
        ):
            runs = own[own["which"] == which]
            _suite_line(right, runs, "budget", beside, color=colour, marker=MARKERS["parcae"], **look)
    budget_axis(right, sorted(frontier["budget"].unique()))
    for panel in (left, right):
        panel.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    return figure


def _suite_line(panel: Axes, runs: pd.DataFrame, over: str, beside: float, **look: Any) -> None:
    """The means of Core along the column ``over``. ``beside`` is a factor by which they are moved, so that bars do not
    lie on one another."""
    mean = runs.groupby(over).mean(numeric_only=True)
    panel.errorbar(mean.index * beside, mean["Core"], mean["Core stderr"], ms=4, lw=1, **look)
