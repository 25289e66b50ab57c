"""The figures of residual scaling (002): growth with the loops, cosines between increments, rates that transfer."""

from collections.abc import Iterable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from lib.figures.style import COLUMN, PAGE, few_decades, rate, shades

#: of the rules for alpha, whatever the architecture
MARKS = {"none": ("o", "-"), "1/sqrt(N)": ("s", "--"), "1/N": ("^", "-."), "1/(N sqrt(L))": ("D", ":")}


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
            axis.set_yscale("log")
            axis.set_title(f"{title}, {_alpha(rule)}")
        axes[row, 0].set_ylabel(label)
        axes[row, -1].legend(title="N", loc="center left", bbox_to_anchor=(1, 0.5), title_fontsize=7)
    for axis in axes[-1]:
        axis.set_xlabel("optimiser step")
    return figure


def growth(
    measured: pd.DataFrame, quantity: str, label: str, look: dict[str, str], exponents: pd.DataFrame, least: int
) -> Figure:
    """``quantity`` against the loops N, log-log: a panel a model (title -> name of its colour), a line a rule. The
    legend has the mean of the exponents fitted over N >= ``least`` (columns model, rule, exponent). Bars span the
    seeds."""
    figure, axes = plt.subplots(1, len(look), figsize=(PAGE, 2.6), squeeze=False)
    for axis, (title, architecture) in zip(axes[0], look.items(), strict=True):
        cell = measured[measured["model"] == title]
        rules = list(dict.fromkeys(cell["rule"]))
        for rule, colour in zip(rules, shades(architecture, len(rules)), strict=True):
            seeds = cell[cell["rule"] == rule].groupby("N")[quantity]
            mean = seeds.mean()
            found = exponents[(exponents["model"] == title) & (exponents["rule"] == rule)]["exponent"]
            marker, line = MARKS[rule]
            axis.plot(
                mean.index,
                mean,
                marker=marker,
                ls=line,
                color=colour,
                label=f"{_alpha(rule)}: $N^{{{found.mean().round(2) + 0.0:.2f}}}$",
            )
            axis.vlines(mean.index, seeds.min(), seeds.max(), color=colour, lw=0.8)
        axis.set_yscale("log")
        low, high = cell[quantity].min(), cell[quantity].max()
        if high < 2 * low:  # constant, but for rounding
            axis.set_ylim(low / 10, high * 10)
        if high < 100 * low:  # there are one or two whole decades to tick
            few_decades(axis)
        _powers_of_two(axis, cell["N"])
        axis.set_title(title)
        over = rf"slope over $N \geq {least}$"
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.28), title=over, title_fontsize=7)
    axes[0, 0].set_ylabel(label)
    return figure


def growth_in_layers(blocks: pd.DataFrame, architecture: str) -> Figure:
    """Theorem 3: the squared norm, the square of the branches' sum, and the change by one step, against the layers L of
    a block; a line a rule and number of loops N (light: few), the mean of the seeds."""
    panels = {"square": r"$\|x_N\|^2 / d$", "branches": r"$\|x_N - x_0\|^2 / d$", "change": "RMS change by one step"}
    figure, axes = plt.subplots(1, len(panels), figsize=(PAGE, 2.8))
    loops, rules = sorted(blocks["N"].unique()), list(dict.fromkeys(blocks["rule"]))
    for axis, (quantity, label) in zip(axes, panels.items(), strict=True):
        for rule in rules:
            for N, colour in zip(loops, shades(architecture, len(loops)), strict=True):
                mean = blocks[(blocks["rule"] == rule) & (blocks["N"] == N)].groupby("L")[quantity].mean()
                marker, line = MARKS[rule]
                axis.plot(mean.index, mean, marker=marker, ls=line, color=colour, label=f"{_alpha(rule)}, N = {N}")
        few_decades(axis)
        _powers_of_two(axis, blocks["L"])
        axis.set_xlabel("L, layers of the block")
        axis.set_title(label)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(rules))  # filled by columns
    return figure


def changes(measured: pd.DataFrame, architecture: str, predicted: dict[str, float]) -> Figure:
    """002, Fig. 4 and 9: what one optimiser step changes in the output, against N; a panel a rule, a line a step (the
    lightest is the first, Fig. 4). The dotted line has the slope that Theorem 2 predicts and goes through the middle of
    the first step's."""
    rules, steps = list(dict.fromkeys(measured["rule"])), sorted(measured["step"].unique())
    figure, axes = plt.subplots(1, len(rules), figsize=(PAGE, 2.4), sharey=True, squeeze=False)
    for axis, rule in zip(axes[0], rules, strict=True):
        cell = measured[measured["rule"] == rule]
        for step, colour in zip(steps, shades(architecture, len(steps)), strict=True):
            mean = cell[cell["step"] == step].groupby("N")["change"].mean()
            axis.plot(mean.index, mean, color=colour, marker="o" if step == steps[0] else None, ms=3, label=f"{step}")
            if step == steps[0]:
                N, middle = mean.index.to_numpy(), len(mean) // 2
                reference = mean.iloc[middle] * (N / N[middle]) ** predicted[rule]
                axis.plot(N, reference, ls=":", color="black", lw=1)
        axis.set_yscale("log")
        _powers_of_two(axis, cell["N"])
        axis.set_title(f"{_alpha(rule)}, predicted $N^{{{predicted[rule]:g}}}$")
    axes[0, 0].set_ylabel("RMS change of the output\nby one optimiser step")
    axes[0, -1].legend(title="step", loc="center left", bbox_to_anchor=(1, 0.5), title_fontsize=7)
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
        axis.set_xticks(ticks)
        axis.set_yticks(ticks)
        axis.grid(visible=False)
        axis.set_title(title)
    for axis in axes[-1]:
        axis.set_xlabel("increment")
    for axis in axes[:, 0]:
        axis.set_ylabel("increment")
    figure.colorbar(image, ax=axes, label="cosine", shrink=0.8, ticks=(-1, -0.5, 0, 0.3, 0.6, 1))
    return figure


