"""The figures of the iso-depth study (000)."""

from collections.abc import Iterable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.typing import ColorType

from lib.figures.style import (
    COLOURS,
    COLUMN,
    MARKERS,
    PAGE,
    budget_axis,
    count_axis,
    few_decades,
    isoflop_curve,
    legend_above,
    rate,
    shades,
)
from lib.fit.fits import Fit, power_law
from lib.fit.frontier import effective_parameters

#: (colour, marker) of 000's probes
PROBES: dict[str, tuple[ColorType, str]] = {
    "baseline": (COLOURS["isodepth"], MARKERS["isodepth"]),
    "truncated": (COLOURS["truncated"], MARKERS["truncated"]),
    "hyper-connections": (COLOURS["hyper-connections"], MARKERS["hyper-connections"]),
    "hyper-connections, as printed": (shades("hyper-connections", 4)[1], "H"),
}


def of_recurrences(recurrences: Iterable[int]) -> dict[int, tuple[ColorType, str]]:
    """(colour, marker) of each r: the plain model black, the looped ones in shades of their family's colour."""
    looped = sorted(r for r in recurrences if r > 1)
    colours = dict(zip(looped, shades("isodepth", len(looped) + 1)[1:], strict=True))
    colours[1] = to_rgb(COLOURS["transformer"])
    return {r: (colours[r], marker) for r, marker in zip(sorted(recurrences), "Dosv^<>", strict=False)}


