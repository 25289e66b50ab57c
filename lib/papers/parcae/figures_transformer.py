"""The figures of 001's ablations and comparisons in its Transformer set-up."""

import itertools
from collections.abc import Iterable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.typing import ColorType

from lib.figures.style import COLOURS, COLUMN, PAGE, doublings_axis, few_decades, legend_above, row_of_panels, shades

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
    looks = zip(shades("parcae", len(values)), itertools.cycle("os^vD<>P*X"), strict=False)
    return dict(zip(values, looks, strict=True))


def loss_by_depth(panels: dict[str, Any], looks: dict[str, Any], trained: int | None = None) -> Figure:
    """Validation loss against test-time loops T, one column for each title -> losses (variant, seed, T, loss), at every
    T and below once more from LATE on, where all T but the first few lie close together. Each variant has a line
    through its means over seeds and a dot for each seed. ``trained`` marks mean_loops."""
    late = {T for losses in panels.values() for T in losses["T"] if T >= LATE}
    starts = [1, LATE] if len(late) > 1 else [1]
    figure, axes = plt.subplots(
        len(starts),
        len(panels),
        figsize=(COLUMN if len(panels) == 1 else PAGE, 2.3 * len(starts) + 0.5),
        squeeze=False,
        sharey="row",
    )
    for row, start in zip(axes, starts, strict=True):
        for axis, losses in zip(row, panels.values(), strict=True):
            shown = losses[losses["T"] >= start]
            for variant, own in shown.groupby("variant", sort=False):
                colour, marker = looks[variant]
                mean = own.groupby("T")["loss"].mean()
                axis.plot(own["T"], own["loss"], marker, color=colour, ms=2.5, alpha=0.6)
                axis.plot(mean.index, mean, marker + "-", color=colour, mfc="none", ms=4, lw=1, label=str(variant))
            depths = sorted(shown["T"].unique())
            few = [T for T in depths if T in (1, 2, 4, 8, 12, 16, 20, 24, 32, 64)]
            doublings_axis(axis, few or depths, "test-time loops T")
            if trained is not None:
                axis.axvline(trained, color="#666666", lw=0.8, ls=":", label=r"$T = \mu_{rec}$")
        row[0].set_ylabel(f"validation loss{f' from T = {start} on' * (start > 1)}\n(nats per token)")
    for axis, title in zip(axes[0], panels, strict=True):
        axis.set_title(title)
        if len(panels) > 1:
            axis.legend()
    if len(panels) == 1:
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


def log_axis(axis: Axes, values: pd.Series) -> None:
    """A log y axis for ``values``, labelled in full where they span less than two decades."""
    if values.max() < 100 * values.min():
        few_decades(axis)
    else:
        axis.set_yscale("log")


def state_trace(traces: dict[str, Any], loops: int, trained: int) -> Figure:
    """Where the state grows (001, App. "Ablation of Prelude Normalization"). Left, norms through the prelude, the first
    injection and the first loop's blocks; right, after each loop. There is a row of panels for each title -> trace, a
    table with a column ``step`` and one for each place, and a line for each step, light early and dark late; one just
    before the last is left out. ``trained`` marks mean_loops."""
    figure, axes = plt.subplots(
        len(traces), 2, figsize=(PAGE, 2.1 * len(traces) + 0.4), width_ratios=(1, 1.5), sharey=True, squeeze=False
    )
    for (first, after), (title, trace) in zip(axes, traces.items(), strict=True):
        names = [name for name in trace if name not in ("step", "expansion")]
        blocks = [name for name in names if name.startswith("prelude")]
        way = [*blocks, "e", "injection", *(name for name in names if name.startswith("recur"))]
        done = [name for name in (f"loop {T}" for T in range(1, loops + 1)) if name in trace]
        end = trace["step"].max()
        trace = trace[(trace["step"] == end) | (trace["step"] < 0.99 * end)]
        for colour, (_, row) in zip(shades("parcae", len(trace)), trace.iterrows(), strict=True):
            first.plot(range(len(way)), row[way], "o-", color=colour, ms=3)
            after.plot(range(1, len(done) + 1), row[done], "-", color=colour, label=f"{row['step']:.0f}")
        first.set_xticks(range(len(way)), way, rotation=30, ha="right", rotation_mode="anchor")
        first.set(title=f"{title}: up to the first loop", ylabel="mean 2-norm of a token")
        after.axvline(trained, color="#666666", lw=0.8, ls=":")
        after.set(title=f"{title}: after each loop", xlabel=r"loop, dotted at $\mu_{rec}$")
        for axis in (first, after):
            log_axis(axis, trace[[*way, *done]].stack())
    axes[0, 1].legend(title="training step", title_fontsize=7, ncols=3)
    return figure


def spectra(curves: pd.DataFrame) -> Figure:
    """Spectral norms of A-bar, B-bar and C over training, and C's measured expansion |C h| / |h| (001, same appendix).
    Each variant has a panel, each quantity a line through the means over seeds. curves: variant, step and the
    quantities."""
    quantities = {
        "a_norm": (r"$\|\bar A\|$", "#0072B2", "-"),
        "b_norm": (r"$\|\bar B\|$", "#D55E00", "--"),
        "c_norm": (r"$\|C\|$", "#009E73", "-."),
        "trace expansion": (r"$\|Ch\|/\|h\|$", "#000000", "o"),
    }
    variants = dict(tuple(curves.groupby("variant", sort=False)))
    figure, axes = row_of_panels(variants, 2.5, "step", "spectral norm, expansion ratio", sharey=True)
    for axis, runs in zip(axes, variants.values(), strict=True):
        for quantity, (label, colour, style) in quantities.items():
            mean = runs.dropna(subset=[quantity]).groupby("step")[quantity].mean()
            if len(mean):
                axis.plot(mean.index, mean, style, color=colour, ms=3.5, label=label)
    legend_above(figure, axes[0])
    return figure


def depth_distributions(panels: dict[str, Any]) -> Figure:
    """P(T) under each rule, one panel for each title -> {label: (probabilities, colour)}; triangles at the means."""
    figure, axes = row_of_panels(panels, 2.5, "loops of a training step, T", "probability")
    for axis, rules in zip(axes, panels.values(), strict=True):
        last = 1
        for i, (label, (p, colour)) in enumerate(rules.items()):
            T = np.arange(len(p))
            last = max(last, int(np.searchsorted(np.cumsum(p), 0.999)))
            axis.plot(T, p, drawstyle="steps-mid", color=colour, label=f"{label}, mean {p @ T:.2f}")
            # the first is the largest, so that it shows where a later one lies on it
            axis.plot(p @ T, 0, "^", color=colour, ms=max(5, 9 - 2 * i), clip_on=False, zorder=3)
        axis.set_xlim(0, last)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.set_ylim(bottom=0)
        axis.legend()
    return figure
