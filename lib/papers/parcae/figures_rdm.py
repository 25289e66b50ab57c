"""The figures of 001's stability study: what a learning rate does to a run."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib.figures.style import (
    COLOURS,
    COLUMN,
    MARKERS,
    NAMES,
    PAGE,
    doublings_axis,
    filled_where,
    legend_above,
    rate,
    shades,
)
from lib.papers.parcae.figures_transformer import log_axis


def training_curves(
    curves: pd.DataFrame,
    quantities: dict[str, str],
    reference: dict[str, float] | None = None,
    names: dict[str, str] = NAMES,
) -> Figure:
    """A grid of panels for one seed: one row for each of ``quantities`` (column of ``curves`` -> axis label), one
    column for each architecture, one line for each learning rate, light where it is low and dark where it is high,
    the highest dashed. A cross ends a run that diverged, with its step where that is too early for a line. The loss is
    a running mean over a thirtieth of the run.

    curves: architecture, lr, status, step and the quantities; reference: a level to draw, by quantity; names: titles of
    the architectures.
    """
    architectures = list(dict.fromkeys(curves["architecture"]))
    rates = sorted(curves["lr"].unique())
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
                dashes = "--" if lr == rates[-1] else "-"  # two dark shades are nearly one
                axis.plot(run["step"], y, dashes, color=colours[lr], label=rate(lr), lw=0.9)
                if (run["status"] == "diverged").any():
                    end = (run["step"].iloc[-1], y.iloc[-1])
                    axis.plot(*end, "x", color=colours[lr], ms=4.5, mew=1.2)
                    if row == 0 and end[0] < 0.02 * curves["step"].max():
                        axis.annotate(f"step {end[0]:.0f}", end, (5, -2), textcoords="offset points", fontsize=6)
            if reference and quantity in reference:
                axis.axhline(reference[quantity], color="#666666", lw=0.8, ls=":")
            if column == 0:
                axis.set_ylabel(label)
            if quantity != "loss":
                log_axis(axis, curves[quantity])
        axes[0, column].set_title(names[architecture])
        axes[-1, column].set_xlabel("step")
        axes[-1, column].legend(
            title="learning rate",
            title_fontsize=7,
            ncols=3,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.42),
            columnspacing=1.0,
            handlelength=1.2,
            handletextpad=0.4,
        )
    return figure


def curves_by_rate(curves: pd.DataFrame, reference: dict[str, float], columns: int = 5) -> Figure:
    """For every learning rate the training loss of one seed and, below it, the state norm, one line an architecture
    (001, App. "Additional Stability Ablations"). At most ``columns`` rates stand side by side. A cross ends a run that
    diverged. The loss is a running mean over a thirtieth of the run; ``reference`` has a level of it to draw."""
    rates = sorted(curves["lr"].unique())
    blocks = -(-len(rates) // columns)
    columns = -(-len(rates) // blocks)  # evenly filled
    figure, axes = plt.subplots(
        2 * blocks, columns, figsize=(PAGE, 1.25 * 2 * blocks + 0.5), sharex=True, sharey=False, squeeze=False
    )
    norms = curves["state_norm"].replace([np.inf], np.nan).dropna()
    losses_within, norms_within = _within(curves["loss"]), (norms.min() * 0.7, norms.max() * 1.5)
    for i, lr in enumerate(rates):
        above, below = axes[2 * (i // columns), i % columns], axes[2 * (i // columns) + 1, i % columns]
        for architecture, run in curves[curves["lr"] == lr].groupby("architecture", sort=False):
            smooth = run["loss"].rolling(max(1, len(run) // 30), min_periods=1).mean()
            for axis, y, (_, top) in ((above, smooth, losses_within), (below, run["state_norm"], norms_within)):
                axis.plot(run["step"], y, color=COLOURS[architecture], lw=0.9, label=NAMES[architecture])
                if (run["status"] == "diverged").any():
                    end = (run["step"].iloc[-1], np.fmin(y.iloc[-1], top))  # at the panel's top where it lies above
                    axis.plot(*end, "x", color=COLOURS[architecture], ms=4.5, mew=1.2, clip_on=False, zorder=3)
        above.axhline(reference["loss"], color="#666666", lw=0.8, ls=":")
        above.set(title=f"lr {rate(lr)}", ylim=losses_within)
        below.set(yscale="log", ylim=norms_within)
        for axis in (above, below):
            axis.tick_params(labelleft=i % columns == 0)
    for axis in axes.flat:
        axis.set_visible(len(axis.lines) > 0)
    plt.setp(axes[::2, 0], ylabel="training loss,\nsmoothed (nats)")
    plt.setp(axes[1::2, 0], ylabel=r"$\|h_T\|_2$")
    for column in axes.T:
        lowest = [axis for axis in column if axis.get_visible()][-1]
        lowest.tick_params(labelbottom=True)
        lowest.set_xlabel("step")
    legend_above(figure, axes[0, 0])
    return figure


def _within(losses: pd.Series) -> tuple[float, float]:
    """Limits of an axis of losses, which leave out the first steps and what a blow-up adds."""
    low, high = np.nanquantile(losses.replace([np.inf], np.nan), [0.001, 0.97])
    return float(low) - 0.05 * (high - low), float(high)


def loss_against_rate(frame: pd.DataFrame, limit: float, limit_name: str) -> Figure:
    """Validation loss against learning rate: one marker a run, open where it does not train, and a line through the
    seeds' medians. frame: architecture, lr, val_loss, trains. ``limit`` is drawn as a level."""
    figure, axis = plt.subplots(figsize=(COLUMN, 2.8))
    architectures = list(dict.fromkeys(frame["architecture"]))
    offsets = dict(zip(architectures, np.linspace(-0.05, 0.05, len(architectures)), strict=True))
    for architecture, runs in frame.groupby("architecture", sort=False):
        colour, marker = COLOURS[architecture], MARKERS[architecture]
        beside = 2 ** (offsets[architecture] * 2)  # seeds of different architectures side by side
        # the edges of several open ones on one place would fill them, were they not white
        x = runs["lr"] * beside
        filled_where(axis, x, runs["val_loss"], runs["trains"], marker, colour, ms=4, mew=0.9, zorder=3)
        median = runs.groupby("lr")["val_loss"].median()
        axis.plot(median.index * beside, median, color=colour, lw=1)
        axis.plot([], [], marker + "-", color=colour, lw=1, label=NAMES[architecture])
    axis.plot([], [], "o", color="#666666", mfc="none", label="open: does not train", ls="")
    axis.axhline(limit, color="#666666", lw=0.8, ls=":", label=limit_name)
    doublings_axis(axis, frame["lr"], "learning rate", rate, rotation=45)
    axis.set_yscale("log")  # one run that ended far up would flatten the others
    axis.set_ylabel("validation loss (nats per token)")
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def outcome_against_radius(frame: pd.DataFrame) -> Figure:
    """A run's largest state rms against its largest spectral radius of A-bar; open markers are runs that do not train.
    frame: architecture, rho_max, max_state_rms, trains."""
    figure, axis = plt.subplots(figsize=(COLUMN, 2.8))
    for architecture, runs in frame.groupby("architecture", sort=False):
        colour, marker = COLOURS[architecture], MARKERS[architecture]
        # two open ones on each other are seen where they are not white
        at = runs["rho_max"], runs["max_state_rms"]
        filled_where(axis, *at, runs["trains"], marker, colour, "none", mew=0.9)
        axis.plot([], [], marker, color=colour, label=NAMES[architecture], ls="")
    axis.plot([], [], "o", color="#666666", mfc="none", label="open: does not train", ls="")
    axis.axvline(1, color="#666666", lw=0.8, ls=":")
    axis.set(xscale="log", xlabel=r"largest $\rho(\bar A)$ in training")
    axis.set(yscale="log", ylabel=r"largest rms of $h_T$")
    figure.legend(loc="outside upper center", ncols=2)
    return figure
