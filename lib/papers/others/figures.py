"""The figures of other groups' runs: phi by what could explain it, the worth of loops, and ladders."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from lib.figures.style import COLOURS, LOOKS, PAGE, budget_axis, few_decades, legend_above, shades
from lib.papers.others import ladders, phi

#: who trained the runs -> colour and marker
GROUPS = {
    phi.OURS: (COLOURS["isodepth"], LOOKS["isodepth"].marker),
    phi.THEIRS: (COLOURS["looped"], LOOKS["looped"].marker),
    "CART": ("#8C6D1F", "v"),
}
#: arms of arXiv 2609.19107 -> colour, marker, and how the line is drawn: dashed where the loops grow in training
ARMS = {
    "vanilla": (COLOURS["transformer"], LOOKS["transformer"].marker, "-"),
    "deep_vanilla": ("#8A8A8A", "s", "-"),
    "deep_vanilla_grow": ("#8A8A8A", "s", "--"),
    "operator_1": ("#E69F00", "o", "-"),
    "loop_2": (COLOURS["looped"], LOOKS["looped"].marker, "-"),
    "loop_grow": (COLOURS["looped"], LOOKS["looped"].marker, "--"),
    "untied_2": ("#117733", "^", "-"),
    "untied_grow": ("#117733", "^", "--"),
}
RANGE = (-0.6, 1.9)  # of phi in the figures


def forest(panels: dict[str, pd.DataFrame], printed: tuple[float, float, float]) -> Figure:
    """phi with its 95 % interval, a row each and one panel a question (``phi.by_base`` and so on). printed: 000's phi
    and interval, a line and a band. An interval that leaves the figure ends at its edge in an arrow."""
    heights = [max(len(panels[a]) for a in row) for row in (list(panels)[:2], list(panels)[2:])]
    figure, axes = plt.subplots(
        2, 2, figsize=(PAGE, 1.3 + 0.17 * sum(heights)), sharex=True, gridspec_kw={"height_ratios": heights}
    )
    for axis, (title, table) in zip(axes.flat, panels.items(), strict=True):
        at, low, high = printed
        axis.axvspan(low, high, color=COLOURS["isodepth"], alpha=0.15, lw=0)
        axis.axvline(at, color=COLOURS["isodepth"], lw=0.9)
        axis.axvline(1, color="#666666", lw=0.8, ls=":")
        for y, (_, row) in enumerate(table.iterrows()):
            colour, marker = GROUPS[row["group"]]
            ends = np.clip([row["low"], row["high"]], *RANGE)
            axis.plot(ends, [y, y], color=colour, lw=1.4, solid_capstyle="butt")
            for end, beyond, arrow in zip(ends, (row["low"] < RANGE[0], row["high"] > RANGE[1]), "<>", strict=True):
                if beyond:
                    axis.plot(end, y, arrow, color=colour, ms=4.5, clip_on=False)
            axis.plot(row["phi"], y, marker, color=colour, ms=4.5)
        names = [str(name).removeprefix(f"{group}: ") for name, group in table["group"].items()]
        axis.set_yticks(range(len(table)), names)
        axis.set_ylim(len(table) - 0.4, -0.6)
        axis.set_xlim(*RANGE)
        axis.grid(axis="y", visible=False)
        axis.set_title(title)
    for axis in axes[1]:
        axis.set_xlabel("$\\varphi$; dotted: 1;\nline and band: 000, as printed")
    for group, (colour, marker) in GROUPS.items():
        axes[0, 0].plot([], [], marker, color=colour, ms=4.5, label=group)
    legend_above(figure, axes[0, 0])
    return figure


def worth_and_share(by_loops: pd.DataFrame, tied_share: pd.DataFrame, exponent: float) -> Figure:
    """What r passes are worth in passes of own layers (``phi.by_loops``) beside r^phi at 000's ``exponent``; and the
    gain of tied passes as a share of that of passes with own weights (``phi.tied_share``). Bars: 95 %."""
    figure, (worth, share) = plt.subplots(1, 2, figsize=(PAGE, 2.7))
    r = np.geomspace(1, 8, 50)
    worth.plot(r, r, color="#666666", lw=0.8, ls=":", label="own layers")
    worth.plot(r, r**exponent, color=COLOURS["isodepth"], lw=0.9, ls="--", label=rf"$r^{{{exponent:.2f}}}$")
    for group, own in by_loops.groupby("group", sort=False):
        colour, marker = GROUPS[str(group)]
        at = own.index.get_level_values("r")
        worth.vlines(at, own["worth low"], own["worth high"], color=colour, lw=1.1)
        worth.plot(at, own["worth"], color=colour, marker=marker, ms=4.5, label=str(group))
    for axis, ticks in ((worth.xaxis, (1, 2, 3, 4, 6, 8)), (worth.yaxis, (1, 1.5, 2, 3, 4, 6, 8))):
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_minor_locator(NullLocator())
    worth.set_ylim(0.95, 5)
    worth.set_xlabel("passes r")
    worth.set_ylabel(r"worth, $r^\varphi$ passes of own layers")
    worth.legend()
    several = tied_share.groupby("loops")
    ramp = shades("looped", len(several))
    for k, (loops, own) in enumerate(several):
        x = own["tokens a parameter"] * _beside(k, len(several), 1.04)
        share.vlines(x, own["low"], own["high"], color=ramp[k], lw=1)
        share.plot(x, own["share"], color=ramp[k], marker="osD^"[k % 4], lw=1, label=f"{loops} passes")
    share.axhline(1, color="#666666", lw=0.8, ls=":")
    share.set_xscale("log")
    share.set_xticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
    share.minorticks_off()
    share.set_xlabel("tokens a parameter of one pass")
    share.set_ylabel("gain tied / gain with own weights")
    share.set_title(phi.THEIRS)
    share.legend()
    return figure


def savings(curves: ladders.Curves, exponents: pd.DataFrame) -> Figure:
    """Left: how many times the compute vanilla needs for an arm's loss: marks between two runs as the authors read it,
    side by side at one compute, lines by arms' own laws, dashes: printed. Right: gamma by how E is fitted
    (``ladders.exponents``). Bars: 95 %."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE, 3.0), gridspec_kw={"width_ratios": [3, 2]})
    fits, plain = ladders.own_floors(curves), curves[ladders.PLAIN]
    computes = np.geomspace(plain["compute"].iloc[1], plain["compute"].iloc[-1], 40)
    beside = {arm: _beside(k, len(ARMS), 1.03) for k, arm in enumerate(ARMS)}
    for arm, (colour, marker, style) in ARMS.items():
        fill, name = "white" if style == "--" else colour, arm.replace("_", " ")
        if arm != ladders.PLAIN:
            measured = [ladders.saved_as_measured(curves, arm, depth) for depth in plain["depth"]]
            left.plot(plain["compute"] * beside[arm], measured, marker, color=colour, ms=4, mfc=fill)
            left.plot(computes, [ladders.saved(fits, arm, at) for at in computes], style, color=colour, lw=1.1)
        left.plot([], [], style, marker=marker, color=colour, mfc=fill, label=name)
    for (arm, compute), printed in ladders.PRINTED.items():
        left.plot(compute * beside[arm], printed, "_", color=ARMS[arm][0], ms=13, mew=1.6)
    left.plot([], [], "_", color="#666666", ms=13, mew=1.6, label="printed")
    left.set_xscale("log")
    left.set_xlabel("FLOPs of vanilla")
    left.set_ylabel("compute saved (times)")
    ways = exponents.index.get_level_values("way").unique()
    for k, (arm, (colour, marker, style)) in enumerate(ARMS.items()):
        own = exponents.xs(arm, level="arm")
        at = np.arange(len(ways)) + 0.08 * (k - len(ARMS) / 2 + 0.5)  # side by side
        right.vlines(at, own["gamma low"], own["gamma high"], color=colour, lw=0.8)
        right.plot(at, own["gamma"], marker=marker, color=colour, mfc="white" if style == "--" else colour, ms=4, ls="")
    right.set_xticks(range(len(ways)), [way.replace(", ", ",\n") for way in ways])
    right.set_ylabel(r"exponent $\gamma$")
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=5)
    return figure


