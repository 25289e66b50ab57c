"""The figures of the looped nanochat log (003): its width sweep, and tokens per parameter by two definitions of N."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib.figures.style import COLOURS, PAGE, count_axis, rate, shades

DEFINITIONS = {"physical": ("physical parameters", "o", "-"), "usage": ("usage-weighted parameters", "s", "--")}


def width_sweep(runs: pd.DataFrame, optima: pd.DataFrame) -> Figure:
    """Loss against parameters, one panel a definition of N, one line a budget; stars at the parabolas' minima."""
    figure, axes = plt.subplots(1, len(DEFINITIONS), figsize=(PAGE, 2.7), sharey=True)
    budgets = sorted(runs["budget"].unique())
    colours = dict(zip(budgets, shades("looped-nanochat", len(budgets) + 1)[1:], strict=True))
    for axis, (definition, (label, marker, _)) in zip(axes, DEFINITIONS.items(), strict=True):
        for budget in budgets:
            cell = runs[runs["budget"] == budget]
            mean = cell.groupby(definition)["loss"].mean()
            axis.plot(cell[definition], cell["loss"], marker, color=colours[budget], ms=3)
            if len(mean) >= 3:
                curve = np.polynomial.Polynomial.fit(np.log(cell[definition]), cell["loss"], 2)
                x = np.geomspace(mean.index.min(), mean.index.max(), 60)
                axis.plot(x, curve(np.log(x)), color=colours[budget], lw=0.9, label=f"{rate(budget)} FLOPs")
            best = optima[(optima["N is"] == definition) & (optima["budget"] == budget)]
            axis.plot(best["N"], best["loss"], "*", color=colours[budget], ms=8, mfc="none", mew=0.8)
        count_axis(axis, label)
    axes[0].set_ylabel("validation loss (nats per token)")
    axes[0].legend()
    return figure


def ratio_against_budget(panels: dict[str, Any]) -> Figure:
    """Optimal tokens per parameter against the budget, one panel a source (title -> optima), one line a definition of
    N; dots are seeds."""
    figure, axes = plt.subplots(1, len(panels), figsize=(PAGE, 2.6), squeeze=False)
    for axis, (title, optima) in zip(axes[0], panels.items(), strict=True):
        for definition, (label, marker, style) in DEFINITIONS.items():
            line = optima[optima["N is"] == definition].dropna(subset=["ratio"])
            colour = COLOURS["looped-nanochat"] if definition == "physical" else "#000000"
            mean = line.groupby("budget")["ratio"].mean()
            axis.plot(line["budget"], line["ratio"], marker, color=colour, ms=3.5)
            axis.plot(mean.index, mean, style, color=colour, label=label)
        budgets = sorted(optima["budget"].unique())
        axis.set_xscale("log")
        axis.set_xticks(budgets, [rate(budget) for budget in budgets])
        axis.minorticks_off()
        axis.set_xlim(budgets[0] / 1.3, budgets[-1] * 1.3)
        axis.set_ylim(bottom=0)
        if optima["ratio"].isna().all():
            words = "no optimum lies inside the widths"
            axis.text(0.5, 0.5, words, ha="center", va="center", transform=axis.transAxes, fontsize=7)
        axis.set_xlabel("budget (FLOPs)")
        axis.set_title(title)
    axes[0, 0].set_ylabel("tokens per parameter, D* / N*")
    axes[0, 0].legend(loc="lower left")
    return figure
