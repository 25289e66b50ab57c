"""One look for every figure: one colour an architecture, colour-blind safe, the profile printed on it."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from matplotlib.typing import ColorType

from lib import files
from lib.config import ModelConfig
from lib.flops import count
from lib.statistics import mean_interval

COLUMN = 3.4  # inches, the width of a paper's column
PAGE = 7.0
SCREEN_DPI = 110  # of figures in a notebook

# Okabe and Ito's palette, safe for all common colour deficiencies
COLOURS = {
    "base": "#D55E00",
    "residual-norm": "#0072B2",
    "parcae": "#009E73",
    "parcae-rdm": "#56B4E9",
    "transformer": "#000000",
    "isodepth": "#CC79A7",
    "truncated": "#E6B800",
    "hyper-connections": "#3A2FC0",
    "looped-nanochat": "#6B6B6B",
    "looped": "#2B50FF",
    "post-norm": "#A8A000",
    "moe": "#5A2A83",
    "looped-moe": "#2FD0AA",
}
NAMES = {
    "base": "Base (pre-norm, concat)",
    "residual-norm": "Residual norm",
    "parcae": "Parcae",
    "parcae-rdm": "Parcae without C, prelude norm",
    "transformer": "Transformer",
    "isodepth": "Looped, iso-depth",
    "truncated": "Looped, iso-depth, truncated",
    "hyper-connections": "Looped, hyper-connections",
    "looped-nanochat": "Looped nanochat",
    "looped": "Looped, no injection",
    "post-norm": "Looped, Post-Norm",
    "moe": "MoE",
    "looped-moe": "Looped-MoE",
}
MARKERS = {"base": "o", "residual-norm": "s", "parcae": "^", "parcae-rdm": "v", "transformer": "D", "isodepth": "P",
           "truncated": "<", "hyper-connections": ">", "looped-nanochat": "X", "looped": "p",
           "post-norm": "h", "moe": "*", "looped-moe": "d"}  # fmt: skip

_profile = "cpu"


@contextlib.contextmanager
def keeping_style() -> Iterator[None]:
    """The look of figures and the profile on them are afterwards what they were before."""
    global _profile
    before = _profile
    with mpl.rc_context():
        try:
            yield
        finally:
            _profile = before


def use_style(profile: str) -> None:
    """Sets matplotlib's defaults and the profile that figures are stamped with."""
    global _profile
    _profile = profile
    mpl.rcParams.update({
        "figure.dpi": 150,
        "savefig.dpi": 200,
        "figure.constrained_layout.use": True,
        "font.size": 8,
        "axes.titlesize": 8,
        "axes.labelsize": 8,
        "legend.fontsize": 7,
        "xtick.labelsize": 7,
        "ytick.labelsize": 7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.formatter.min_exponent": 1,  # a log axis says 0.6 and 2, not 6 x 10^-1 and 2 x 10^0
        "axes.grid": True,
        "grid.color": "#e6e6e6",
        "grid.linewidth": 0.6,
        "lines.linewidth": 1.1,
        "lines.markersize": 4,
        "legend.frameon": False,
        "pdf.fonttype": 3 if profile == "smoke" else 42,  # publishers want 42, which takes half a second more
    })  # fmt: skip


def shades(architecture: str, n: int) -> list[ColorType]:
    """n shades of an architecture's colour, light to dark, for an ordered quantity such as the learning rate."""
    colour = np.array(to_rgb(COLOURS[architecture]))
    anchors = [0.65 + 0.35 * colour, colour, 0.35 * colour]
    if colour.max() < 0.3:  # nothing is darker
        anchors = [0.8 + 0.2 * colour, 0.5 + 0.5 * colour, colour]
    ramp = LinearSegmentedColormap.from_list(architecture, anchors)
    return [ramp(x) for x in np.linspace(0, 1, n)] if n > 1 else [to_rgb(COLOURS[architecture])]


