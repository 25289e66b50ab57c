"""One look for every figure: one colour an architecture, colour-blind safe, the profile printed on it."""

import json
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from lib import files
from lib.claims import interval
from lib.config import ModelConfig
from lib.flops import count

COLUMN = 3.4  # inches, the width of a paper's column
PAGE = 7.0

# Okabe and Ito's palette, safe for all common colour deficiencies
COLOURS = {
    "base": "#D55E00",
    "residual-norm": "#0072B2",
    "parcae": "#009E73",
    "parcae-rdm": "#56B4E9",
    "transformer": "#000000",
    "isodepth": "#CC79A7",
}
NAMES = {
    "base": "Base (pre-norm, concat)",
    "residual-norm": "Residual norm",
    "parcae": "Parcae",
    "parcae-rdm": "Parcae without C, prelude norm",
    "transformer": "Transformer",
    "isodepth": "Looped, iso-depth",
}
MARKERS = {"base": "o", "residual-norm": "s", "parcae": "^", "parcae-rdm": "v", "transformer": "D", "isodepth": "P"}

_profile = "cpu"


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
        "axes.grid": True,
        "grid.color": "#e6e6e6",
        "grid.linewidth": 0.6,
        "lines.linewidth": 1.1,
        "lines.markersize": 4,
        "legend.frameon": False,
        "pdf.fonttype": 42,
    })  # fmt: skip


def shades(architecture: str, n: int) -> list[tuple]:
    """n shades of an architecture's colour, light to dark, for an ordered quantity such as the learning rate."""
    colour = np.array(to_rgb(COLOURS[architecture]))
    ramp = LinearSegmentedColormap.from_list(architecture, [0.65 + 0.35 * colour, colour, 0.35 * colour])
    return [ramp(x) for x in np.linspace(0, 1, n)] if n > 1 else [tuple(colour)]


def save(figure, path: Path, stamp: dict) -> Path:
    """PNG and PDF with ``stamp`` in their metadata and in a JSON beside them; the profile is printed on the figure."""
    figure.supxlabel(f"profile: {_profile}", x=0.995, ha="right", fontsize=6, color="#666666")
    text = json.dumps(stamp, sort_keys=True, default=str)
    files.write_json(path.with_suffix(".json"), json.loads(text))
    for suffix, metadata in ((".png", {"Description": text}), (".pdf", {"Subject": text})):
        with files.replacing(path.with_suffix(suffix)) as draft:
            figure.savefig(draft, format=suffix[1:], metadata=metadata)
    return path.with_suffix(".png")


def rate(lr: float) -> str:
    """A learning rate, or a budget, for an axis: 3.2e-2, 1e11."""
    mantissa, exponent = f"{lr:.2e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def training_curves(curves, quantities: dict[str, str], reference: dict[str, float] | None = None):
    """A grid of panels: one row a quantity (column of ``curves`` -> axis label), one column an architecture, one line a
    learning rate (light: low, dark: high), drawn for one seed. A cross ends a run that diverged.

    curves has columns architecture, lr, status, step and the quantities; the loss is a running mean over a thirtieth of
    the run. ``reference`` draws a level in a row.
    """
    architectures = list(dict.fromkeys(curves["architecture"]))
    rates = sorted(curves["lr"].unique())
    figure, axes = plt.subplots(
        len(quantities), len(architectures), figsize=(PAGE, 1.55 * len(quantities) + 0.75),
        sharex=True, sharey="row", squeeze=False,
    )  # fmt: skip
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
                axis.plot(run["step"], y, color=colours[lr], label=rate(lr), lw=0.9)
                if (run["status"] == "diverged").any():
                    axis.plot(run["step"].iloc[-1:], y.iloc[-1:], "x", color=colours[lr], ms=4.5, mew=1.2)
            if reference and quantity in reference:
                axis.axhline(reference[quantity], color="#666666", lw=0.8, ls=":")
            if column == 0:
                axis.set_ylabel(label)
            if quantity != "loss":
                axis.set_yscale("log")
        axes[0, column].set_title(NAMES[architecture])
        axes[-1, column].set_xlabel("step")
        axes[-1, column].legend(
            title="learning rate", title_fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.42),
            columnspacing=1.0, handlelength=1.2, handletextpad=0.4,
        )  # fmt: skip
    return figure


