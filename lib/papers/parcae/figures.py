"""The figures that several notebooks of 001 draw: losses by test-time loops, what a learning rate does to a run, and
numbers seed by seed."""

import itertools
from collections.abc import Iterable
from typing import Any, Literal

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.typing import ColorType

from lib.figures.style import (
    COLOURS,
    COLUMN,
    MARKERS,
    NAMES,
    PAGE,
    count_axis,
    doublings_axis,
    few_decades,
    legend_above,
    rate,
    row_of_panels,
    shades,
)

_LIGHT, _, _OWN, _, _DARK = shades("parcae", 5)
#: the looks of the rungs of 001's table of stability, and of samplers; Parcae's variants are shades of its colour
VARIANTS = {
    "RDM": (COLOURS["base"], "o"),
    "+ constrained A": (_LIGHT, "s"),
    "+ constrained A, as released": ("#999999", "P"),
    "+ per-sequence": (_DARK, "v"),
    "+ prelude norm": (_OWN, "^"),
    "per batch": (_LIGHT, "s"),
    "per batch, as released": ("#999999", "P"),
    "per sequence": (_DARK, "v"),
    "full backpropagation": ("#0072B2", "D"),
    "fill": ("#E69F00", "<"),
    "correction": (_OWN, "^"),
}
LATE = 4  # loops after which losses lie close together


def ordered(values: Iterable[Any]) -> dict[Any, tuple[ColorType, str]]:
    """value -> (colour, marker), from light for the least value to dark for the most."""
    values = sorted(values)
    return dict(
        zip(values, zip(shades("parcae", len(values)), itertools.cycle("os^vD<>P*X"), strict=False), strict=True)
    )


def loss_by_depth(
    panels: dict[str, Any], looks: dict[str, Any], trained: int | None = None, sharey: Literal["row", "none"] = "row"
) -> Figure:
    """Validation loss against test-time loops T, one column for each title -> losses (variant, seed, T, loss), at every
    T and below once more from LATE on, where all T but the first few lie close together. Each variant has a line
    through its means over seeds and a dot for each seed, a little beside those of the others. ``trained`` marks
    mean_loops."""
    late = {T for losses in panels.values() for T in losses["T"] if T >= LATE}
    starts = [1, LATE] if len(late) > 1 else [1]
    figure, axes = plt.subplots(
        len(starts),
        len(panels),
        figsize=(COLUMN if len(panels) == 1 else PAGE, 2.3 * len(starts) + 0.5),
        squeeze=False,
        sharey=sharey,
    )
    for row, start in zip(axes, starts, strict=True):
        for axis, (title, losses) in zip(row, panels.items(), strict=True):
            shown = losses[losses["T"] >= start]
            variants, octaves = shown["variant"].nunique(), np.log2(shown["T"].max() / start)
            beside = 2 ** (0.02 * octaves * (np.arange(variants) - (variants - 1) / 2))
            for (variant, own), shift in zip(shown.groupby("variant", sort=False), beside, strict=True):
                colour, marker = looks[variant]
                mean = own.groupby("T")["loss"].mean()
                axis.plot(own["T"] * shift, own["loss"], marker, color=colour, ms=2.5, alpha=0.6)
                axis.plot(
                    mean.index * shift, mean, marker + "-", color=colour, mfc="white", ms=4.5, lw=1, label=str(variant)
                )
            axis.plot([], [], "o", color="#666666", ms=2.5, label="small: one seed")
            few = {1, 2, 4, 8, 12, 16, 20, 24, 32, 64} & {*shown["T"]}
            doublings_axis(axis, few or shown["T"], "test-time loops T")
            axis.set_title(title if start == 1 else "")
            if trained is not None:
                axis.axvline(trained, color="#666666", lw=0.8, ls=":", label=r"$T = \mu_{rec}$")
            if start == 1:
                axis.legend(frameon=True, framealpha=1, edgecolor="none")  # it hides the dotted line behind it
        row[0].set_ylabel(f"validation loss{f' from T = {start} on' * (start > 1)}\n(nats per token)")
    return figure


def log_axis(axis: Axes, values: pd.Series) -> None:
    """A log y axis for ``values``, labelled in full where they span less than two decades."""
    if values.max() < 100 * values.min():
        few_decades(axis)
    else:
        axis.set_yscale("log")


