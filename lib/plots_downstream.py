"""The figures of the downstream evaluations (000, App. H; 001; 004)."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from matplotlib.typing import ColorType

from lib.core import NINE
from lib.plots import COLOURS, MARKERS, NAMES, PAGE, count_axis, few_decades, legend_above
from lib.plots_isodepth import budget_axis, of_recurrences
from lib.plots_parcae import VARIANTS
from lib.sparse import LOOK, TITLES


def axes_by_budget(best: pd.DataFrame) -> Figure:
    """000, Fig. 11: the loss of each axis at the compute-optimal runs (``axes.optimal``) against the budget, one panel
    an axis, one line a recurrence; bars are a standard error over examples."""
    names = list(dict.fromkeys(best["axis"]))
    figure, panels = plt.subplots(1, len(names), figsize=(PAGE, 2.5), squeeze=False)
    look = of_recurrences(best["r"].unique())
    budgets = sorted(best["budget"].unique())
    for panel, name in zip(panels[0], names, strict=True):
        of_axis = best[best["axis"] == name]
        for i, (r, line) in enumerate(of_axis.groupby("r")):
            colour, marker = look[r]
            beside = line["budget"] * 1.04 ** (i - (len(look) - 1) / 2)  # so that bars do not lie on one another
            panel.errorbar(
                beside, line["loss"], line["stderr"], color=colour, marker=marker, ms=3.5, lw=0.9, label=f"r = {r}"
            )
        budget_axis(panel, budgets)
        panel.tick_params(axis="x", labelsize=5.5)
        panel.set_title(f"{name.replace(' ', chr(10), 1)}\n({int(of_axis['tasks'].max())} tasks)", fontsize=7)
        panel.yaxis.set_major_locator(MaxNLocator(5))
    panels[0, 0].set_ylabel("continuation loss (nats per token)")
    legend_above(figure, panels[0, 0])
    return figure


def axes_by_loss(points: pd.DataFrame) -> Figure:
    """000, Fig. 12: the loss of each axis against the validation loss of every run, with a quadratic through each
    recurrence's; better models to the right."""
    names = list(dict.fromkeys(points["axis"]))
    figure, panels = plt.subplots(1, len(names), figsize=(PAGE, 2.5), squeeze=False)
    look = of_recurrences(points["r"].unique())
    for panel, name in zip(panels[0], names, strict=True):
        for r, runs in points[points["axis"] == name].groupby("r"):
            _with_curve(panel, runs["val_loss"], runs["loss"], *look[r], label=f"r = {r}")
        panel.set_title(name.replace(" ", "\n", 1), fontsize=7)
        panel.invert_xaxis()
        panel.xaxis.set_major_locator(MaxNLocator(3))
        panel.yaxis.set_major_locator(MaxNLocator(5))
        panel.set_xlabel("validation loss\n(nats per token)")
    panels[0, 0].set_ylabel("continuation loss (nats per token)")
    legend_above(figure, panels[0, 0])
    return figure


def _with_curve(panel: Axes, x: pd.Series, y: pd.Series, colour: ColorType, marker: str, label: str) -> None:
    panel.plot(x, y, marker, color=colour, ms=3, label=label)
    if len(x) > 3:
        curve = np.polynomial.Polynomial.fit(x, y, 2)
        at = np.linspace(x.min(), x.max(), 60)
        panel.plot(at, curve(at), color=colour, lw=0.9)


def accuracy_and_loss(runs: pd.DataFrame) -> Figure:
    """000, Fig. 13: accuracy and continuation loss, averaged over the axes (``axes.macro``), against validation loss;
    better is to the right and down, so that accuracy's axis is turned over."""
    figure, panels = plt.subplots(1, 2, figsize=(PAGE, 2.6))
    look = of_recurrences(runs["r"].unique())
    for panel, column in zip(panels, ("accuracy", "loss"), strict=True):
        for r, own in runs.groupby("r"):
            _with_curve(panel, own["val_loss"], own[column], *look[r], label=f"r = {r}")
        panel.invert_xaxis()
        panel.set_xlabel("validation loss (nats per token)")
    panels[0].invert_yaxis()
    panels[0].yaxis.set_major_formatter(PercentFormatter(1, decimals=1))
    panels[0].set_ylabel("accuracy, mean of the axes\n(better: down)")
    panels[1].set_ylabel("continuation loss (nats per token)")
    legend_above(figure, panels[0])
    return figure


