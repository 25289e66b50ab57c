"""The figures of the iso-depth study (000) that several notebooks draw, or that are long."""

import itertools
from collections.abc import Iterable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.typing import ColorType
from numpy.typing import ArrayLike

from lib.base.statistics import percentile_interval
from lib.figures.style import (
    COLOURS,
    PAGE,
    budget_axis,
    count_axis,
    doublings_axis,
    isoflop_curve,
    laid_out,
    legend_above,
    rate,
    row_of_panels,
    shades,
)
from lib.fit import r2_of_gaps

COMMA = ",\n"  # in a title: beside each other there is no room for "hyper-connections, as printed"
#: how seaborn draws points: as plot does markers of 3.5 points, above the grid
DOTS: dict[str, Any] = {"s": 18, "linewidth": 0, "zorder": 2}


def of_recurrences(recurrences: Iterable[int]) -> dict[int, tuple[ColorType, str]]:
    """(colour, marker) of each r: the plain model black, the looped ones in shades of their family's colour."""
    looped = sorted(r for r in recurrences if r > 1)
    colours = dict(zip(looped, shades("isodepth", len(looped) + 1)[1:], strict=True))
    colours[1] = to_rgb(COLOURS["transformer"])
    return {r: (colours[r], marker) for r, marker in zip(sorted(recurrences), itertools.cycle("Dosv^<>"))}


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
    plt.setp(axes.ravel()[: max(0, len(budgets) - columns)], xlabel="")  # a panel stands below
    for axis in axes.ravel()[len(budgets) :]:
        axis.remove()
    plt.setp(axes[:, 0], ylabel="validation loss (nats per token)")
    axes[0, 0].plot([], [], "*", color="#666666", ms=8, mfc="none", mew=0.8, label="minimum of the parabola")
    legend_above(figure, axes[0, 0])
    return figure


def seaborns(table: pd.DataFrame, recurrences: Iterable[int] = ()) -> dict[str, Any]:
    """The arguments by which seaborn draws a table with a line or a cloud an r: as among all ``recurrences``, where the
    table has some of them alone."""
    look = of_recurrences([*recurrences] or table["r"].unique())
    there = [r for r in look if r in {*table["r"]}]
    return {
        "data": table.assign(recurrence=[f"r = {r}" for r in table["r"]]),
        "hue": "recurrence",
        "style": "recurrence",
        "hue_order": [f"r = {r}" for r in there],
        "style_order": [f"r = {r}" for r in there],
        "palette": {f"r = {r}": look[r][0] for r in there},
        "markers": {f"r = {r}": look[r][1] for r in there},
    }


def gaps_over_budgets(gaps: dict[str, pd.DataFrame], recurrences: Iterable[int], ylabel: str) -> Figure:
    """000, Sec. 4.2: the loss of each r above that of r = 1, a panel for each way to read it. gaps: title ->
    ``readings.frontier_gaps``, of a single grid or of one for each seed, of which mean and range are drawn."""
    each = pd.concat(gaps, names=["how"]).melt(var_name="r", value_name="gap", ignore_index=False).reset_index()
    look = seaborns(each, recurrences) | {"dashes": False, "mec": "none", "err_style": "bars"}
    grid = sns.relplot(**look, x="budget", y="gap", col="how", kind="line", errorbar=("pi", 100))
    grid.refline(y=0, color="#666666", lw=0.8, ls=":").set_ylabels(ylabel)
    for axis in grid.axes.flat:
        budget_axis(axis, sorted(each["budget"].unique()))
    return laid_out(grid, 2.5)