def training_curves(
    curves: pd.DataFrame,
    quantities: dict[str, str],
    reference: dict[str, tuple[float, str]],
    xlabel: str,
    names: dict[str, str] = NAMES,
    rates_of: str = "learning rate",
) -> Figure:
    """A grid of panels for one seed: one row for each of ``quantities`` (column of ``curves`` -> axis label), one
    column for each architecture, one line for each learning rate, broad and light where it is low, thin and dark where
    it is high, the highest dashed. A cross ends a run that diverged, with its step where that is too early for a line.
    The loss, the first of them, is a running mean over a thirtieth of the run. Its axis leaves out the first fall: it
    spans nearly all that comes after a tenth of the steps. A cross above that stands at the panel's top.

    curves: architecture, lr, status, step and the quantities; reference: a level to draw, and what it is, by quantity;
    names: titles of the architectures; rates_of: what the rates are called.
    """
    architectures = list(dict.fromkeys(curves["architecture"]))
    rates = sorted(curves["lr"].unique())
    breadth = dict(zip(rates, np.linspace(1.7, 0.8, len(rates)), strict=True))  # also lines on one place are seen
    late = curves.loc[curves["step"] >= 0.1 * curves["step"].max(), "loss"].replace(np.inf, np.nan)
    least, most = late.quantile([0, 0.995])
    tops = {"loss": max(most, reference["loss"][0]) + 0.2}
    figure, axes = plt.subplots(
        len(quantities),
        len(architectures),
        figsize=(PAGE, 1.55 * len(quantities) + 0.75),
        sharex=True,
        sharey="row",
        squeeze=False,
    )
    for column, architecture in enumerate(architectures):
        colours = dict(zip(rates, shades(architecture, len(rates)), strict=True))
        for row, (quantity, label) in enumerate(quantities.items()):
            axis = axes[row, column]
            for lr, run in curves[curves["architecture"] == architecture].groupby("lr"):
                run = run.dropna(subset=[quantity])
                y = run[quantity]
                if quantity == "loss":
                    # the noise of ten runs' batches would hide the lines
                    y = y.rolling(max(1, len(y) // 30), min_periods=1).mean()
                # two dark shades are nearly one
                axis.plot(
                    run["step"], y, "--" if lr == rates[-1] else "-", color=colours[lr], label=rate(lr), lw=breadth[lr]
                )
                if (run["status"] == "diverged").any():
                    end = (run["step"].iloc[-1], min(y.iloc[-1], tops.get(quantity, np.inf)))
                    axis.plot(*end, "x", color=colours[lr], ms=4.5, mew=1.2, clip_on=False, zorder=3)
                    if row == 0 and end[0] < 0.02 * curves["step"].max():
                        beside, look = 5 + 34 * len(axis.texts), {"color": colours[lr], "fontsize": 7}
                        axis.annotate(f"step {end[0]:.0f}", end, (beside, -3), textcoords="offset points", **look)
            if quantity in reference:
                axis.axhline(reference[quantity][0], color="#666666", lw=0.8, ls=":" if quantity == "loss" else "-.")
            axis.set_ylabel(label if column == 0 else "")
            if quantity != "loss":
                log_axis(axis, curves[quantity])
        axes[0, column].set_title(names[architecture])
        axes[-1, column].set_xlabel(xlabel)
        axes[-1, column].legend(
            title=rates_of,
            title_fontsize=7,
            ncols=3,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.42),
            columnspacing=1.0,
            handlelength=1.2,
            handletextpad=0.4,
        )
    axes[0, 0].set_ylim(least - 0.1, tops["loss"])
    figure.legend(
        handles=[
            Line2D(
                [], [], ls="", marker="x", color="#666666", label="run ended as diverged (at the top: it ends above)"
            ),
            *(
                Line2D([], [], ls=":" if quantity == "loss" else "-.", lw=0.8, color="#666666", label=what)
                for quantity, (_, what) in reference.items()
            ),
        ],
        loc="outside upper center",
        ncols=1 + len(reference),
    )
    return figure


def number_by_number(
    titles: dict[str, str], groups: dict[str, tuple[pd.DataFrame, pd.Series, str]], ylabel: str
) -> Figure:
    """A panel for each column -> title, in it each group's column of numbers and what stands for them: a dot a number,
    in their order, and a bar, or a diamond where it is another thing; the legend has its name."""
    figure, axes = row_of_panels(titles.values(), 2.7, ylabel=ylabel)
    marks = dict(zip(dict.fromkeys(name for *_, name in groups.values()), (("_", 22), ("D", 5)), strict=False))
    for axis, column in zip(axes, titles, strict=True):
        for place, (numbers, middle, name) in enumerate(groups.values()):
            across = place + np.linspace(-0.2, 0.2, len(numbers))
            axis.plot(across, numbers[column], "o", color=_OWN, ms=3 if len(numbers) < 20 else 1.5, mew=0, alpha=0.7)
            mark, size = marks[name]
            axis.plot(place, middle[column], mark, color="black", ms=size, mew=1.3, label=name)
        axis.set_xticks(range(len(groups)), groups)
        axis.set_xlim(-0.5, len(groups) - 0.5)
    legend_above(figure, axes[0])
    return figure


def bars(axis: Axes, runs: pd.DataFrame, over: str, column: str, beside: float = 1.0, **look: Any) -> None:
    """Means of a score with one standard error over examples, and a dot a seed. beside: a factor, so that bars do not
    lie on one another."""
    mean = runs.groupby(over)[[column, f"{column} stderr"]].mean()
    axis.errorbar(mean.index * beside, *mean.T.to_numpy(), ms=4, lw=1, **look)
    axis.plot(runs[over] * beside, runs[column], look["marker"], ms=2.5, alpha=0.5, color=look["color"])


def by_size(runs: pd.DataFrame, units: dict[str, str], guessing: dict[str, float]) -> Figure:
    """A panel for each score that was measured, against the size; what guessing scores is dotted."""
    shown = [column for column in units if runs[column].notna().any()] or [*units][:1]
    figure, axes = row_of_panels(shown, 2.6)
    for axis, column in zip(axes, shown, strict=True):
        for i, (name, own) in enumerate(runs.groupby("architecture", sort=False)):
            look = {"color": COLOURS[str(name)], "marker": MARKERS[str(name)]}
            bars(axis, own, "parameters", column, 0.995 + 0.01 * i, label=NAMES[str(name)], **look)
        if column in guessing:
            axis.axhline(guessing[column], color="#888888", lw=0.8, ls=":", label="guessing")
        count_axis(axis, "parameters")
        axis.set_ylabel(units[column])
        if "perplexity" in units[column]:
            few_decades(axis)
    axes[0].errorbar([], [], [], color="#666666", lw=1, label="mean, bar: one standard error over examples")
    axes[0].plot([], [], "o", color="#666666", ms=2.5, label="small: one seed")
    legend_above(figure, axes[0])
    return figure
