"""The figures of the downstream axes (000, App. H)."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from lib.figures.style import PAGE, budget_axis, doublings_axis, legend_above, rate
from lib.papers.isodepth.figures import by_recurrence


def axes_by_budget(best: pd.DataFrame) -> Figure:
    """000, Fig. 11: the loss of each axis at the compute-optimal runs (``axes.optimal``) against the budget, one panel
    an axis, one line a recurrence; bars are a standard error over examples."""
    names = list(dict.fromkeys(best["axis"]))
    figure, panels = plt.subplots(1, len(names), figsize=(PAGE, 2.5), squeeze=False)
    recurrences = best["r"].unique()
    budgets = sorted(best["budget"].unique())
    for panel, name in zip(panels[0], names, strict=True):
        of_axis = best[best["axis"] == name]
        for i, (line, look) in enumerate(by_recurrence(of_axis, recurrences)):
            beside = line["budget"] * 1.04 ** (i - (len(recurrences) - 1) / 2)  # bars do not lie on one another
            panel.errorbar(beside, line["loss"], line["stderr"], ms=3.5, lw=0.9, **look)
        budget_axis(panel, budgets)
        every = 1 if len(budgets) < 4 else 2  # there is room for so many names
        panel.set_xticks(budgets, ["" if i % every else rate(budget) for i, budget in enumerate(budgets)], rotation=0)
        tasks = int(of_axis["tasks"].max())
        panel.set_title(f"{name.replace(' ', chr(10), 1)}\n({tasks} task{'s' * (tasks != 1)})", fontsize=7)
        panel.yaxis.set_major_locator(MaxNLocator(5))
    panels[0, 0].set_ylabel("continuation loss (nats per token)")
    legend_above(figure, panels[0, 0])
    return figure


def axes_by_loss(points: pd.DataFrame) -> Figure:
    """000, Fig. 12: the loss of each axis against the validation loss of every run, with a quadratic through each
    recurrence's; better models to the right."""
    names = list(dict.fromkeys(points["axis"]))
    figure, panels = plt.subplots(1, len(names), figsize=(PAGE, 2.5), squeeze=False)
    for panel, name in zip(panels[0], names, strict=True):
        for runs, look in by_recurrence(points[points["axis"] == name], points["r"].unique()):
            _with_curve(panel, runs["val_loss"], runs["loss"], look)
        panel.set_title(name.replace(" ", "\n", 1), fontsize=7)
        panel.invert_xaxis()
        panel.xaxis.set_major_locator(MaxNLocator(5))
        panel.yaxis.set_major_locator(MaxNLocator(5))
        panel.set_xlabel("validation loss\n(nats per token)")
    panels[0, 0].set_ylabel("continuation loss (nats per token)")
    legend_above(figure, panels[0, 0])
    return figure


def _with_curve(panel: Axes, x: pd.Series, y: pd.Series, look: dict[str, Any]) -> None:
    panel.plot(x, y, ls="", ms=3, **look)
    if len(x) > 3:
        curve = np.polynomial.Polynomial.fit(x, y, 2)
        at = np.linspace(x.min(), x.max(), 60)
        panel.plot(at, curve(at), color=look["color"], lw=0.9)


def accuracy_and_loss(runs: pd.DataFrame) -> Figure:
    """000, Fig. 13: accuracy and continuation loss, averaged over the axes (``axes.macro``), against validation loss.
    Better is to the right and down; for that, accuracy's axis is turned over."""
    figure, panels = plt.subplots(1, 2, figsize=(PAGE, 2.6))
    for panel, column in zip(panels, ("accuracy", "loss"), strict=True):
        for own, look in by_recurrence(runs):
            _with_curve(panel, own["val_loss"], own[column], look)
        panel.invert_xaxis()
        panel.set_xlabel("validation loss (nats per token)")
    panels[0].invert_yaxis()
    panels[0].yaxis.set_major_formatter(PercentFormatter(1, decimals=1))
    panels[0].set_ylabel("accuracy, mean of the axes\n(better: down)")
    panels[1].set_ylabel("continuation loss, mean of\nthe axes (nats per token)")
    legend_above(figure, panels[0])
    return figure


def by_depth(table: pd.DataFrame) -> Figure:
    """The loss of the right answer against test-time loops T, one panel a task, one line a trained number of loops;
    filled where T is the trained one. Bars are a standard error."""
    names = list(dict.fromkeys(table["task"]))
    columns = min(5, len(names))
    rows = -(-len(names) // columns)
    figure, panels = plt.subplots(rows, columns, figsize=(PAGE, 1.7 * rows + 0.6), squeeze=False, sharex=True)
    for panel, name in zip(panels.flat, names, strict=False):
        for line, look in by_recurrence(table[table["task"] == name], table["r"].unique()):
            panel.errorbar(line["T"], line["loss"], line["loss_stderr"], ms=3.5, mfc="white", lw=0.9, **look)
            trained = line[line["T"] == line["r"]]
            panel.plot(trained["T"], trained["loss"], zorder=3, ms=3.5, **look | {"label": ""})  # above the bars' own
        doublings_axis(panel, table["T"])
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