def loss_against_rate(frame, limit: float, limit_name: str):
    """Validation loss against learning rate, one marker a run, a line through the seeds' median; open markers are runs
    that do not train. ``frame`` has columns architecture, lr, val_loss and trains; ``limit`` is drawn as a level."""
    figure, axis = plt.subplots(figsize=(COLUMN, 2.8))
    architectures = list(dict.fromkeys(frame["architecture"]))
    offsets = dict(zip(architectures, np.linspace(-0.05, 0.05, len(architectures)), strict=True))
    for architecture, runs in frame.groupby("architecture", sort=False):
        colour, marker = COLOURS[architecture], MARKERS[architecture]
        x = runs["lr"] * 2 ** (offsets[architecture] * 2)  # seeds of different architectures side by side
        for trains, face in ((True, colour), (False, "white")):
            at = runs["trains"] == trains
            axis.plot(x[at], runs["val_loss"][at], marker, color=colour, mfc=face, ms=4, mew=0.9)
        median = runs.groupby("lr")["val_loss"].median()
        axis.plot(median.index, median, color=colour, lw=1, label=NAMES[architecture])
    axis.axhline(limit, color="#666666", lw=0.8, ls=":")
    axis.annotate(limit_name, (frame["lr"].max(), limit), (0, -2), textcoords="offset points", ha="right", va="top",
                  fontsize=6, color="#666666")  # fmt: skip
    axis.set_xscale("log", base=2)
    rates = sorted(frame["lr"].unique())
    axis.set_xticks(rates, [rate(lr) for lr in rates], rotation=45)
    axis.minorticks_off()
    axis.set_xlabel("learning rate")
    axis.set_ylabel("validation loss (nats per token)")
    axis.legend(loc="upper left")
    return figure


def outcome_against_radius(frame):
    """Largest spectral radius of A-bar in a run against its largest state rms; open markers do not train."""
    figure, axis = plt.subplots(figsize=(COLUMN, 2.8))
    for architecture, runs in frame.groupby("architecture", sort=False):
        colour, marker = COLOURS[architecture], MARKERS[architecture]
        for trains, face in ((True, colour), (False, "white")):
            at = runs["trains"] == trains
            axis.plot(runs["rho_max"][at], runs["max_state_rms"][at], marker, color=colour, mfc=face, mew=0.9, ls="")
        axis.plot([], [], marker, color=colour, label=NAMES[architecture], ls="")
    axis.plot([], [], "o", color="#666666", mfc="white", label="open: does not train", ls="")
    axis.axvline(1, color="#666666", lw=0.8, ls=":")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel(r"largest $\rho(\bar A)$ in training")
    axis.set_ylabel(r"largest rms of $h_T$")
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def dots(columns: dict[str, list[float]], label: str):
    """One row a variant: a dot a seed, and the 95 % interval of their mean (Student's t)."""
    figure, axis = plt.subplots(figsize=(COLUMN, 0.5 + 0.35 * len(columns)))
    for y, values in enumerate(columns.values()):
        x = np.asarray(values, dtype=float)
        mean, low, high = interval(x)
        if np.isfinite([low, high]).all():
            axis.plot([low, high], [y, y], color="#bbbbbb", lw=4, solid_capstyle="butt")
        axis.plot(x, np.full(len(x), y), "o", color=COLOURS["isodepth"], ms=3.5)
        axis.plot(mean, y, "|", color="black", ms=9)
    axis.set_yticks(range(len(columns)), list(columns))
    axis.set_ylim(len(columns) - 0.5, -0.5)
    axis.set_xlabel(label)
    return figure


# ---- the iso-depth grid (000) ----------------------------------------------------------------------------------------


def of_recurrences(recurrences) -> dict[int, tuple]:
    """(colour, marker) of each r: the plain model black, the looped ones in shades of their family's colour."""
    looped = sorted(r for r in recurrences if r > 1)
    colours = dict(zip(looped, shades("isodepth", len(looped) + 1)[1:], strict=True)) | {
        1: to_rgb(COLOURS["transformer"])
    }
    return {r: (colours[r], marker) for r, marker in zip(sorted(recurrences), "Dosv^<>", strict=False)}