def best_rates(best: pd.DataFrame, group: str, names: dict[str, Any], over: str, architecture: str) -> Figure:
    """The best rate of each condition against the column ``over``, the loops N at one number of layers L or the other
    way round, with the parabola's 95 % interval. There is a line for each value of the column ``group`` that ``names``
    gives a name; a hollow marker lies outside the rates tried. best is a table of ``transfer.best_rates``."""
    figure, axis = plt.subplots(figsize=(COLUMN, 2.6))
    for i, (value, name) in enumerate(names.items()):
        colour, marker = shades(architecture, len(names))[i], "os^D"[i % 4]
        cell = best[best[group] == value].sort_values(over)
        x = cell[over] * 1.03 ** (i - len(names) / 2)  # beside each other
        axis.vlines(x, cell["low"], cell["high"], color=colour, lw=0.9)
        axis.plot(x, cell["lr"], color=colour, lw=1)
        axis.plot([], [], marker=marker, color=colour, lw=1, label=name)
        for inside, fill in ((True, colour), (False, "white")):
            some = (cell["inside"] == inside).to_numpy()
            if not some.any():
                continue
            axis.plot(x[some], cell["lr"][some], marker, color=colour, mfc=fill)
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 4, 6, 8)))
    axis.yaxis.set_major_formatter(lambda value, _: rate(value))
    axis.yaxis.set_minor_locator(NullLocator())
    _powers_of_two(axis, best[over])
    words, fixed = {"N": ("loops N", "L"), "L": ("unique layers L", "N")}[over]
    (at,) = best[fixed].unique()
    axis.set_xlabel(f"{words} ({fixed} = {at})")
    axis.set_ylabel("best base learning rate")
    figure.legend(loc="outside upper center", ncols=len(names))
    return figure


def norms_by_loop(panels: dict[str, dict[int, np.ndarray]], architecture: str) -> Figure:
    """002, Fig. 7: the stream's norm after each loop, from the embedding at 0. panels: title -> number of loops N ->
    norms [seeds, N + 1]; a panel a title, a line a number of loops (light: few), a band that spans the seeds."""
    figure, axes = plt.subplots(1, len(panels), figsize=(PAGE, 2.3), sharey=True, squeeze=False)
    loops = sorted({N for lines in panels.values() for N in lines})
    colours = dict(zip(loops, shades(architecture, len(loops)), strict=True))
    for axis, (title, lines) in zip(axes[0], panels.items(), strict=True):
        for N, norms in lines.items():
            norms = np.asarray(norms)
            axis.plot(range(N + 1), norms.mean(0), "o-", ms=3, color=colours[N], label=f"N = {N}")
            axis.fill_between(range(N + 1), norms.min(0), norms.max(0), color=colours[N], alpha=0.2, lw=0)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.set_title(title)
        axis.set_xlabel("loop step")
        axis.legend()
    axes[0, 0].set_ylabel(r"norm of the stream $\|x_t\|_2$")
    return figure


def over_training(traces: pd.DataFrame, quantities: dict[str, str], architecture: str) -> Figure:
    """What is traced, over training steps: a row a depth L, a column a quantity (column of ``traces`` -> axis label), a
    line a number of loops N, the mean of the seeds; bands span the seeds."""
    depths, loops = sorted(traces["L"].unique()), sorted(traces["N"].unique())
    colours = dict(zip(loops, shades(architecture, len(loops)), strict=True))
    figure, axes = plt.subplots(
        len(depths), len(quantities), figsize=(PAGE, 1.6 * len(depths) + 0.7), sharex=True, sharey="col", squeeze=False
    )
    for row, L in zip(axes, depths, strict=True):
        for axis, (quantity, label) in zip(row, quantities.items(), strict=True):
            for N, colour in colours.items():
                cell = traces[(traces["L"] == L) & (traces["N"] == N)].dropna(subset=[quantity])
                if cell.empty:
                    continue
                seeds = cell.groupby("step")[quantity]
                axis.plot(seeds.mean().index, seeds.mean(), "o-", ms=2.5, color=colour)
                axis.fill_between(seeds.mean().index, seeds.min(), seeds.max(), color=colour, alpha=0.2, lw=0)
            axis.set_ylabel(label)
            axis.set_title(f"L = {L}")
    for axis in axes[-1]:
        axis.set_xlabel("training step")
    handles = [Line2D([], [], marker="o", ms=2.5, color=colour, label=f"N = {N}") for N, colour in colours.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(loops))
    return figure


def _alpha(rule: str) -> str:
    return {
        "none": r"$\alpha = 1$",
        "1/sqrt(N)": r"$\alpha = 1/\sqrt{N}$",
        "1/N": r"$\alpha = 1/N$",
        "1/(N sqrt(L))": r"$\alpha = 1/(N\sqrt{L})$",
    }[rule]


def _powers_of_two(axis: Axes, values: Iterable[int]) -> None:
    """A log-2 x axis of loops N (or layers), ticked at the values that there are."""
    axis.set_xscale("log", base=2)
    ticks = sorted(set(values))
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.set_xlabel("N")