def isoflop_curves(runs: pd.DataFrame, optima: pd.DataFrame) -> Figure:
    """000, Fig. 2: validation loss against unique parameters, one panel a budget, one parabola and star a recurrence;
    more than four budgets stand in two rows."""
    budgets = sorted(runs["budget"].unique())
    rows = 1 if len(budgets) <= 4 else 2
    size, columns = (PAGE, 0.4 + 2.3 * rows), -(-len(budgets) // rows)
    figure, axes = plt.subplots(rows, columns, figsize=size, sharey="row", squeeze=False)
    look = of_recurrences(runs["r"].unique())
    for axis, budget in zip(axes.ravel(), budgets, strict=False):
        for r, cell in runs[runs["budget"] == budget].groupby("r"):
            best = optima[(optima["budget"] == budget) & (optima["r"] == r) & optima["inside"]]
            isoflop_curve(axis, cell, best, *look[r], label=f"r = {r}")
        axis.set_title(f"{rate(budget)} FLOPs")
        count_axis(axis, "unique parameters N")
    for axis in axes.ravel()[: max(0, len(budgets) - columns)]:  # a panel stands below
        axis.set_xlabel("")
    for axis in axes.ravel()[len(budgets) :]:
        axis.remove()
    for axis in axes[:, 0]:
        axis.set_ylabel("validation loss (nats per token)")
    legend_above(figure, axes[0, 0])
    return figure


def optima_against_budget(optima: pd.DataFrame) -> Figure:
    """000, Fig. 3: compute-optimal parameters and tokens against the budget, with the exponents of their power laws in
    it. Open markers lie outside the widths trained and do not count."""
    figure, axes = plt.subplots(1, 2, figsize=(PAGE, 3.0))
    look = of_recurrences(optima["r"].unique())
    for axis, column, label in zip(axes, ("N", "D"), ("optimal parameters N*", "optimal tokens D*"), strict=True):
        for r, line in optima.dropna(subset=["N"]).groupby("r"):
            colour, marker = look[r]
            inside = line[line["inside"]]
            exponent = f"{power_law(inside['budget'], inside[column])[1]:.2f}" if len(inside) > 1 else "too few"
            look_of_r = dict(color=colour, marker=marker, ms=4.5)
            axis.plot(line["budget"], line[column], lw=0.9, label=f"r = {r}: {exponent}", **look_of_r)
            edge = line[~line["inside"]]
            axis.plot(edge["budget"], edge[column], ls="", mfc="white", **look_of_r)
        budget_axis(axis, sorted(optima["budget"].unique()))
        few_decades(axis)
        axis.set_ylabel(label)
        axis.legend(
            title="exponent in the budget", title_fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2
        )
    return figure


def predicted_against_measured(panels: dict[str, Any]) -> Figure:
    """000, Figs. 8 and 10: predicted against measured loss, one panel a fit. panels: title -> (fit, runs)."""
    figure, axes = plt.subplots(1, len(panels), figsize=(PAGE, 2.7), squeeze=False, sharex=True, sharey=True)
    look = of_recurrences({r for _, runs in panels.values() for r in runs["r"]})
    for axis, (title, (fit, runs)) in zip(axes[0], panels.items(), strict=True):
        predicted = runs["loss"] * np.exp(fit.residuals)
        for r, (colour, marker) in look.items():
            at = (runs["r"] == r).to_numpy()
            axis.plot(runs["loss"][at], predicted[at], marker, color=colour, ms=3.5, label=f"r = {r}")
        ends = [runs["loss"].min(), runs["loss"].max()]
        axis.plot(ends, ends, color="#666666", lw=0.8, ls=":", label="equal")
        rms = np.sqrt(np.mean((predicted - runs["loss"]) ** 2))
        axis.set_title(f"{_broken(title)}\n$R^2$ = {fit.r2:.3f}, rms {rms:.3f} nats")
        axis.set_xlabel("measured loss (nats)")
    axes[0, 0].set_ylabel("predicted loss (nats)")
    legend_above(figure, axes[0, 0])
    return figure


def residuals(panels: dict[str, Any]) -> Figure:
    """000, Fig. 9: residuals (measured less predicted) against unique parameters and tokens, one row a fit, one colour
    a budget. panels: title -> (fit, runs)."""
    size = (PAGE, 1.15 * len(panels) + 0.7)
    figure, axes = plt.subplots(len(panels), 2, figsize=size, squeeze=False, sharex="col", sharey=True)
    budgets = sorted({budget for _, runs in panels.values() for budget in runs["budget"]})
    look = dict(zip(budgets, zip(shades("looped-nanochat", len(budgets)), "osD^v<>", strict=False), strict=True))
    for i, (row, (title, (fit, runs))) in enumerate(zip(axes, panels.items(), strict=True)):
        off = runs["loss"] * (1 - np.exp(fit.residuals))
        for axis, column, label in zip(row, ("N", "D"), ("unique parameters N", "tokens D"), strict=True):
            for budget, (colour, marker) in look.items():
                at = runs["budget"] == budget
                axis.plot(runs[column][at], off[at], marker, color=colour, ms=3.5, label=f"{rate(budget)} FLOPs")
            axis.axhline(0, color="#666666", lw=0.8, ls=":")
            count_axis(axis, label if i == len(panels) - 1 else "")
        row[0].set_ylabel(f"{title}\nmeasured less\npredicted (nats)")
    legend_above(figure, axes[0, 0])
    return figure


def collapse(fit: Fit, phi: float, runs: pd.DataFrame) -> Figure:
    """Do the recurrences fall on one line? Loss less the law's term of the tokens, against effective parameters
    N_once + r^phi N_rec, and the law's line. fit: the joint law at this phi."""
    figure, axis = plt.subplots(figsize=(COLUMN, 3.0))
    law = fit.params
    loss = runs["loss"] - law["B"] * runs["D"] ** -law["beta"]
    worth = runs.apply(lambda run: effective_parameters(run["n_once"], run["n_rec"], run["r"], phi), axis=1)
    for r, (colour, marker) in of_recurrences(runs["r"].unique()).items():
        at = runs["r"] == r
        axis.plot(worth[at], loss[at], marker, color=colour, ms=3.5, label=f"r = {r}")
    N = np.geomspace(worth.min(), worth.max(), 60)
    axis.plot(N, law["E"] + law["A"] * N ** -law["alpha"], color="#666666", lw=0.8)
    count_axis(axis, r"effective parameters $N_{once} + r^\varphi N_{rec}$")
    axis.set_ylabel(r"loss less $B D^{-\beta}$ (nats)")
    rms = np.sqrt(np.mean((runs["loss"] * np.expm1(fit.residuals)) ** 2))
    axis.set_title(f"$\\varphi$ = {phi:.2f}: $R^2$ = {fit.r2:.3f}, rms {rms:.3g} nats")
    legend_above(figure, axis)
    return figure


def worth_of_a_recurrence(worth: pd.DataFrame, frontier: pd.DataFrame, measured: pd.DataFrame) -> Figure:
    """000, Fig. 1. Left: unique and effective parameters at one width, and FLOPs, relative to r = 1
    (``readings.worth``). Right: compute-optimal loss against budget by the law (``readings.frontiers``), dashed by the
    one fitted at phi = 1, crosses for the ``measured`` optima."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE, 2.8))
    look = of_recurrences(worth["r"])
    for column, colour, marker, label in (
        ("flops", "#666666", "o", "training FLOPs"),
        ("effective", COLOURS["isodepth"], "s", r"effective, $N_{once} + r^\varphi N_{rec}$"),
        ("unique", "#000000", "D", "unique parameters N"),
    ):
        left.plot(worth["r"], worth[column], marker=marker, color=colour, label=label)
    left.set_xscale("log", base=2)
    left.set_xticks(worth["r"], [str(r) for r in worth["r"]])
    left.set_ylim(bottom=0)
    left.set_title("at one width")
    left.set_xlabel("recurrences r")
    left.set_ylabel("relative to r = 1")
    left.legend(loc="lower left")
    for r, line in frontier.groupby("r"):
        shade, _ = look[r]
        right.plot(line["budget"], line["loss"], color=shade, label=f"r = {r}")
        points = measured[measured["r"] == r] if len(measured) else measured
        if len(points):
            right.plot(points["budget"], points["loss"], "x", color=shade, ms=4.5)
    unrolled = frontier[frontier["r"] == frontier["r"].min()]
    dashed = dict(color="#666666", ls="--", lw=0.9)
    right.plot(unrolled["budget"], unrolled["loss_unrolled"], **dashed, label=r"fit with $\varphi = 1$")
    right.plot([], [], "x", color="#666666", ms=4.5, label="minima of the parabolas")
    right.set_title("at the best width")
    budget_axis(right, sorted(measured["budget"].unique()))
    right.set_ylabel("compute-optimal loss (nats)")
    right.legend()
    return figure


def _broken(title: str) -> str:
    """A line for each part: beside each other there is no room for "hyper-connections, as printed"."""
    return title.replace(", ", ",\n")


def probed_curves(runs: pd.DataFrame, optima: pd.DataFrame, diverged: pd.DataFrame | None = None) -> Figure:
    """000, Fig. 4: iso-FLOP curves under each probe over those of the baseline, which are thin and grey; one row a
    probe, one column a budget. ``runs`` and ``optima`` have a column probe besides those of ``isoflop_curves``, and so
    has ``diverged`` (``readings.diverged``), whose runs are crosses at the top."""
    lost = runs.head(0) if diverged is None else diverged
    probes = [probe for probe in dict.fromkeys(runs["probe"]) if probe != "baseline"]
    budgets = sorted(runs["budget"].unique())
    size = (PAGE, 2.3 * len(probes) + 0.4)
    figure, axes = plt.subplots(len(probes), len(budgets), figsize=size, sharex="col", sharey="col", squeeze=False)
    look = of_recurrences(runs["r"].unique())
    for row, probe in zip(axes, probes, strict=True):
        for axis, budget in zip(row, budgets, strict=True):
            for r, (colour, marker) in look.items():
                for which in ("baseline", probe):
                    cell, best = (
                        table[(table["probe"] == which) & (table["budget"] == budget) & (table["r"] == r)]
                        for table in (runs, optima[optima["inside"]])
                    )
                    if which == "baseline" and r > 1:
                        isoflop_curve(axis, cell, best.head(0), "#bbbbbb", marker, ":")
                    elif len(cell):
                        isoflop_curve(axis, cell, best, colour, marker, label=f"r = {r}")
                at = lost[(lost["probe"] == probe) & (lost["budget"] == budget) & (lost["r"] == r)]["N"]
                axis.plot(at, [0.97] * len(at), "x", color=colour, ms=4.5, transform=axis.get_xaxis_transform())
            axis.set_title(f"{_broken(probe)}\n{rate(budget)} FLOPs")
            count_axis(axis, "unique parameters N")
        row[0].set_ylabel("validation loss (nats per token)")
    for axis in axes[:-1].ravel():
        axis.set_xlabel("")
    axes[0, 0].plot([], [], ":", color="#bbbbbb", marker="o", ms=3.5, label="baseline at the same r")
    if len(lost):
        axes[0, 0].plot([], [], "x", color="#666666", ms=4.5, label="diverged")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    figure.legend(named.values(), named.keys(), loc="outside upper center", ncols=len(named))
    return figure


def allocation_shifts(panels: dict[str, Any]) -> Figure:
    """000, App. G.3: compute-optimal width against budget under each probe, one panel a law. Open markers lie at the
    edge of the family's widths. panels: title -> ``readings.allocations`` with a column probe."""
    figure, axes = plt.subplots(1, len(panels), figsize=(PAGE, 2.6), squeeze=False)
    for axis, (title, table) in zip(axes[0], panels.items(), strict=True):
        for probe, line in table.groupby("probe", sort=False):
            colour, marker = PROBES[probe]
            axis.plot(line["budget"], line["width"], color=colour, marker=marker, ms=4.5, lw=0.9, label=probe)
            edge = line[line["at_edge"]]
            axis.plot(edge["budget"], edge["width"], marker, color=colour, mfc="white", ms=4.5)
        budget_axis(axis, sorted(table["budget"].unique()))
        axis.set_title(title)
        axis.set_ylabel("compute-optimal width d*")
    legend_above(figure, axes[0, 0])
    return figure


def beyond_the_grid(grid: pd.DataFrame, held_out: pd.DataFrame) -> Figure:
    """000, App. I. Left: the best runs of the grid, and those beyond it (stars). Right: these beside what was predicted
    (open), with its 95 % interval.

    grid: columns budget, r, loss. held_out: one row a run, columns budget, r, loss, predicted, low, high."""
    figure, (axis, beside) = plt.subplots(1, 2, figsize=(PAGE, 2.8), width_ratios=(3, 2))
    recurrences = sorted(held_out["r"].unique())
    look = of_recurrences(grid["r"].unique())
    for i, r in enumerate(recurrences):
        colour, marker = look[r]
        side = 1.06 ** (i - (len(recurrences) - 1) / 2)  # recurrences side by side
        lowest = grid[grid["r"] == r].groupby("budget")["loss"].min()
        axis.plot(lowest.index * side, lowest, marker=marker, color=colour, lw=0.9, label=f"r = {r}")
        beyond = held_out[held_out["r"] == r]
        star = dict(marker="*", color=colour, ms=7, mec="white", mew=0.4, ls="")
        axis.plot(beyond["budget"] * side, beyond["loss"], **star)
        at = [i - 0.1] * len(beyond)
        beside.vlines(at, beyond["low"], beyond["high"], color=colour)  # of resamples: it need not hold the prediction
        beside.plot(at, beyond["predicted"], marker, color=colour, mfc="white")
        beside.plot([i + 0.1] * len(beyond), beyond["loss"], **star)
    budget_axis(axis, sorted({*grid["budget"], *held_out["budget"]}))
    axis.set_ylabel("validation loss (nats per token)")
    axis.set_title("best of the grid, and beyond it")
    axis.plot([], [], "*", color="#666666", ms=7, mec="white", mew=0.4, label="trained beyond the grid")
    axis.legend()
    beside.set_xticks(range(len(recurrences)), [f"r = {r}" for r in recurrences])
    beside.set_xlim(-0.5, len(recurrences) - 0.5)
    beside.set_title("beyond it: predicted, 95 %, and trained")
    beside.grid(axis="x", visible=False)
    return figure


def gaps_by_tokens(gaps: pd.DataFrame, tuned: pd.DataFrame) -> Figure:
    """A panel a width: the gap of each r to one loop against tokens for each of the plain model's parameters; lines
    through means over seeds, a dot a seed. A law that adds has flat lines.

    gaps: ``ladders.gaps`` at the rate that all share; tuned: those of models at their best of several rates, open."""
    widths = sorted(gaps["width"].unique())
    figure, axes = plt.subplots(1, len(widths), figsize=(PAGE, 2.8), sharey=True, squeeze=False)
    look = of_recurrences([1, *gaps["r"].unique()])
    for axis, width in zip(axes[0], widths, strict=True):
        for r, own in gaps[gaps["width"] == width].groupby("r"):
            colour, marker = look[r]
            mean = own.groupby("rung")["gap"].mean()
            axis.plot(mean.index, mean, color=colour, label=f"r = {r}")
            axis.plot(own["rung"], own["gap"], marker, color=colour, ms=3)
            best = tuned[(tuned["width"] == width) & (tuned["r"] == r)]
            axis.plot(best["rung"], best["gap"], marker, color=colour, mfc="white")
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter("{x:g}")
        axis.set_xlabel("training tokens a parameter of r = 1")
        axis.set_title(f"d = {width}")
    axes[0, 0].set_ylabel("loss less that of r = 1\n(nats per token)")
    axes[0, -1].legend()
    return figure
