"""The figures of residual scaling (002): growth with the loops, cosines between increments, rates that transfer."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib.figures.style import PAGE, doublings_axis, few_decades, row_of_panels, shades

#: of the rules for alpha, whatever the architecture
MARKS = {"none": "o-", "1/sqrt(N)": "s--", "1/N": "^-.", "1/(N sqrt(L))": "D:"}


def steps_by_rule(states: pd.DataFrame, quantity: str, label: str, look: dict[str, str]) -> Figure:
    """002, Fig. 2: ``quantity`` over optimiser steps, the mean of the seeds. There is a row a model (title -> name of
    its colour), a column a rule, and a line a number of loops (light: few)."""
    rules, loops = list(dict.fromkeys(states["rule"])), sorted(states["N"].unique())
    figure, axes = plt.subplots(
        len(look), len(rules), figsize=(PAGE, 1.9 * len(look) + 0.5), sharex=True, sharey=True, squeeze=False
    )
    for row, (title, architecture) in enumerate(look.items()):
        for column, rule in enumerate(rules):
            axis = axes[row, column]
            cell = states[(states["model"] == title) & (states["rule"] == rule)]
            for N, colour in zip(loops, shades(architecture, len(loops)), strict=True):
                mean = cell[cell["N"] == N].groupby("step")[quantity].mean()
                axis.plot(mean.index, mean, color=colour, label=f"{N}")
            axis.set(title=f"{title}, {alpha(rule)}", yscale="log")
        axes[row, 0].set_ylabel(label)
        axes[row, -1].legend(title="N", loc="center left", bbox_to_anchor=(1, 0.5), title_fontsize=7)
    plt.setp(axes[-1], xlabel="optimiser step")
    return figure


def growth(
    measured: pd.DataFrame, quantity: str, label: str, look: dict[str, str], exponents: pd.DataFrame, least: int
) -> Figure:
    """``quantity`` against the loops N, log-log: a panel a model (title -> name of its colour), a line a rule. The
    legend has the mean of the exponents fitted over N >= ``least`` (columns model, rule, exponent). Bars span the
    seeds."""
    figure, axes = row_of_panels(look, 2.6, ylabel=label)
    for axis, (title, architecture) in zip(axes, look.items(), strict=True):
        cell = measured[measured["model"] == title]
        rules = list(dict.fromkeys(cell["rule"]))
        for rule, colour in zip(rules, shades(architecture, len(rules)), strict=True):
            seeds = cell[cell["rule"] == rule].groupby("N")[quantity]
            mean = seeds.mean()
            found = exponents[(exponents["model"] == title) & (exponents["rule"] == rule)]["exponent"]
            words = f"{alpha(rule)}: $N^{{{found.mean().round(2) + 0.0:.2f}}}$"
            axis.plot(mean.index, mean, MARKS[rule], color=colour, label=words)
            axis.vlines(mean.index, seeds.min(), seeds.max(), color=colour, lw=0.8)
        axis.set_yscale("log")
        low, high = cell[quantity].min(), cell[quantity].max()
        if high < 2 * low:  # constant, but for rounding
            axis.set_ylim(low / 10, high * 10)
        if high < 100 * low:  # there are one or two whole decades to tick
            few_decades(axis)
        doublings_axis(axis, cell["N"], "N")
        over = rf"slope over $N \geq {least}$"
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.28), title=over, title_fontsize=7)
    return figure


def changes(measured: pd.DataFrame, architecture: str, predicted: dict[str, float]) -> Figure:
    """002, Fig. 4 and 9: what one optimiser step changes in the output, against N; a panel a rule, a line a step (the
    lightest is the first, Fig. 4). The dotted line has the slope that Theorem 2 predicts and goes through the middle of
    the first step's."""
    steps = sorted(measured["step"].unique())
    titles = {rule: f"{alpha(rule)}, predicted $N^{{{predicted[rule]:g}}}$" for rule in measured["rule"].unique()}
    figure, axes = row_of_panels(
        titles.values(), 2.4, "", "RMS change of the output\nby one optimiser step", sharey=True
    )
    for axis, rule in zip(axes, titles, strict=True):
        cell = measured[measured["rule"] == rule]
        for step, colour in zip(steps, shades(architecture, len(steps)), strict=True):
            mean = cell[cell["step"] == step].groupby("N")["change"].mean()
            axis.plot(mean.index, mean, color=colour, marker="o" if step == steps[0] else None, ms=3, label=f"{step}")
            if step == steps[0]:
                N, middle = mean.index.to_numpy(), len(mean) // 2
                reference = mean.iloc[middle] * (N / N[middle]) ** predicted[rule]
                axis.plot(N, reference, ls=":", color="black", lw=1)
        axis.set_yscale("log")
        doublings_axis(axis, cell["N"], "N")
    axes[-1].legend(title="step", loc="center left", bbox_to_anchor=(1, 0.5), title_fontsize=7)
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
