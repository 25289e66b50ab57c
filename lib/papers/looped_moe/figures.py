"""The figures of Looped-MoE and early exit (004)."""

import itertools
import math
from collections.abc import Iterable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator, PercentFormatter
from matplotlib.typing import ColorType

from lib.figures.style import (
    COLOURS,
    COLUMN,
    MARKERS,
    PAGE,
    count_axis,
    filled_where,
    isoflop_curve,
    legend_above,
    rate,
    row_of_panels,
    shades,
)
from lib.fit.fits import power_law
from lib.model.routing import KINDS
from lib.papers.looped_moe.core_nine import NINE
from lib.papers.looped_moe.designs import LOOK, TITLES

KAPLAN = 0.076  # the exponent of L ~ N^-a that 004 compares with
PALE = 0.75  # opacity of the bars of chance
BESIDE = 0.01  # between two batches, of the share of loops that both save
#: early-exit criteria: line and marker
CRITERIA = {"entropy": ("-", "o"), "kl": ("--", "s"), "l2": (":", "^"), "acceleration": ("-.", "v")}


def isoflop_curves(runs: pd.DataFrame, optima: pd.DataFrame) -> Figure:
    """004, Fig. isoflops: loss against active parameters; a panel an architecture, a shade a budget with its parabola
    and star. Three stars or more have a line through them, and beside it, dashed, Kaplan's slope."""
    titles = {name: TITLES[name] for name in runs["architecture"].unique()}
    slopes: list[Line2D] = []
    budgets = sorted(runs["budget"].unique())
    figure, axes = row_of_panels(titles.values(), 2.6, ylabel="validation loss (nats per token)", sharey=True)
    for axis, name in zip(axes, titles, strict=True):
        own, stars = runs[runs["architecture"] == name], optima[(optima["architecture"] == name) & optima["inside"]]
        for budget, colour in zip(budgets, shades(LOOK[name], len(budgets)), strict=True):
            cell = own[own["budget"] == budget]
            best = stars[stars["budget"] == budget]
            isoflop_curve(axis, cell, best, colour, "o")  # a MoE's own marker is a star
        if len(stars) > 2:
            coef, slope, _ = power_law(stars["N"], stars["loss"])
            N = np.array([own["N"].min(), own["N"].max()])
            slopes = axis.plot(N, coef * N**slope, color="#444444", lw=0.9, label="through the stars")
            middle = np.exp(np.log(stars["N"]).mean()), np.exp(np.log(stars["loss"]).mean())
            kaplan = middle[1] * (N / middle[0]) ** -KAPLAN
            slopes += axis.plot(N, kaplan, "--", color="#999999", lw=0.9, label=f"slope {-KAPLAN}")
            axis.set_title(f"{TITLES[name]}\n$L \\sim N^{{{slope:.2f}}}$")
        count_axis(axis, "active parameters")
    span = runs["loss"].max() - runs["loss"].min()
    axes[0].set_ylim(runs["loss"].min() - 0.08 * span, runs["loss"].max() + 0.08 * span)
    handles = [
        Line2D([], [], color=colour, marker="o", ms=3.5, lw=0.9, label=f"{rate(budget)} FLOPs")
        for budget, colour in zip(budgets, shades("looped-nanochat", len(budgets)), strict=True)
    ]
    handles += slopes
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return figure


