"""The figures of other groups' runs: phi by what could explain it, the worth of loops, and growth."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib.figures.style import COLOURS, LOOKS, PAGE, doublings_axis, few_decades, legend_above, shades
from lib.papers.others import growth, runs

OURS = "000"
#: who trained the runs -> colour and marker
GROUPS = {
    OURS: (COLOURS["isodepth"], LOOKS["isodepth"].marker),
    runs.THEIRS: (COLOURS["looped"], LOOKS["looped"].marker),
    runs.CART: ("#8C6D1F", "v"),
}
#: and what a legend calls them
SAID = {OURS: "Schwethelm et al.", runs.THEIRS: "Chen et al.", runs.CART: "CART (Capps)"}
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
    """phi with its 95 % interval, a row each and one panel a question (``phi.of_sets``). printed: 000's phi
    and interval, a line and a band. An interval that leaves the figure ends at its edge in an arrow."""
    heights = [max(len(panels[a]) for a in row) for row in (list(panels)[:2], list(panels)[2:])]
    figure, axes = plt.subplots(
        2, 2, figsize=(PAGE, 1.4 + 0.17 * sum(heights)), sharex=True, gridspec_kw={"height_ratios": heights}
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
        axis.set_yticks(
            range(len(table)),
            [
                str(name).removeprefix(f"{group}: ").replace(runs.THEIRS, SAID[runs.THEIRS])
                for name, group in table["group"].items()
            ],
        )
        axis.set(title=title, xlim=RANGE, ylim=(len(table) - 0.4, -0.6))
        axis.grid(axis="y", visible=False)
    for axis in axes[1]:
        axis.set_xlabel(f"$\\varphi$ (bars: 95 %); dotted: 1;\nline and band: as printed\nby {SAID[OURS]}")
    for group, (colour, marker) in GROUPS.items():
        axes[0, 0].plot([], [], marker, color=colour, ms=4.5, label=SAID[group])
    legend_above(figure, axes[0, 0])
    return figure


def worth(worth: pd.DataFrame, share: pd.DataFrame, exponent: float) -> Figure:
    """Left: what r passes are worth, by group and r, beside r^exponent. Right: what tied passes gain as a share of what
    own weights gain (``phi.tied_share``)."""
    r = np.geomspace(1, 8, 50)
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE, 2.7))
    left.plot(r, r, color="#666666", lw=0.8, ls=":", label="own layers")
    left.plot(
        r, r**exponent, color=COLOURS["isodepth"], lw=0.9, ls="--", label=rf"$r^{{{exponent:.2f}}}$, the law of 000"
    )
    for group, of in worth.groupby("group", sort=False):
        (colour, marker), at = GROUPS[str(group)], of.index.get_level_values("r")
        left.vlines(at, of["worth low"], of["worth high"], color=colour, lw=1.1)
        left.plot(at, of["worth"], color=colour, marker=marker, ms=4.5, label=SAID[str(group)])
    doublings_axis(left, [1, 2, 3, 4, 6, 8], "passes r")
    few_decades(left)
    left.set_yticks([1, 1.5, 2, 3, 4], ["1", "1.5", "2", "3", "4"])
    left.set(ylim=(0.7, 5), ylabel="worth in passes of own layers, $r^\\varphi$\n(bars: 95 %)")
    several = share.groupby("loops")
    for k, ((passes, of), shade) in enumerate(zip(several, shades("looped", len(several)), strict=True)):
        ratio = of["tokens a parameter"] * beside(k, len(several), 1.04)
        right.vlines(ratio, of["low"], of["high"], color=shade, lw=1)
        right.plot(ratio, of["share"], color=shade, marker="osD^"[k % 4], lw=1, label=f"{passes} passes")
    right.axhline(1, color="#666666", lw=0.8, ls=":")
    doublings_axis(right, [1, 2, 5, 10, 20], "tokens a parameter of one pass")
    right.set(title=SAID[runs.THEIRS], ylabel="gain tied / gain with own weights\n(bars: 95 %; dotted: equal)")
    left.legend(loc="lower right")
    right.legend()
    return figure


def savings(curves: growth.Curves, laws: growth.Fits, exponents: pd.DataFrame) -> Figure:
    """Left: how many times the compute vanilla needs for an arm's loss: marks between two runs as the authors read it,
    side by side at one compute, lines by arms' own laws, dashes: printed. Right: gamma by how E is fitted
    (``growth.exponents``). Bars: 95 %."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE, 3.2), gridspec_kw={"width_ratios": [3, 2]})
    plain = curves[growth.PLAIN]
    computes = np.geomspace(plain["compute"].iloc[1], plain["compute"].iloc[-1], 40)
    shift = {arm: beside(k, len(ARMS), 1.03) for k, arm in enumerate(ARMS)}
    for arm, (colour, marker, style) in ARMS.items():
        fill, name = "white" if style == "--" else colour, arm.replace("_", " ")
        if arm != growth.PLAIN:
            measured = [growth.saved_as_measured(curves, arm, growth.PLAIN, depth) for depth in plain["depth"]]
            left.plot(plain["compute"] * shift[arm], measured, marker, color=colour, ms=4, mfc=fill)
            by_law = [growth.saved(laws, arm, growth.PLAIN, at) for at in computes]
            left.plot(computes, by_law, style, color=colour, lw=1.1)
        left.plot([], [], style, marker=marker, color=colour, mfc=fill, label=name)
    for (arm, than, compute), printed in growth.PRINTED.items():
        if than == growth.PLAIN:
            left.plot(compute * shift[arm], printed, "_", color=ARMS[arm][0], ms=13, mew=1.6)
    left.plot([], [], "_", color="#666666", ms=13, mew=1.6, label="printed")
    left.set(
        xscale="log",
        xlabel="FLOPs of vanilla\n(marks: between two runs, lines: by own laws)",
        ylabel="FLOPs of vanilla / FLOPs of the arm,\nat the same loss",
    )
    ways = exponents.index.get_level_values("way").unique()
    for k, (arm, (colour, marker, style)) in enumerate(ARMS.items()):
        own = exponents.xs(arm, level="arm")
        at = np.arange(len(ways)) + 0.08 * (k - len(ARMS) / 2 + 0.5)  # side by side
        right.vlines(at, own["gamma low"], own["gamma high"], color=colour, lw=0.8)
        right.plot(at, own["gamma"], marker=marker, color=colour, mfc="white" if style == "--" else colour, ms=4, ls="")
    right.set_xticks(range(len(ways)), [way.replace(", ", ",\n").replace("gamma", r"$\gamma$") for way in ways])
    right.set(xlabel="how $E$ and $\\gamma$ are fitted", ylabel="exponent $\\gamma$ (bars: 95 %)")
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=5)
    return figure


def beside(k: int, n: int, factor: float) -> float:
    """What a log x is multiplied with, so that marks of n series at one x stand side by side."""
    return factor ** (k - (n - 1) / 2)