def isoflop_curves(runs, optima):
    """000, Fig. 2: validation loss against unique parameters, one panel a budget, one parabola and star a
    recurrence."""
    budgets = sorted(runs["budget"].unique())
    figure, axes = plt.subplots(1, len(budgets), figsize=(PAGE, 2.7), sharey=True, squeeze=False)
    look = of_recurrences(runs["r"].unique())
    for axis, budget in zip(axes[0], budgets, strict=True):
        for r, cell in runs[runs["budget"] == budget].groupby("r"):
            colour, marker = look[r]
            cell = cell.sort_values("N")
            axis.plot(cell["N"], cell["loss"], marker, color=colour, ms=3.5, label=f"r = {r}")
            if len(cell) >= 3:
                curve = np.polynomial.Polynomial.fit(np.log(cell["N"]), cell["loss"], 2)
                x = np.geomspace(cell["N"].min(), cell["N"].max(), 60)
                axis.plot(x, curve(np.log(x)), color=colour, lw=0.9)
            best = optima[(optima["budget"] == budget) & (optima["r"] == r) & optima["inside"]]
            axis.plot(best["N"], best["loss"], "*", color=colour, ms=8, mec="white", mew=0.5)
        axis.set_xscale("log")
        axis.set_title(f"{rate(budget)} FLOPs")
        axis.set_xlabel("unique parameters N")
    axes[0, 0].set_ylabel("validation loss (nats per token)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(look))
    return figure


def optima_against_budget(optima):
    """000, Fig. 3: compute-optimal parameters and tokens against the budget; open markers lie outside the widths
    trained."""
    figure, axes = plt.subplots(1, 2, figsize=(PAGE, 2.6))
    look = of_recurrences(optima["r"].unique())
    for axis, column, label in zip(axes, ("N", "D"), ("optimal parameters N*", "optimal tokens D*"), strict=True):
        for r, line in optima.dropna(subset=["N"]).groupby("r"):
            colour, marker = look[r]
            axis.plot(line["budget"], line[column], color=colour, lw=0.9, label=f"r = {r}")
            for inside, face in ((True, colour), (False, "white")):
                at = line["inside"] == inside
                axis.plot(line["budget"][at], line[column][at], marker, color=colour, mfc=face, ms=4.5)
        _budget_axis(axis, sorted(optima["budget"].unique()))
        axis.set_yscale("log")
        axis.set_ylabel(label)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=max(1, len(labels)))
    return figure


def _budget_axis(axis, budgets) -> None:
    """A log axis of training FLOPs, with a tick at each budget."""
    axis.set_xscale("log")
    axis.set_xticks(budgets, [rate(budget) for budget in budgets])
    axis.minorticks_off()
    axis.set_xlabel("budget (FLOPs)")