def combined(best: pd.DataFrame) -> Figure:
    """004, Fig. combined scaling: the loss of each architecture's best models (``designs.best_models``) against the
    budget, active and stored parameters. A marker is open where the model is only the best of the sizes trained."""
    columns = {"budget": "budget (FLOPs)", "N": "active parameters", "stored": "stored parameters"}
    figure, axes = plt.subplots(1, 3, figsize=(PAGE, 2.5), sharey=True)
    for axis, (column, label) in zip(axes, columns.items(), strict=True):
        for name, line in best.groupby("architecture", sort=False):
            look = LOOK[name]
            axis.plot(line[column], line["loss"], "-", color=COLOURS[look], lw=0.9)
            filled_where(axis, line[column], line["loss"], line["inside"], MARKERS[look], COLOURS[look])
            axis.plot([], [], MARKERS[look], color=COLOURS[look], label=TITLES[name])
        count_axis(axis, label)
        if column == "budget":
            budgets = sorted(best["budget"].unique())
            axis.set_xticks(budgets, [rate(x) for x in budgets])
    axes[0].set_ylabel("best loss (nats per token)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(LOOK))
    return figure


# ---- routing ---------------------------------------------------------------------------------------------------------


def overlaps(panels: dict[str, Any]) -> Figure:
    """004, Fig. "Expert assignment overlap": a panel a model, title -> table of ``routing.divergence`` averaged over
    seeds; a bar a layer and pair of loops, and beside it, narrow and pale, what chance gives at the same load."""
    sizes = [len(table) for table in panels.values()]
    figure, axes = plt.subplots(
        1, len(panels), figsize=(PAGE, 2.7), sharey=True, squeeze=False, width_ratios=[max(4, size) for size in sizes]
    )
    colours = dict(zip(KINDS, (COLOURS["looped-moe"], "#D9D9D9", "#6B6B6B"), strict=True))
    for axis, (title, table) in zip(axes[0], panels.items(), strict=True):
        x = np.arange(len(table))
        for suffix, offset, width, alpha in (("", -0.12, 0.5, 1.0), (" by chance", 0.28, 0.22, PALE)):
            bottom = np.zeros(len(table))
            for kind, colour in colours.items():
                share = table[kind + suffix].to_numpy()
                label = kind if not suffix else None
                axis.bar(x + offset, share, width, bottom, color=colour, alpha=alpha, label=label)
                bottom += share
        several = table[["first", "second"]].drop_duplicates().shape[0] > 1
        names = [f"{row.layer}: {row.first}-{row.second}" if several else f"{row.layer}" for row in table.itertuples()]
        axis.set_xticks(x, names, rotation=90 if len(names) > 8 else 0)
        axis.set(title=title, xlabel="layer: loops" if several else "layer")
        axis.grid(visible=False, axis="x")
        axis.set_axisbelow(True)
    _in_percent(axes[0, 0].yaxis)
    axes[0, 0].set_ylabel("tokens")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    words = [f"{label} of the experts kept" if label == "none" else label for label in labels]
    pale = Line2D([], [], ls="", marker="|", ms=7, mew=3.5, color=COLOURS["looped-moe"], alpha=PALE)
    figure.legend([*handles, pale], [*words, "narrow and pale: by chance"], loc="outside upper center", ncols=4)
    return figure


def overlap_growth(curves: pd.DataFrame) -> Figure:
    """The shares of tokens that keep none or all of their experts from one loop to another, over training steps, means
    of layers and pairs of loops. A thin line is a seed, a thick one the mean of the seeds, a dashed one what chance
    gives. curves: a table of ``designs.routing_curves``."""
    models = dict(tuple(curves.groupby("name", sort=False)))
    figure, axes = row_of_panels(models, 2.4, "training step", "tokens", sharey=True)
    for axis, own in zip(axes, models.values(), strict=True):
        for kind, colour, marker in (("none", COLOURS["looped-moe"], "d"), ("identical", "#6B6B6B", "s")):
            for _, line in own.groupby("seed"):
                axis.plot(line["step"], line[kind], color=colour, lw=0.5, alpha=0.6)
            mean = own.groupby("step")[[kind, f"{kind} by chance"]].mean()
            label = "none kept" if kind == "none" else kind
            axis.plot(mean.index, mean[kind], marker + "-", color=colour, ms=3, label=label)
            axis.plot(mean.index, mean[f"{kind} by chance"], "--", color=colour, lw=0.9, label=f"{label}, by chance")
    _in_percent(axes[0].yaxis)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


# ---- exits -----------------------------------------------------------------------------------------------------------


def look_of(names: Iterable[str]) -> dict[str, tuple[ColorType, str]]:
    """(colour, marker) of each model's name, ordered by architecture, the same in every figure. With two loops they are
    the architecture's own. With more, up to 16, the colour is the darker, and the marker changes at three, six and
    twelve."""
    looks: dict[str, tuple[ColorType, str]] = {}
    names = list(dict.fromkeys(names))
    for architecture, title in TITLES.items():
        own = LOOK[architecture]
        colours, markers = [COLOURS[own], *shades(own, 33)[17:]], MARKERS[own] + "so^"
        for name in (name for name in names if name.rsplit(" ", 1)[0] == title):
            loops = int(name.rpartition("x")[2]) if name != title else 2
            doublings = min(max(math.log2(loops) - 1, 0), 3)
            looks[name] = (colours[round(16 * doublings / 3)], markers[round(doublings)])
    return looks


def convergence(table: pd.DataFrame, boundaries: list[int]) -> Figure:
    """004, Fig. JSD. Left: the mean divergence of each effective layer's prediction from the last one's, with its
    standard deviation over sequences. Right: the share of tokens below 0.5. Dotted lines are ends of loops. table:
    ``exits.convergence``, with name and seed."""
    figure, axes = plt.subplots(1, 2, figsize=(PAGE, 2.7))
    looks = look_of(table["name"])
    for name, (colour, marker) in looks.items():
        mean = table[table["name"] == name].groupby("layer")[["divergence", "spread", "converged"]].mean()
        axes[0].plot(mean.index, mean["divergence"], marker + "-", color=colour, ms=3.5, label=name)
        low, high = mean["divergence"] - mean["spread"], mean["divergence"] + mean["spread"]
        axes[0].fill_between(mean.index, low, high, color=colour, alpha=0.1, lw=0)
        axes[1].plot(mean.index, mean["converged"], marker + "-", color=colour, ms=3.5)
    for axis in axes:
        for boundary in boundaries:
            axis.axvline(boundary, color="#666666", lw=0.8, ls=":")
        axis.set(xticks=sorted(table["layer"].unique()), xlabel="effective layer")
    axes[0].set(ylabel="divergence from the last (JSD)", ylim=(0, None))
    axes[1].set_ylabel("tokens with JSD below 0.5")
    _in_percent(axes[1].yaxis)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(looks))
    return figure


