"""The figures of the looped nanochat log (003): its width sweep, and tokens per parameter by two definitions of N."""

from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from lib.figures.style import COLOURS, PAGE, budget_axis, count_axis, parabola, rate, row_of_panels, shades

DEFINITIONS = {"physical": ("physical parameters", "o", "-"), "usage": ("usage-weighted parameters", "s", "--")}


def width_sweep(runs: pd.DataFrame, optima: pd.DataFrame) -> Figure:
    """Loss against parameters, one panel a definition of N, one line a budget; stars at the parabolas' minima."""
    figure, axes = plt.subplots(1, len(DEFINITIONS), figsize=(PAGE, 2.7), sharey=True)
    budgets = sorted(runs["budget"].unique())
    colours = dict(zip(budgets, shades("looped-nanochat", len(budgets) + 1)[1:], strict=True))
    for axis, (definition, (label, marker, _)) in zip(axes, DEFINITIONS.items(), strict=True):
        for budget in budgets:
            cell = runs[runs["budget"] == budget]
            axis.plot(cell[definition], cell["loss"], marker, color=colours[budget], ms=3)
            if cell[definition].nunique() >= 3:
                words = f"{rate(budget)} FLOPs"
                parabola(axis, cell[definition], cell["loss"], color=colours[budget], label=words)
            best = optima[(optima["N is"] == definition) & (optima["budget"] == budget)]
            axis.plot(best["N"], best["loss"], "*", color=colours[budget], ms=8, mfc="none", mew=0.8)
        count_axis(axis, label)
    axes[0].set_ylabel("validation loss (nats per token)")
    axes[0].legend()
    return figure


def ratio_against_budget(panels: dict[str, Any]) -> Figure:
    """Optimal tokens per parameter against the budget, one panel a source (title -> optima), one line a definition of
    N; dots are seeds."""
    figure, axes = row_of_panels(panels, 2.6, ylabel="tokens per parameter, D* / N*")
    for axis, optima in zip(axes, panels.values(), strict=True):
        for definition, (label, marker, style) in DEFINITIONS.items():
            line = optima[optima["N is"] == definition].dropna(subset=["ratio"])
            colour = COLOURS["looped-nanochat"] if definition == "physical" else "#000000"
            mean = line.groupby("budget")["ratio"].mean()
            axis.plot(line["budget"], line["ratio"], marker, color=colour, ms=3.5)
            axis.plot(mean.index, mean, style, color=colour, label=label)
        budgets = sorted(optima["budget"].unique())
        axis.set_xlim(budgets[0] / 1.3, budgets[-1] * 1.3)
        budget_axis(axis, budgets)
        axis.set_ylim(bottom=0)
        if optima["ratio"].isna().all():
            words = "no optimum lies inside the widths"
            axis.text(0.5, 0.5, words, ha="center", va="center", transform=axis.transAxes, fontsize=7)
    axes[0].legend(loc="lower left")
    return figure
