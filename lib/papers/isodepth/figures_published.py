"""The figures of 000's own runs (data/README.md) that no grid of ours has: gaps and misfit."""

import pandas as pd
from matplotlib.figure import Figure

from lib.figures.style import budget_axis, doublings_axis, legend_above, rate, row_of_panels, shades
from lib.fit.fits import Fit
from lib.papers.isodepth.figures import of_recurrences
from lib.papers.isodepth.readings import misfit


def gaps(panels: dict[str, pd.DataFrame], bands: dict[int, tuple[float, float]]) -> Figure:
    """000, Sec. 4.2: loss of each looped frontier above the plain one against the budget, one panel a way to read it.

    panels: title -> ``readings.frontier_gaps``. bands: r -> least and most of the gap as the paper prints them."""
    figure, axes = row_of_panels(panels, 2.5, ylabel="loss above r = 1 (nats)", sharey=True)
    for axis, table in zip(axes, panels.values(), strict=True):
        look = of_recurrences([1, *table.columns])
        for r in table.columns:
            colour, marker = look[r]
            axis.axhspan(*bands[r], color=colour, alpha=0.15, lw=0)
            axis.plot(table.index, table[r], color=colour, marker=marker, label=f"r = {r}")
        axis.axhline(0, color="#666666", lw=0.8, ls=":")
        budget_axis(axis, [*table.index])
    axes[0].fill_between([], [], color="#bbbbbb", label="range over budgets, as printed")
    legend_above(figure, axes[0])
    return figure


def smooth_misfit(runs: pd.DataFrame, fit: Fit, optima: pd.DataFrame, scatter: float) -> Figure:
    """What the joint law leaves over against the size of a model relative to its budget's optimum: one panel an r, one
    line a (budget, r) cell; the grey band holds what the runs' own ``scatter`` would leave (95 %).

    optima: ``readings.optima`` of the runs."""
    best = optima.set_index(["budget", "r"])["N"]
    recurrences, budgets = sorted(runs["r"].unique()), sorted(runs["budget"].unique())
    titles, ylabel = [f"r = {r}" for r in recurrences], "measured less\npredicted (nats)"
    figure, axes = row_of_panels(titles, 2.4, ylabel=ylabel, sharex=True, sharey=True)
    off = misfit(runs, fit)
    colours = shades("looped-nanochat", len(budgets))
    for axis, r in zip(axes, recurrences, strict=True):
        axis.axhspan(-1.96 * scatter, 1.96 * scatter, color="#bbbbbb", alpha=0.5, lw=0, label="scatter of runs, 95 %")
        for budget, colour, marker in zip(budgets, colours, "osD^v<", strict=False):
            cell = runs[(runs["budget"] == budget) & (runs["r"] == r)].sort_values("N")
            x = cell["N"] / best[budget, r]
            axis.plot(x, off[cell.index], color=colour, marker=marker, ms=3, lw=0.9, label=rate(budget))
        axis.axhline(0, color="#666666", lw=0.8, ls=":")
        doublings_axis(axis, (0.5, 1, 2), "N / optimal N*", {0.5: "1/2", 1: "1", 2: "2"}.__getitem__)
    legend_above(figure, axes[0])
    figure.legends[0].set_title("budget (FLOPs)")
    return figure