def _beside(k: int, n: int, factor: float) -> float:
    """What a log x is multiplied with, so that marks of n series at one x stand side by side."""
    return factor ** (k - (n - 1) / 2)


def gaps_and_loops(gaps: pd.DataFrame, best: pd.DataFrame) -> Figure:
    """Left: loss of each arm at a budget's optimum above that with own weights (``isoflop.gaps_with_intervals``).
    Right: the best number of loops (``best_loops.with_intervals``), where it lies between those tried. Bars: 95 %."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE, 2.9))
    arms = gaps.dropna().groupby("arm", sort=False)
    for k, (arm, own) in enumerate(arms):
        colour, marker, style = ARMS[str(arm)]
        at = own.index.get_level_values("budget") * _beside(k, len(arms), 1.02)
        left.vlines(at, own["gap low"], own["gap high"], color=colour, lw=0.9)
        left.plot(at, own["gap"], style, marker=marker, color=colour, label=str(arm).replace("_", " "))
    left.axhline(0, color="#666666", lw=0.8, ls=":")
    budget_axis(left, [*gaps.index.get_level_values("budget").unique()])
    left.set_ylabel("loss above untied 2 (nats)")
    left.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
    names = best.index.get_level_values("set").unique()
    looks = zip(names, ("#2B50FF", "#117733", "#9ECAE1", "#4292C6", "#08306B"), "p^osD", strict=True)
    for k, (name, colour, marker) in enumerate(looks):
        own = best.loc[name]
        own = own.where(own["inside"])
        at = own.index * _beside(k, len(names), 1.03)
        right.vlines(at, own["low"], own["high"], color=colour, lw=0.9)
        right.plot(at, own["K"], color=colour, marker=marker, label=name)
    right.set_xscale("log")
    few_decades(right)
    right.set_yticks([1, 2, 3, 4, 6], ["1", "2", "3", "4", "6"])
    budget_axis(right, [*best.index.get_level_values("budget").unique()])
    right.set_ylabel("best number of loops")
    right.set_ylim(0.85, 8)
    right.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
    return figure