def save(figure: Figure, path: Path, stamp: dict[str, Any]) -> Path:
    """PNG and PDF with ``stamp`` in their metadata and in a JSON beside them, all three or none; the profile is printed
    on the figure."""
    figure.supxlabel(f"profile: {_profile}", x=0.995, ha="right", fontsize=6, color="#666666")
    text = json.dumps(stamp, sort_keys=True, default=str)
    with files.replacing_together(*(path.with_suffix(kind) for kind in (".json", ".png", ".pdf"))) as (note, png, pdf):
        note.write_text(json.dumps(json.loads(text), indent=1) + "\n")
        figure.savefig(png, format="png", metadata={"Description": text})
        figure.set_layout_engine("none")  # what stands where has been found
        figure.savefig(pdf, format="pdf", metadata={"Subject": text})
    return path.with_suffix(".png")


def rate(lr: float) -> str:
    """A learning rate, or a budget, for an axis: 3.2e-2, 1e11."""
    mantissa, exponent = f"{lr:.2e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def count_axis(axis: Axes, label: str) -> None:
    """A log x axis of counts, ticked 1, 2, 5 and labelled 20 k, 1 M."""
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axis.minorticks_off()
    axis.set_xlabel(label)


def few_decades(axis: Axes) -> None:
    """A log y axis that spans little: ticked at 1, 2 and 5 and labelled in full, counts as 20 k."""
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value) if value >= 1000 else f"{value:g}"))
    axis.yaxis.set_minor_locator(NullLocator())