def probed_constants(found: dict[str, pd.DataFrame], printed: dict[tuple[str, str], float]) -> Figure:
    """000, Table 3 and App. G: what the joint law says under each probe, with 95 % intervals; of phi and the width what
    the probe adds. found: ``readings.of_probes``, the baseline first; printed: (probe, column) -> the number."""
    added = {name: own - next(iter(found.values())) for name, own in found.items()}
    panels = {
        r"$\varphi$": (found, "phi"),
        r"added to $\varphi$": (added, "phi"),
        "$a_D$": (found, "a_D"),
        "added to the best\nwidth d* (octaves)": (added, "width"),
    }
    figure, axes = row_of_panels(panels, 0.9 + 0.25 * len(found), ylabel="bars: 95 %", sharey=True)
    for axis, (of, column) in zip(axes, panels.values(), strict=True):
        for name, (value, *draws) in ((name, of[name][column]) for name in reversed(found)):  # the first on top
            axis.plot(percentile_interval(draws), [name, name], "k-", value, name, "ko")
            if of is found and (name, column) in printed:
                axis.plot(printed[name, column], name, "D", color=COLOURS["isodepth"], mfc="none")
    return figure


def predicted_against_measured(panels: dict[str, Any]) -> Figure:
    """000, Figs. 8 and 10: predicted against measured loss, one panel a fit; R2 is of losses, of a joint law's also of
    gaps to r = 1. panels: title -> (fit, runs)."""
    parts = []
    for title, (fit, runs) in panels.items():
        of_gaps = f", of gaps {r2_of_gaps(fit, runs[['budget', 'width']]):.2f}" if "r" in fit.law.inputs else ""
        quality = f"$R^2$ = {fit.r2:.3f}{of_gaps}\nrms {fit.rms_residual:.3f} nats"
        parts.append(
            runs.assign(predicted=runs["loss"] * np.exp(fit.residuals), of=f"{title.replace(', ', COMMA)}\n{quality}")
        )
    grid = sns.relplot(**seaborns(pd.concat(parts)), x="loss", y="predicted", col="of", **DOTS)
    for axis, part in zip(grid.axes.flat, parts, strict=True):
        ends = [part["loss"].min(), part["loss"].max()]
        axis.plot(ends, ends, color="#666666", lw=0.8, ls=":")
    grid.set_axis_labels("measured loss (nats)", "predicted loss (nats)\n(dotted: equal)")
    return laid_out(grid, 2.7)


def worth_of_a_recurrence(worth: pd.DataFrame, frontier: pd.DataFrame, measured: pd.DataFrame) -> Figure:
    """000, Fig. 1. Left: unique and effective parameters at one width, and FLOPs, relative to r = 1
    (``readings.worth``). Right: compute-optimal loss against budget by the law (``readings.frontiers``), dashed that of
    the least r by the one fitted at phi = 1, marks for the ``measured`` optima."""
    figure, (left, right) = row_of_panels(
        ["at one width", "at the best width (marks: minima of the parabolas)"], 2.8, ylabel="relative to r = 1"
    )
    for column, colour, marker, label in (
        ("flops", "#666666", "o", "training FLOPs"),
        ("effective", COLOURS["isodepth"], "s", r"effective, $N_{once} + r^\varphi N_{rec}$"),
        ("unique", "#000000", "D", "unique parameters N"),
    ):
        left.plot(worth["r"], worth[column], marker=marker, color=colour, label=label)
    doublings_axis(left, worth["r"], "recurrences r")
    left.set_ylim(bottom=0)
    left.legend(loc="lower left")
    look = of_recurrences(worth["r"])
    for r, line in frontier.groupby("r"):
        (shade, marker), points = look[r], measured[measured["r"] == r]
        right.plot(line["budget"], line["loss"], color=shade)
        right.plot(points["budget"], points["loss"], marker, color=shade, mfc="none", label=f"r = {r}")
    unrolled = frontier[frontier["r"] == frontier["r"].min()]
    right.plot([], [], color="#666666", label="by the law")
    right.plot(
        unrolled["budget"],
        unrolled["loss_unrolled"],
        color="#666666",
        ls="--",
        lw=0.9,
        label=rf"r = {unrolled['r'].min()} by the fit with $\varphi = 1$",
    )
    budget_axis(right, sorted(measured["budget"].unique()))
    right.set_ylabel("compute-optimal loss (nats)")
    right.legend()
    return figure


