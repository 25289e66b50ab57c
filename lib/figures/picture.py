"""A model, drawn from its config alone (000, Fig. 5)."""

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from lib.config import ModelConfig
from lib.figures.style import COLUMN, row_of_panels, short
from lib.flops import count
from lib.model.injection import weightless

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
        "active" + f", loop x {cfg.mean_loops}" * (cfg.mean_loops > 1): counts.n_active,
        "forward FLOPs / token": counts.flops_per_token_forward,
        "training FLOPs / token": counts.flops_per_token,
        "training FLOPs / token\nas the paper counts": counts.flops_per_token_published,
    }
    text = "\n".join(f"{name}\n   {short(value)}" for name, value in lines.items())
    right.text(0, 0.98, text, va="top", fontsize=6.5, linespacing=1.4, transform=right.transAxes)
    plt.close(figure)  # a notebook shows what a cell returns, and would show an open figure once more
    return figure


def side_by_side(configs: dict[str, ModelConfig]) -> Figure:
    """The pictures of several models, in one row. configs: title -> model."""
    figure, axes = row_of_panels(configs, 3, layout="constrained")
    low = min(picture(axis, cfg) for axis, cfg in zip(axes, configs.values(), strict=True))
    high = max(axis.get_ylim()[1] for axis in axes)
    for axis in axes:
        axis.set_ylim(low, high)
    figure.set_figheight(0.4 + 0.34 * (high - low))  # as high as words need to be between the lines
    plt.close(figure)
    return figure


def picture(axis: Axes, cfg: ModelConfig) -> float:
    """Draws a model from its config alone, input at the bottom: grey runs once, orange is shared by all loops. A cell
    is a layer with Long or Short attention, v where it has a value table. Returns where the words below it end."""
    axis.axis("off")
    axis.set_xlim(0, 10)
    y = _boxes(axis, 0, [(f"embedding {cfg.vocab_size:,} x {cfg.width}", "end", 1), ("norm", "norm", cfg.embed_norm)])
    y = _layers(axis, cfg, "prelude", range(cfg.prelude), y, "once")
    y = _boxes(axis, y, [("norm", "norm", cfg.prelude_norm)])
    if cfg.recur:
        y = _loop(axis, cfg, y)
    y = _boxes(axis, y, [("readout C", "readout", cfg.readout), ("the final norm", "norm", cfg.coda_norm)])
    y = _layers(axis, cfg, "coda", range(cfg.prelude + cfg.recur, cfg.layers), y, "once")
    head = "head" + ", the embedding's table" * cfg.tied + f"\nsoftcap {cfg.softcap:g}" * (cfg.softcap > 0)
    y = _boxes(axis, y, [("norm", "norm", cfg.loop_norm != "closing"), (head, "end", 1)])
    below = _words(axis, -0.25, _what_a_layer_is(cfg), "top")
    axis.set_ylim(min(below, y - 8.5), y + 0.1)
    return below


def _what_a_layer_is(cfg: ModelConfig) -> str:
    """The caption: blocks, heads, MLP, residual multiplier, and what the letters and colours mean."""
    wide = f"{cfg.mlp_width:,} wide"
    mlp = f"{cfg.active_experts} of {cfg.experts} SwiGLU experts, together {wide}" if cfg.experts > 1 else cfg.mlp
    heads = f"{cfg.heads} heads" + f", {cfg.key_heads} of keys" * (cfg.key_heads != cfg.heads)
    windows = {cfg.window(layer) for layer in range(cfg.layers)} - {None}
    lines = [
        f"{cfg.block} blocks, {heads}" + ", q and k with biases" * cfg.qk_bias,
        mlp if cfg.experts > 1 else f"{mlp} MLP, {wide}",
        f"embeddings x {cfg.embed_scale:.3g}" * (cfg.embed_scale != 1),
        f"{'looped ' * (cfg.recur > 0)}branches x {cfg.residual_multiplier:.2g}" * (cfg.residual_multiplier != 1),
        f"L: attention to all {cfg.context:,} positions",
        *(f"S: to the last {window:,}" for window in windows),
        "v: has a value table" * cfg.value_embeddings,
    ]
    return "\n".join(filter(None, lines))


def _loop(axis: Axes, cfg: ModelConfig, entry: float) -> float:
    """The loop from ``entry`` upwards; returns where the next box begins."""
    lanes = f", in {cfg.lanes} lanes" * (cfg.injection == "hyper-connections")
    start = {
        "prelude": "e",
        "zero": "0",
        "like-init": "noise, like-init",
        "unit": "noise, unit",
        "narrow": "narrow noise",
    }
    bottom = entry + 0.35
    state = f"state h, $h_0$ = {start.get(cfg.state_init, 'noise')}{lanes}"
    y = injected = _boxes(axis, bottom + 0.2, [(state, "state", 1)])
    formula = weightless(cfg).formula
    inject = cfg.injection if formula is None else formula
    y = _boxes(axis, y, [(inject, "injection", bool(inject))])
    y = _layers(axis, cfg, "recur", range(cfg.prelude, cfg.prelude + cfg.recur), y, "recur")
    top = _boxes(
        axis,
        y,
        [
            ("norm" if cfg.loop_norm == "own" else "the final norm", "norm", cfg.loop_norm != "none"),
            (r"norm, + $\alpha$ e", "injection", cfg.injection == "boundary"),
            ("exit gate", "readout", cfg.exit_gate),
        ],
    )
    y = _words(axis, top + 0.05, _loops(cfg), "bottom")
    frame: dict[str, Any] = dict(boxstyle="round,pad=0.12", fc="none", ec="#666666", ls=(0, (3, 2)), lw=0.8)
    axis.add_patch(FancyBboxPatch((1.2, bottom), 7.6, y - bottom, **frame))
    if cfg.mean_loops > 1:
        _arrow(axis, (1.5, top - 0.35), (1.5, bottom + 0.5))
    if inject and cfg.injection != "hyper-connections":
        _arrow(axis, (8.5, entry - 0.3), (8.5, injected + 0.3))
        axis.text(9.4, entry + 0.1, "e", ha="center", va="center", fontsize=7)
    return y + 0.35


def _loops(cfg: ModelConfig) -> str:
    """What the loop does, in words."""
    on_average = " on average" * (cfg.depth != "fixed")
    gradient = f"gradient in {cfg.max_backprop_loops}" + ", filled up" * cfg.fill + ", on top" * cfg.on_top
    lines = [
        f"{cfg.mean_loops} loops{on_average}, one set of layers" if cfg.mean_loops > 1 else "1 loop",
        f"{cfg.depth} per {cfg.depth_per}" * (cfg.depth != "fixed"),
        gradient * cfg.truncates,
    ]
    return "\n".join(filter(None, lines))


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
            height = 0.4 if part == "norm" else 0.62 + 0.36 * label.count("\n")
            axis.add_patch(Rectangle((LEFT, y), WIDE, height, fc=PARTS[part], ec="#444444", lw=0.6))
            axis.text(5, y + height / 2, label, ha="center", va="center", fontsize=6, linespacing=1.2)
            y += height + 0.12
    return y


def _arrow(axis: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axis.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=7,
            lw=0.9,
            color="#444444",
            connectionstyle="arc3,rad=0.5",
            clip_on=False,
        )
    )
