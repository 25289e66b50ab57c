"""The figures of residual scaling (002): growth with the loops, cosines between increments, rates that transfer."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from lib.figures.style import COLUMN, PAGE, doublings_axis, few_decades, rate, shades

#: of seaborn's lines: markers without an edge, and bars that span the seeds
SPREAD: dict[str, Any] = {"errorbar": ("pi", 100), "err_style": "bars", "err_kws": {"elinewidth": 0.8}, "mew": 0}


def steps_by_rule(states: pd.DataFrame, look: dict[str, str]) -> Figure:
    """002, Fig. 2: the norm over optimiser steps, the mean of the seeds in a band that spans them. There is a row a
    model (title -> name of its colour), a column a rule, and a line a number of loops (light: few)."""
    rules = list(dict.fromkeys(states["rule"]))
    figure, axes = plt.subplots(len(look), len(rules), figsize=(PAGE, 4.3), sharex=True, sharey=True, squeeze=False)
    for row, (title, architecture) in zip(axes, look.items(), strict=True):
        colours = shades(architecture, states["N"].nunique())
        for axis, rule in zip(row, rules, strict=True):
            cell = states[(states["model"] == title) & (states["rule"] == rule)]
            legend: Any = "full" if axis is row[-1] else False
            sns.lineplot(
                cell, x="step", y="norm", hue="N", palette=colours, errorbar=("pi", 100), legend=legend, ax=axis
            )
            axis.set(title=f"{title}, {alpha(rule)}", xlabel="optimiser step", ylabel="")
        row[0].set_ylabel("RMS of the stream,\n" rf"$\|x_N\| / \sqrt{{d}}$" f"\n({spread(states, 'band')})")
        sns.move_legend(row[-1], "center left", bbox_to_anchor=(1, 0.5), title_fontsize=7)
    # now, or means would be of logarithms
    plt.setp(axes, yscale="log", xticks=np.unique(np.linspace(0, states["step"].max(), 6, dtype=int)))
    return figure


def growth(
    measured: pd.DataFrame, quantity: str, label: str, titles: dict[str, str], exponents: pd.Series, least: int
) -> Figure:
    """``quantity`` against the loops N, log-log: a panel a model (title -> name of its colour), three in a row, a line
    a rule, with the mean of the exponents fitted over N >= ``least`` (levels model, rule); nan is no power law. Bars
    span the seeds. Narrow, so that it can be read when it is shown small."""
    columns, rows = min(3, len(titles)), -(-len(titles) // 3)
    figure, axes = plt.subplots(rows, columns, figsize=(0.75 * PAGE, 0.4 + 2.3 * rows), squeeze=False)
    means = exponents.groupby(["model", "rule"]).mean().round(2) + 0.0  # no -0
    rules = list(dict.fromkeys(measured["rule"]))
    look: dict[str, Any] = {
        "style_order": rules,
        "markers": ["o", "s", "^"],
        "dashes": ["", (4, 1.5), (4, 1.5, 1, 1.5)],
    }
    for axis, (title, architecture) in zip(axes.flat, titles.items(), strict=False):
        cell, colours = measured[measured["model"] == title], shades(architecture, len(rules))
        sns.lineplot(cell, x="N", y=quantity, hue="rule", style="rule", palette=colours, **look, **SPREAD, ax=axis)
        low, high = cell[quantity].min(), cell[quantity].max()
        # above is room for the legend
        axis.set(title=title, yscale="log", ylabel="", ylim=(low / 1.5, high**1.7 / low**0.7))
        if high < 2 * low:  # constant, but for rounding
            axis.set_ylim(low / 10, high * 10)
        if high < 100 * low:  # there are one or two whole decades to tick
            few_decades(axis)
        doublings_axis(axis, cell["N"], "loops N")
        handles, names = axis.get_legend_handles_labels()
        powers = (f"$N^{{{mean:.2f}}}$" if np.isfinite(mean) else "no power" for mean in means[title][names])
        words = [f"{alpha(rule)}: {power}" for rule, power in zip(names, powers, strict=True)]
        axis.legend(handles, words, loc="upper left", borderpad=0, handlelength=1.8, handletextpad=0.5, fontsize=6)
    plt.setp(axes[:, 0], ylabel=f"{label}\n({spread(measured, 'bars')})")
    plt.setp(axes.flat[len(titles) :], visible=False)
    figure.suptitle(rf"in legends: the measured power of $N$, over $N \geq {least}$, mean of the seeds", fontsize=7)
    return figure


def ladder(grown: pd.DataFrame, loops: int) -> Figure:
    """002, Fig. 2e: by how many octaves the norm grows within the first steps, against the learning rate
    (``designs.octaves_grown``, cut at ten). Bars span the seeds."""
    long = grown.rename(index=alpha, level="rule").melt(value_name="octaves", ignore_index=False).reset_index()
    figure, axis = plt.subplots(figsize=(COLUMN, 2.6))
    sns.lineplot(
        long,
        x="lr",
        y="octaves",
        hue="rule",
        style="rule",
        palette=shades("looped", 1 + long["rule"].nunique())[:0:-1],
        markers=["^", "s", "o"][: long["rule"].nunique()],
        ax=axis,
        **SPREAD,
    )
    axis.axhline(10, color="#666666", lw=0.8, ls="--", label="10 or more: exploded")
    axis.axhline(1, color="black", lw=0.8, ls=":", label="1: doubled")
    axis.legend(loc="center right", bbox_to_anchor=(1, 0.4))
    doublings_axis(axis, long["lr"], "learning rate", rate)
    axis.set_ylabel(f"octaves of growth, N = {loops} loops\n({spread(long, 'bars')})")
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
    figure.colorbar(image, ax=axes, label="cosine, mean of tokens and seeds", shrink=0.8, ticks=(-1, -0.5, 0, 0.5, 1))
    return figure


def spread(runs: pd.DataFrame, mark: str) -> str:
    """What bars or bands span, for an axis: as many seeds as ``runs`` has."""
    return f"{mark}: range of {(n := runs['seed'].nunique())} seed{'s' * (n > 1)}"


def alpha(rule: str) -> str:
    """A rule as it is printed."""
    return {
        "none": r"$\alpha = 1$",
        "1/sqrt(N)": r"$\alpha = 1/\sqrt{N}$",
        "1/N": r"$\alpha = 1/N$",
        "1/(N sqrt(L))": r"$\alpha = 1/(N\sqrt{L})$",
    }[rule]