def probed_curves(runs: pd.DataFrame, optima: pd.DataFrame, diverged: pd.DataFrame | None = None) -> Figure:
    """000, Fig. 4: iso-FLOP curves under each probe over those of the baseline, which are thin and grey; one row a
    probe, one column a budget. ``runs`` and ``optima`` have a column probe besides those of ``isoflop_curves``, and so
    has ``diverged``, whose runs are crosses at the top."""
    probes = [probe for probe in dict.fromkeys(runs["probe"]) if probe != "baseline"]
    budgets = sorted(runs["budget"].unique())
    lost = runs.head(0) if diverged is None else diverged
    figure, axes = plt.subplots(
        len(probes), len(budgets), figsize=(PAGE, 2.3 * len(probes) + 0.4), sharex="col", sharey="col", squeeze=False
    )
    look, inside = of_recurrences(runs["r"].unique()), optima[optima["inside"]]
    for row, probe in zip(axes, probes, strict=True):
        for axis, budget in zip(row, budgets, strict=True):
            at = runs[(runs["budget"] == budget) & runs["probe"].isin(["baseline", probe])]
            for (which, r), cell in at.groupby(["probe", "r"]):  # the baseline is first
                best = inside[(inside["probe"] == which) & (inside["budget"] == budget) & (inside["r"] == r)]
                if which == "baseline" and r > 1:
                    isoflop_curve(axis, cell, best.head(0), "#bbbbbb", look[r][1], ":")
                else:
                    isoflop_curve(axis, cell, best, *look[r], label=f"r = {r}")
            for r, own in lost[(lost["probe"] == probe) & (lost["budget"] == budget)].groupby("r"):
                axis.plot(
                    own["N"], [0.97] * len(own), "x", color=look[r][0], ms=4.5, transform=axis.get_xaxis_transform()
                )
            axis.set_title(f"{probe.replace(', ', COMMA)}\n{rate(budget)} FLOPs")
            count_axis(axis, "unique parameters N")
        row[0].set_ylabel("validation loss (nats per token)")
    plt.setp(axes[:-1], xlabel="")
    axes[0, 0].plot([], [], ":", color="#bbbbbb", marker="o", ms=3.5, label="baseline at the same r")
    axes[0, 0].plot([], [], "*", color="#666666", ms=8, mfc="none", mew=0.8, label="minimum of the parabola")
    if len(lost):
        axes[0, 0].plot([], [], "x", color="#666666", ms=4.5, label="diverged")
    legend_above(figure, axes[0, 0])
    return figure


# ---- of the downstream axes ------------------------------------------------------------------------------------------


def by_hue(table: pd.DataFrame) -> tuple[dict[str, Any], list[str]]:
    """What seaborn's grids take to draw each r of a table in its colour, and their markers."""
    look = seaborns(table)
    return {name: look[name] for name in ("data", "hue", "hue_order", "palette")}, [*look["markers"].values()]


def with_bars(table: pd.DataFrame, x: str, error: str, height: float, **look: Any) -> tuple[Figure, list[Axes]]:
    """The ``loss`` against the column x with bars of its error, a line for each r, in a panel for each of the column
    ``panel``; a marker is filled where ``filled`` has the loss. look: of lines."""

    def bars(x: ArrayLike, y: ArrayLike, error: ArrayLike, label: str, **drawn: Any) -> None:  # legends have markers
        plt.errorbar(x, y, error, ms=3.5, lw=0.9, **drawn)

    hues, markers = by_hue(table)
    grid = sns.FacetGrid(
        col="panel", col_wrap=min(5, table["panel"].nunique()), sharey=False, hue_kws={"marker": markers}, **hues
    )
    grid.map(bars, x, "loss", error, **look)
    grid.map(plt.plot, x, "filled", ls="", ms=3.5, zorder=3).add_legend()
    for axis in grid.axes.flat:
        axis.yaxis.set_major_locator(MaxNLocator(4))
    grid.set_ylabels("loss of the answer (nats per\ntoken; bars: standard error)")
    return laid_out(grid, height), [*grid.axes.flat]