def predicted_against_measured(panels: dict):
    """000, Figs. 8 and 10: predicted against measured loss, one panel a law; panels: title -> (fit, runs)."""
    figure, axes = plt.subplots(1, len(panels), figsize=(PAGE, 2.7), squeeze=False, sharex=True, sharey=True)
    for axis, (title, (fit, runs)) in zip(axes[0], panels.items(), strict=True):
        predicted = runs["loss"] * np.exp(fit.residuals)
        for r, (colour, marker) in of_recurrences(runs["r"].unique()).items():
            at = (runs["r"] == r).to_numpy()
            axis.plot(runs["loss"][at], predicted[at], marker, color=colour, ms=3.5, label=f"r = {r}")
        ends = [runs["loss"].min(), runs["loss"].max()]
        axis.plot(ends, ends, color="#666666", lw=0.8, ls=":")
        axis.set_title(
            f"{title}\n$R^2$ = {fit.r2:.3f}, rms {np.sqrt(np.mean((predicted - runs['loss']) ** 2)):.3f} nats"
        )
        axis.set_xlabel("measured loss (nats)")
    axes[0, 0].set_ylabel("predicted loss (nats)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=max(1, len(labels)))
    return figure


def worth_of_a_recurrence(worth, frontier, measured):
    """000, Fig. 1. Left: unique and effective parameters at one width, and FLOPs, relative to r = 1 (``worth``: columns
    r, unique, effective, flops). Right: compute-optimal loss against budget by the law (``frontier``: budget, r, loss,
    and loss_unrolled at phi = 1), crosses for measured optima."""
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
    left.set_xlabel("recurrences r")
    left.set_ylabel("relative to r = 1")
    left.legend(loc="lower left")
    for r, line in frontier.groupby("r"):
        colour, marker = look[r]
        right.plot(line["budget"], line["loss"], color=colour, label=f"r = {r}")
        points = measured[measured["r"] == r] if len(measured) else measured
        if len(points):
            right.plot(points["budget"], points["loss"], "x", color=colour, ms=4.5)
    unrolled = frontier[frontier["r"] == frontier["r"].max()]
    right.plot(
        unrolled["budget"], unrolled["loss_unrolled"], color="#666666", ls="--", lw=0.9, label=r"all at $\varphi = 1$"
    )
    _budget_axis(right, sorted(measured["budget"].unique()))
    right.set_ylabel("compute-optimal loss (nats)")
    right.legend()
    return figure


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


def show(cfg: ModelConfig):
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
    text = "\n".join(f"{name}\n   {_short(value)}" for name, value in lines.items())
    right.text(0, 0.98, text, va="top", fontsize=6.5, linespacing=1.4, transform=right.transAxes)
    plt.close(figure)  # a notebook shows what a cell returns, and would show an open figure once more
    return figure


def side_by_side(configs: list[ModelConfig]):
    """The pictures of several models, in one row."""
    figure, axes = plt.subplots(1, len(configs), figsize=(PAGE, 3.2), squeeze=False, layout="constrained")
    for axis, cfg in zip(axes[0], configs, strict=True):
        picture(axis, cfg)
    heights = [axis.get_ylim() for axis in axes[0]]
    for axis in axes[0]:
        axis.set_ylim(min(low for low, _ in heights), max(high for _, high in heights))
    plt.close(figure)
    return figure


def picture(axis, cfg: ModelConfig) -> None:
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


def _loop(axis, cfg: ModelConfig, entry: float) -> float:
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
    y = _boxes(axis, y, [(inject, "injection", inject is not None)])
    y = _layers(axis, cfg, "recur", range(cfg.prelude, cfg.prelude + cfg.recur), y, "recur")
    top = _boxes(axis, y, [("norm" if cfg.loop_norm == "own" else "the final norm", "norm", cfg.loop_norm != "none")])
    y = _words(axis, top + 0.05, _loops(cfg), "bottom")
    frame = dict(boxstyle="round,pad=0.12", fc="none", ec="#666666", ls=(0, (3, 2)), lw=0.8)
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


def _words(axis, y: float, words: str, side: str) -> float:
    """Lines of text from y on, upwards ('bottom' at y) or downwards; returns where they end."""
    axis.text(5, y, words, ha="center", va=side, fontsize=6, linespacing=1.15)
    height = 0.36 * (words.count("\n") + 1)
    return y + height if side == "bottom" else y - height


def _layers(axis, cfg: ModelConfig, stack: str, layers: range, y: float, part: str) -> float:
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


def _boxes(axis, y: float, boxes: list[tuple]) -> float:
    """Boxes (label, part, drawn or not) from y upwards; returns where the next one begins."""
    for label, part, drawn in boxes:
        if drawn:
            height = 0.4 if part == "norm" else 0.62 + 0.3 * label.count("\n")
            axis.add_patch(Rectangle((LEFT, y), WIDE, height, fc=PARTS[part], ec="#444444", lw=0.6))
            axis.text(5, y + height / 2, label, ha="center", va="center", fontsize=6, linespacing=1.0)
            y += height + 0.12
    return y


def _arrow(axis, start: tuple, end: tuple) -> None:
    axis.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=7, lw=0.9, color="#444444",
                                   connectionstyle="arc3,rad=0.5", clip_on=False))  # fmt: skip


def _short(value: float) -> str:
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:.0f}"
