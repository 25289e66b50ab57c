"""The figures of the downstream axes (000, App. H)."""

from collections.abc import Iterable

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

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


def against_validation(panel: Axes, runs: pd.DataFrame, column: str, recurrences: Iterable[int]) -> None:
    """A column against the validation loss, with a quadratic through each recurrence's; better models to the right."""
    for own, look in by_recurrence(runs, recurrences):
        x, y = own["val_loss"], own[column]
        panel.plot(x, y, ls="", ms=3, **look)
        if len(x) > 3:
            curve = np.polynomial.Polynomial.fit(x, y, 2)
            at = np.linspace(x.min(), x.max(), 60)
            panel.plot(at, curve(at), color=look["color"], lw=0.9)
    panel.invert_xaxis()


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