def by_depth(table: pd.DataFrame) -> Figure:
    """The loss of the right answer against test-time loops T, one panel a task, one line a trained number of loops;
    filled where T is the trained one. Bars are a standard error."""
    names = list(dict.fromkeys(table["task"]))
    columns = min(5, len(names))
    rows = -(-len(names) // columns)
    figure, panels = plt.subplots(rows, columns, figsize=(PAGE, 1.7 * rows + 0.6), squeeze=False, sharex=True)
    look = of_recurrences(table["r"].unique())
    for panel, name in zip(panels.flat, names, strict=False):
        for r, line in table[table["task"] == name].groupby("r"):
            colour, marker = look[r]
            look_of = {"color": colour, "marker": marker, "ms": 3.5}
            panel.errorbar(
                line["T"], line["loss"], line["loss_stderr"], mfc="white", lw=0.9, label=f"r = {r}", **look_of
            )
            trained = line[line["T"] == r]
            panel.plot(trained["T"], trained["loss"], zorder=3, **look_of)  # above the bars' own
        panel.set_xscale("log", base=2)
        depths = sorted(table["T"].unique())
        panel.set_xticks(depths, [str(T) for T in depths])
        panel.minorticks_off()
        panel.set_title(name, fontsize=7)
        panel.yaxis.set_major_locator(MaxNLocator(4))
    for panel in panels.flat[len(names) :]:
        panel.set_visible(False)
    for panel in panels.flat[max(0, len(names) - columns) : len(names)]:  # the last of each column
        panel.tick_params(labelbottom=True)
        panel.set_xlabel("loops T")
    figure.supylabel("loss of the answer (nats per token)", fontsize=7)
    legend_above(figure, panels[0, 0])
    return figure


# ---- 001 and 004 -----------------------------------------------------------------------------------------------------


def by_size(runs: pd.DataFrame) -> Figure:
    """CORE, Core-Extended where some of it was asked, and LAMBADA's perplexity against parameters (001, Table
    "Comparing Parcae to Fixed-Depth Transformers"): a line an architecture through the means over seeds, bars an error
    over examples, a dot a seed. runs: ``core.transformer_scores`` with a column architecture."""
    units = {"Core": "points", "Core-Extended": "points", "LAMBADA per token": "perplexity"}
    shown = {column: unit for column, unit in units.items() if runs[column].notna().any()}
    figure, panels = plt.subplots(1, len(shown), figsize=(PAGE, 2.6), squeeze=False)
    for panel, (column, unit) in zip(panels[0], shown.items(), strict=True):
        for (architecture, own), beside in zip(runs.groupby("architecture", sort=False), (0.97, 1.03), strict=True):
            look = {"color": COLOURS[architecture], "marker": MARKERS[architecture]}
            mean = own.groupby("parameters")[[column, f"{column} stderr"]].mean()
            panel.errorbar(mean.index * beside, *mean.T.to_numpy(), ms=4, lw=1, label=NAMES[architecture], **look)
            panel.plot(own["parameters"] * beside, own[column], ls="", ms=2.5, alpha=0.5, **look)
        count_axis(panel, "parameters")
        panel.set_title(column)
        panel.set_ylabel(unit)
        if unit == "perplexity":
            few_decades(panel)
    legend_above(figure, panels[0, 0])
    return figure


def ladder_and_frontier(ladder: pd.DataFrame, frontier: pd.DataFrame) -> Figure:
    """CORE of the rungs of 001's table of stability against test-time loops T (left), of the best looped runs and those
    at fixed depth against the budget (right); means over seeds, bars an error over examples.

    ladder, frontier: ``core.transformer_scores`` with a column variant, and with which and budget."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE, 2.9), sharey=True)
    ladder = ladder.dropna(subset="Core")
    groups = [*ladder.groupby("variant", sort=False)]
    for i, (rung, own) in enumerate(groups):
        colour, marker = VARIANTS[rung]
        _suite_line(left, own, "T", 1.04 ** (i - (len(groups) - 1) / 2), color=colour, marker=marker, label=rung)
    depths = sorted(ladder["T"].astype(int).unique())
    left.set_xscale("log", base=2)
    left.set_xticks(depths, [str(T) for T in depths])
    left.minorticks_off()
    left.set_xlabel("test-time loops T")
    left.set_ylabel("Core (points)")
    colour, marker = COLOURS["parcae"], MARKERS["parcae"]
    for which, beside, look in (
        ("looped", 0.97, {"label": r"best $\mu_{rec}$"}),
        ("fixed depth", 1.03, {"label": r"$\mu_{rec} = 1$", "ls": "--", "mfc": "white"}),
    ):
        _suite_line(right, frontier[frontier["which"] == which], "budget", beside, color=colour, marker=marker, **look)
    budget_axis(right, sorted(frontier["budget"].unique()))
    for panel in (left, right):
        panel.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    return figure


def _suite_line(panel: Axes, runs: pd.DataFrame, over: str, beside: float, **look: Any) -> None:
    """``beside``: a factor, so that bars do not lie on one another."""
    mean = runs.groupby(over).mean(numeric_only=True)
    panel.errorbar(mean.index * beside, mean["Core"], mean["Core stderr"], ms=4, lw=1, **look)


def nine(runs: pd.DataFrame) -> Figure:
    """Accuracy of 004's architectures on the tasks of Core 9, means over seeds, bars an error over examples, dotted the
    accuracy of guessing. runs: ``core.nine_scores`` with a column architecture."""
    figure, panel = plt.subplots(figsize=(PAGE, 2.6))
    tasks = list(NINE)
    at, chance = np.arange(len(tasks)), np.array([task.chance for task in NINE.values()])
    means = runs.groupby("architecture").mean(numeric_only=True)
    groups = means.reindex([name for name in LOOK if name in means.index])
    for i, (architecture, mean) in enumerate(groups.iterrows()):
        panel.errorbar(
            at + 0.16 * (i - (len(groups) - 1) / 2), mean[tasks], mean[[f"{name} stderr" for name in tasks]],
            ls="", lw=1, ms=4, label=TITLES[architecture],
            color=COLOURS[LOOK[architecture]], marker=MARKERS[LOOK[architecture]],
        )  # fmt: skip
    panel.hlines(chance, at - 0.4, at + 0.4, color="#888888", lw=0.8, ls=":")
    panel.set_xticks(at, tasks)
    panel.grid(axis="x", visible=False)
    panel.set_ylabel("accuracy (%)")
    legend_above(figure, panel)
    return figure
