"""The figures of residual scaling (002): growth with the loops, cosines between increments, rates that transfer."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from lib.figures.style import PAGE, doublings_axis, few_decades, row_of_panels, shades


def steps_by_rule(states: pd.DataFrame, look: dict[str, str]) -> Figure:
    """002, Fig. 2: the norm over optimiser steps, the mean of the seeds. There is a row a model (title -> name of its
    colour), a column a rule, and a line a number of loops (light: few)."""
    rules = list(dict.fromkeys(states["rule"]))
    figure, axes = plt.subplots(len(look), len(rules), figsize=(PAGE, 4.3), sharex=True, sharey=True, squeeze=False)
    for row, (title, architecture) in zip(axes, look.items(), strict=True):
        colours = shades(architecture, states["N"].nunique())
        for axis, rule in zip(row, rules, strict=True):
            cell = states[(states["model"] == title) & (states["rule"] == rule)]
            legend: Any = "full" if axis is row[-1] else False
            sns.lineplot(cell, x="step", y="norm", hue="N", palette=colours, errorbar=None, legend=legend, ax=axis)
            axis.set(title=f"{title}, {alpha(rule)}", xlabel="optimiser step", ylabel="")
        row[0].set_ylabel(r"$\|x_N\| / \sqrt{d}$")
        sns.move_legend(row[-1], "center left", bbox_to_anchor=(1, 0.5), title_fontsize=7)
    plt.setp(axes, yscale="log")  # now, or means would be of logarithms
    return figure


def growth(
    measured: pd.DataFrame, quantity: str, label: str, titles: dict[str, str], exponents: pd.Series, least: int
) -> Figure:
    """``quantity`` against the loops N, log-log: a panel a model (title -> name of its colour), a line a rule. The
    legend has the mean of the exponents fitted over N >= ``least`` (levels model, rule). Bars span the seeds."""
    figure, axes = row_of_panels(titles, 2.6)
    means = exponents.groupby(["model", "rule"]).mean().round(2) + 0.0  # no -0
    for axis, (title, architecture) in zip(axes, titles.items(), strict=True):
        cell = measured[measured["model"] == title]
        words = {rule: f"{alpha(rule)}: $N^{{{means[title, rule]:.2f}}}$" for rule in cell["rule"].unique()}
        named, rules = cell.assign(rule=cell["rule"].map(words)), len(words)
        look: dict[str, Any] = {
            "palette": shades(architecture, rules),
            "markers": ["o", "s", "^"][:rules],
            "dashes": ["", (4, 1.5), (4, 1.5, 1, 1.5)][:rules],
            "mew": 0,
        }
        spread: dict[str, Any] = {"errorbar": ("pi", 100), "err_style": "bars", "err_kws": {"elinewidth": 0.8}}
        sns.lineplot(named, x="N", y=quantity, hue="rule", style="rule", **look, **spread, ax=axis)
        axis.set(yscale="log", ylabel=label if axis is axes[0] else "")
        low, high = cell[quantity].min(), cell[quantity].max()
        if high < 2 * low:  # constant, but for rounding
            axis.set_ylim(low / 10, high * 10)
        if high < 100 * low:  # there are one or two whole decades to tick
            few_decades(axis)
        doublings_axis(axis, cell["N"], "N")
        sns.move_legend(
            axis, "upper center", bbox_to_anchor=(0.5, -0.28), title=rf"slope over $N \geq {least}$", title_fontsize=7
        )
    return figure


def cosine_matrices(matrices: dict[str, np.ndarray], columns: int) -> Figure:
    """002, Fig. 3, 6 and 8: cosines between the increments of the stream, title -> matrix [n, n], in rows of
    ``columns``."""
    rows, side = -(-len(matrices) // columns), min(1.9, (PAGE - 0.9) / columns)
    lines = 1 + max(title.count("\n") for title in matrices)
    size = 0.9 + side * columns, 0.5 + (side + 0.15 + 0.15 * lines) * rows
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False)
    for axis, (title, matrix) in zip(axes.flat, matrices.items(), strict=False):
        n = len(matrix)
        image = axis.imshow(np.asarray(matrix), vmin=-1, vmax=1, cmap="RdBu_r", extent=(0.5, n + 0.5, n + 0.5, 0.5))
        ticks = sorted({1, *range(max(2, n // 4), n + 1, max(1, n // 4))})
        axis.grid(visible=False)
        axis.set(title=title, xticks=ticks, yticks=ticks)
    plt.setp(axes[-1], xlabel="increment")
    plt.setp(axes[:, 0], ylabel="increment")
    figure.colorbar(image, ax=axes, label="cosine", shrink=0.8, ticks=(-1, -0.5, 0, 0.3, 0.6, 1))
    return figure


def alpha(rule: str) -> str:
    """A rule as it is printed."""
    return {
        "none": r"$\alpha = 1$",
        "1/sqrt(N)": r"$\alpha = 1/\sqrt{N}$",
        "1/N": r"$\alpha = 1/N$",
        "1/(N sqrt(L))": r"$\alpha = 1/(N\sqrt{L})$",
    }[rule]