def trade_offs(panels: dict[str, Any]) -> Figure:
    """004, Fig. early exit and Fig. "More loops": perplexity against the share of the depth that is saved, the mean of
    the seeds where all of them save so much. panels: title -> table with the columns name, saved, perplexity."""
    figure, axes = row_of_panels(panels, 2.9, "FLOPs saved", "perplexity per token", sharey=True)
    looks = look_of(name for table in panels.values() for name in table["name"])
    for axis, table in zip(axes, panels.values(), strict=True):
        for name, own in table.groupby("name", sort=False):
            colour, marker = looks[name]
            line = own.groupby("saved")["perplexity"].mean(skipna=False)
            axis.plot(line.index, line, marker + "-", color=colour, ms=3.5, label=name)
        _perplexities(axis)
        _in_percent(axis.xaxis)
    handles = {line.get_label(): line for axis in axes for line in axis.lines}
    figure.legend(handles=list(handles.values()), loc="outside upper center", ncols=4)
    return figure


def leaving(models: dict[str, dict[str, Any]], threshold: float) -> Figure:
    """Models, name -> what ``measured.leaving`` found, whose tokens leave where their entropy is below a threshold.
    Left: perplexity against the share of the depth that is saved, over all thresholds, with a star at the one nearest
    to this. Right: the share of the tokens that are still computed at each depth, each line thinner than those under
    it, so that it hides none."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE, 2.8))
    for i, (name, (colour, marker)) in enumerate(look_of(models).items()):
        found = models[name]
        at = int(np.abs(np.array(found["threshold"]) - threshold).argmin())
        left.plot(found["saved"], found["perplexity"], color=colour, lw=0.9)
        left.plot(found["saved"][at], found["perplexity"][at], "*", color=colour, ms=10, mec="white", mew=0.5)
        used = [computed[at] for computed in found["computed"]]
        right.plot(
            [0, *found["depth"]],
            [1, *used],
            drawstyle="steps-pre",  # all are computed up to the first exit
            lw=2 * 0.8**i,
            marker=marker,
            ms=4.5,
            mew=1,
            mfc="none",
            markevery=slice(1, None),
            color=colour,
            label=name,
        )
    _perplexities(left)
    left.set(title=f"out below {threshold:.2f} nats of entropy", xlabel="FLOPs saved", ylabel="perplexity per token")
    right.set(xlabel="share of the depth", ylabel="tokens still computed", ylim=(-0.03, 1.03))
    _in_percent(left.xaxis, right.xaxis, right.yaxis)
    figure.legend(*right.get_legend_handles_labels(), loc="outside upper center", ncols=len(models))
    return figure


def criteria(table: pd.DataFrame) -> Figure:
    """Perplexity against the share of the depth that each criterion saves, a panel a model. table: name, criterion,
    saved, perplexity."""
    looks = look_of(table["name"])
    colours = shades("looped-nanochat", 5)
    figure, axes = row_of_panels(looks, 2.6, "FLOPs saved", "perplexity per token", sharex=True, sharey=True)
    for axis, name in zip(axes, looks, strict=True):
        for (criterion, (style, marker)), colour in zip(CRITERIA.items(), reversed(colours), strict=False):
            own = table[(table["name"] == name) & (table["criterion"] == criterion)]
            line = own.groupby("saved")["perplexity"].mean(skipna=False)
            axis.plot(line.index, line, marker + style, color=colour, ms=3.5, label=criterion)
        _perplexities(axis)
        _in_percent(axis.xaxis)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def saved_time(table: pd.DataFrame) -> Figure:
    """Time saved against loops saved, a panel a width; on the dotted line they are the same. Batches stand beside each
    other. table: width, what (decoding or prefill), batch, saved, time, and the range of the rounds' times from low to
    high."""
    widths = {f"d = {width}": own for width, own in table.groupby("width")}
    figure, axes = row_of_panels(widths, 2.8, "loops saved", "time saved", sharex=True, sharey=True)
    palette = itertools.cycle((COLOURS["looped"], "#E69F00", "#000000"))
    colours = {batch: next(palette) for batch in sorted(table["batch"].unique())}
    for axis, own in zip(axes, widths.values(), strict=True):
        axis.plot([0, own["saved"].max()], [0, own["saved"].max()], color="#999999", lw=0.8, ls=":")
        for (what, batch), line in own.groupby(["what", "batch"], sort=False):
            style, marker = ("-", "o") if what == "decoding" else ("--", "s")
            colour, label = colours[batch], f"{what}, batch {batch}"
            x = line["saved"] + BESIDE * (list(colours).index(batch) - (len(colours) - 1) / 2)
            axis.plot(x, line["time"], marker + style, color=colour, ms=3.5, label=label)
            axis.vlines(x, line["low"], line["high"], color=colour, lw=0.7)
        _in_percent(axis.xaxis, axis.yaxis)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def debts(table: pd.DataFrame) -> Figure:
    """What leaving costs: ``counted`` as 004 does, where everybody sees what those who left would have computed, and
    ``decoded``, where their last entries stand in for it. table: name, saved, counted, decoded (perplexities)."""
    figure, axis = plt.subplots(figsize=(COLUMN, 2.7))
    for name, (colour, marker) in look_of(table["name"]).items():
        own = table[table["name"] == name]
        for column, style, face in (("counted", ":", "white"), ("decoded", "-", colour)):
            label = f"{name}, {column}"
            axis.plot(own["saved"], own[column], marker + style, color=colour, ms=3.5, mfc=face, label=label)
    _perplexities(axis)
    _in_percent(axis.xaxis)
    axis.set(xlabel="loops saved", ylabel="perplexity per token")
    axis.legend()
    return figure


def _perplexities(axis: Axes) -> None:
    """A log y axis that spans less than a decade."""
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(MaxNLocator(6))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_locator(NullLocator())


def _in_percent(*axes: Axis) -> None:
    for axis in axes:
        axis.set_major_formatter(PercentFormatter(1, decimals=0))


def core_9(runs: pd.DataFrame) -> Figure:
    """The accuracy of 004's architectures on the tasks of Core 9, the mean of the seeds; bars are standard errors over
    examples, dotted lines the accuracy of guessing. runs: ``core_nine.nine_scores`` with a column architecture."""
    figure, panel = plt.subplots(figsize=(PAGE, 2.6))
    tasks = list(NINE)
    at, chance = np.arange(len(tasks)), np.array([task.chance for task in NINE.values()])
    means = runs.groupby("architecture").mean(numeric_only=True)
    groups = means.reindex([name for name in LOOK if name in means.index])
    for i, (architecture, mean) in enumerate(groups.iterrows()):
        panel.errorbar(
            at + 0.16 * (i - (len(groups) - 1) / 2),
            mean[tasks],
            mean[[f"{name} stderr" for name in tasks]],
            ls="",
            lw=1,
            ms=4,
            label=TITLES[architecture],
            color=COLOURS[LOOK[architecture]],
            marker=MARKERS[LOOK[architecture]],
        )
    panel.hlines(chance, at - 0.4, at + 0.4, color="#888888", lw=0.8, ls=":")
    panel.set_xticks(at, tasks)
    panel.grid(axis="x", visible=False)
    panel.set_ylabel("accuracy (%)")
    legend_above(figure, panel)
    return figure