def legend_above(figure: Figure, axis: Axes) -> None:
    """One legend for all panels, off the data: the lines of one of them, in one row."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))


def dots(columns: dict[str, list[float]], label: str) -> Figure:
    """One row a variant: a dot a seed, and under them the 95 % interval of their mean (Student's t). A variant that has
    a colour of its own keeps it."""
    figure, axis = plt.subplots(figsize=(COLUMN, 0.5 + 0.35 * len(columns)))
    for y, (name, values) in enumerate(columns.items()):
        x = np.asarray(values, dtype=float)
        mean, low, high = mean_interval(x)
        if np.isfinite([low, high]).all():
            axis.plot([low, high], [y + 0.15] * 2, color="#999999", lw=2.5, solid_capstyle="butt")
        colour = COLOURS.get(name, COLOURS["isodepth"])
        axis.plot(x, np.full(len(x), y - 0.15), "o", color=colour, ms=4, mec="white", mew=0.4)
        axis.plot(mean, y + 0.15, "|", color="black", ms=7)
    axis.set_yticks(range(len(columns)), list(columns))
    axis.set_ylim(len(columns) - 0.5, -0.5)
    axis.set_xlabel(label)
    return figure


def isoflop_curve(
    axis: Axes, cell: pd.DataFrame, best: pd.DataFrame, colour: ColorType, marker: str, style: str = "-",
    label: str | None = None,
) -> None:  # fmt: skip
    """The runs of one budget and recurrence, the parabola through them in log N, and a star at its minimum ``best``."""
    axis.plot(cell["N"], cell["loss"], marker, color=colour, ms=3.5, label=label)
    if len(cell) >= 3:
        curve = np.polynomial.Polynomial.fit(np.log(cell["N"]), cell["loss"], 2)
        x = np.geomspace(cell["N"].min(), cell["N"].max(), 60)
        axis.plot(x, curve(np.log(x)), style, color=colour, lw=0.9)
    axis.plot(best["N"], best["loss"], "*", color=colour, ms=8, mec="white", mew=0.5)


def budget_axis(axis: Axes, budgets: Sequence[float]) -> None:
    """A log axis of training FLOPs, with a tick at each budget."""
    axis.set_xscale("log")
    axis.set_xticks(budgets, [rate(budget) for budget in budgets])
    axis.minorticks_off()
    axis.set_xlabel("budget (FLOPs)")


# ---- a model, drawn from its config (000, Fig. 5) --------------------------------------------------------------------

PARTS = {
    "end": "#cfe3f2",
    "once": "#d0d0d0",
    "recur": "#f6c26b",
    "injection": "#8fd0b5",
    "state": "#f5ec8c",
    "readout": "#dcc3dd",
    "norm": "#ffffff",
}
LEFT, WIDE = 1.5, 7.0  # of the boxes, in tenths of the picture


def show(cfg: ModelConfig) -> Figure:
    """The picture of a model beside its counts."""
    counts = count(cfg)
    figure, (left, right) = plt.subplots(1, 2, figsize=(COLUMN, 3.9), width_ratios=(2, 1), layout="constrained")
    picture(left, cfg)
    right.axis("off")
    lines = {
        "parameters": counts.n_params,
        "in tables": counts.n_embedding,
        "run once": counts.n_once_stored,
        "in the loop": counts.n_rec_stored,
        "active": counts.n_active,
        "FLOPs / token": counts.flops_per_token_forward,
        "in training": counts.flops_per_token,
        "as published": counts.flops_per_token_published,
    }
    text = "\n".join(f"{name}\n   {short(value)}" for name, value in lines.items())
    right.text(0, 0.98, text, va="top", fontsize=6.5, linespacing=1.4, transform=right.transAxes)
    plt.close(figure)  # a notebook shows what a cell returns, and would show an open figure once more
    return figure


def side_by_side(configs: list[ModelConfig]) -> Figure:
    """The pictures of several models, in one row."""
    figure, axes = plt.subplots(1, len(configs), figsize=(PAGE, 3.2), squeeze=False, layout="constrained")
    for axis, cfg in zip(axes[0], configs, strict=True):
        picture(axis, cfg)
    heights = [axis.get_ylim() for axis in axes[0]]
    for axis in axes[0]:
        axis.set_ylim(min(low for low, _ in heights), max(high for _, high in heights))
    plt.close(figure)
    return figure


def picture(axis: Axes, cfg: ModelConfig) -> None:
    """Draws a model from its config alone, input at the bottom: grey runs once, orange is shared by all loops. A cell
    is a layer with Long or Short attention, v where it has a value table."""
    axis.axis("off")
    axis.set_xlim(0, 10)
    y = _boxes(axis, 0, [(f"embedding {cfg.vocab_size:,} x {cfg.width}", "end", 1), ("norm", "norm", cfg.embed_norm)])
    y = _layers(axis, cfg, "prelude", range(cfg.prelude), y, "once")
    y = _boxes(axis, y, [("norm", "norm", cfg.prelude_norm)])
    if cfg.recur:
        y = _loop(axis, cfg, y)
    y = _boxes(axis, y, [("readout C", "readout", cfg.readout)])
    y = _layers(axis, cfg, "coda", range(cfg.prelude + cfg.recur, cfg.layers), y, "once")
    head = "head" + ", the embedding's table" * cfg.tied + f"\nsoftcap {cfg.softcap:g}" * (cfg.softcap > 0)
    y = _boxes(axis, y, [("norm", "norm", 1), (head, "end", 1)])
    below = _words(axis, -0.25, _what_a_layer_is(cfg), "top")
    axis.set_ylim(min(below, y - 8.5), y + 0.1)


def _what_a_layer_is(cfg: ModelConfig) -> str:
    """The caption: blocks, heads, MLP, residual multiplier, and what the letters and colours mean."""
    wide = f"{cfg.mlp_width:,} wide"
    mlp = f"{cfg.active_experts} of {cfg.experts} SwiGLU experts, together {wide}" if cfg.experts > 1 else cfg.mlp
    lines = [f"{cfg.block} blocks, {cfg.heads} heads", mlp if cfg.experts > 1 else f"{mlp} MLP, {wide}"]
    if cfg.residual_multiplier != 1:
        lines.append(f"{'looped ' * (cfg.recur > 0)}branches x {cfg.residual_multiplier:.2g}")
    letters = [f"L: all {cfg.context:,} positions"]
    short = next((window for i in range(cfg.layers) if (window := cfg.window(i))), None)
    letters += [f"S: the last {short:,}"] if short else []
    lines += [", ".join(letters)] + ["v: has a value table"] * cfg.value_embeddings
    return "\n".join(lines)


def _loop(axis: Axes, cfg: ModelConfig, entry: float) -> float:
    """The loop from ``entry`` upwards; returns where the next box begins."""
    lanes = f", in {cfg.lanes} lanes" if cfg.injection == "hyper-connections" else ""
    start = {"prelude": "e", "zero": "0", "like-init": "noise, like-init", "unit": "noise, unit"}
    bottom = entry + 0.35
    state = f"state h, $h_0$ = {start.get(cfg.state_init, 'noise')}{lanes}"
    y = injected = _boxes(axis, bottom + 0.2, [(state, "state", 1)])
    inject = {
        "add": "h + e",
        "concat": "W [e ; h]",
        "concat-identity": "W [e ; h], from W = [I | 0]",
        "lti": r"$\bar A$ h + $\bar B$ e, diagonal $\bar A$",
        "hyper-connections": r"$\alpha_t \cdot$ lanes in, $M_t$, $\beta_t$ out",
    }.get(cfg.injection)
    y = _boxes(axis, y, [(inject or "", "injection", inject is not None)])
    y = _layers(axis, cfg, "recur", range(cfg.prelude, cfg.prelude + cfg.recur), y, "recur")
    top = _boxes(axis, y, [("norm" if cfg.loop_norm == "own" else "the final norm", "norm", cfg.loop_norm != "none")])
    y = _words(axis, top + 0.05, _loops(cfg), "bottom")
    frame: dict[str, Any] = dict(boxstyle="round,pad=0.12", fc="none", ec="#666666", ls=(0, (3, 2)), lw=0.8)
    axis.add_patch(FancyBboxPatch((1.2, bottom), 7.6, y - bottom, **frame))
    _arrow(axis, (1.5, top - 0.35), (1.5, bottom + 0.5))
    if inject is not None and cfg.injection != "hyper-connections":
        _arrow(axis, (8.5, entry - 0.3), (8.5, injected + 0.3))
        axis.text(9.4, entry + 0.1, "e", ha="center", va="center", fontsize=7)
    return y + 0.35


def _loops(cfg: ModelConfig) -> str:
    """What the loop does, in words."""
    on_average = " on average" * (cfg.depth != "fixed")
    lines = [f"{cfg.mean_loops} loops{on_average}, one set of layers" if cfg.mean_loops > 1 else "1 loop"]
    if cfg.depth != "fixed":
        lines.append(f"{cfg.depth} per {cfg.depth_per}")
    if cfg.truncates:
        lines.append(f"gradient in {cfg.max_backprop_loops}" + ", filled up" * cfg.fill)
    return "\n".join(lines)


def _words(axis: Axes, y: float, words: str, side: str) -> float:
    """Lines of text from y on, upwards ('bottom' at y) or downwards; returns where they end."""
    axis.text(5, y, words, ha="center", va=side, fontsize=6, linespacing=1.15)
    height = 0.36 * (words.count("\n") + 1)
    return y + height if side == "bottom" else y - height


def _layers(axis: Axes, cfg: ModelConfig, stack: str, layers: range, y: float, part: str) -> float:
    """A box that names the stack, with one cell a layer, up to eight, on top; returns where the next box begins."""
    if not layers:
        return y
    y = _boxes(axis, y, [(f"{stack}: {len(layers)} layer{'s' * (len(layers) > 1)}", part, 1)])
    shown = list(layers) if len(layers) <= 8 else [*layers[:7], None]
    cell = WIDE / len(shown)
    for i, layer in enumerate(shown):
        axis.add_patch(Rectangle((LEFT + i * cell, y - 0.12), cell, 0.45, fc=PARTS[part], ec="#444444", lw=0.6))
        label = "..." if layer is None else ("S" if cfg.window(layer) else "L") + "v" * cfg.has_values(layer)
        axis.text(LEFT + (i + 0.5) * cell, y + 0.1, label, ha="center", va="center", fontsize=5.5)
    return y + 0.45


def _boxes(axis: Axes, y: float, boxes: list[tuple[str, str, int]]) -> float:
    """Boxes (label, part, drawn or not) from y upwards; returns where the next one begins."""
    for label, part, drawn in boxes:
        if drawn:
            height = 0.4 if part == "norm" else 0.62 + 0.3 * label.count("\n")
            axis.add_patch(Rectangle((LEFT, y), WIDE, height, fc=PARTS[part], ec="#444444", lw=0.6))
            axis.text(5, y + height / 2, label, ha="center", va="center", fontsize=6, linespacing=1.0)
            y += height + 0.12
    return y


def _arrow(axis: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axis.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=7, lw=0.9, color="#444444",
                                   connectionstyle="arc3,rad=0.5", clip_on=False))  # fmt: skip


def short(value: float) -> str:
    """A count in short words: 20 k, 1.027 G."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:.0f}"
