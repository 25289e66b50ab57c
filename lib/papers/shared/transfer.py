"""Does one learning rate serve everywhere? The best rate of each condition, and what a kept one costs there.

A parameterisation transfers if the optimum stays where it is (000, App. D.2; 002, Fig. 5; 004, mu-P figure).
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
import scipy.special
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.typing import ColorType

from lib.config import Label, RunConfig
from lib.figures.style import panels_beside, rate, row_of_panels, shades
from lib.fit.isoflop import minimum
from lib.papers.shared.frames import labelled
from lib.store.result import RunResult

LINES = "osD^PXph"  # markers of conditions
MINIMUM: Final = 7  # matplotlib's triangle that stands on its tip


def final_losses(results: Iterable[RunResult], plan: dict[Label, RunConfig], names: Sequence[str]) -> pd.DataFrame:
    """``frames.labelled`` runs, of which one that diverged, or knows less than nothing, counts as knowing nothing, with
    a loss of log V: it stays in every comparison, and one wild number decides none."""
    runs = labelled(results, plan, names)
    return runs.assign(loss=np.fmin(runs["loss"], [math.log(cfg.model.vocab_size) for cfg in plan.values()]))


def best_rates(runs: pd.DataFrame, by: list[str], kept: float, within: float = math.inf) -> pd.DataFrame:
    """One row a condition, a combination of the columns ``by`` of runs, which has ``lr`` and ``loss`` besides. Seeds
    are averaged first.

    lr: the rate at the minimum of the parabola of the loss in log lr, through all rates ``within`` a factor of the best
    one tried: far from it a valley is no parabola, and at high rates single losses scatter. stderr: the standard error
    of its logarithm, nan where three rates leave none. low, high: its 95 % interval (Student's t). inside: whether it
    lies between these rates. regret: nats that the rate ``kept`` loses on the best one tried (000, Fig. 7), nan where
    it was not tried.
    """
    rows = []
    for condition, cell in runs.groupby(by, sort=False):
        losses = cell.groupby("lr")["loss"].mean()
        octaves = np.log2(losses.index.to_numpy(float))
        near = losses[np.abs(octaves - octaves[losses.argmin()]) <= np.log2(within) + 1e-9]
        lr, _, stderr, inside = minimum(near.index, near)
        with np.errstate(over="ignore"):  # from 0 to infinity where the parabola is flat
            beyond = np.exp(scipy.special.stdtrit(max(1, len(near) - 3), 0.975) * stderr / lr)
        found = {
            "lr": lr,
            "stderr": stderr / lr,
            "low": lr / beyond,
            "high": lr * beyond,
            "inside": inside,
            "best tried": losses.idxmin(),
            "regret": losses[kept] - losses.min() if kept in losses.index else np.nan,
        }
        rows.append({**dict(zip(by, condition, strict=True)), **found})
    return pd.DataFrame(rows)


def drift(best: pd.DataFrame, by: list[str], axis: str) -> pd.DataFrame:
    """How far the best rate moves: one row for each combination of ``by``, with ``drift``, the slope of log lr* against
    log ``axis`` over the rows of ``best_rates``; nan where an optimum lies outside the rates tried, which has no
    number: the edge in its place would understate the drift.

    0 is a rate that transfers; a rule that leaves an output change like N^a wants a drift of -a (002, Theorem 2)."""
    return slopes(best.assign(lr=best["lr"].where(best["inside"])), by, "lr", axis).rename("drift").reset_index()


def regrets(runs: pd.DataFrame, at: str | list[str], reference: Any) -> pd.DataFrame:
    """What it costs not to tune again, seed by seed: one row a condition, a value of ``at`` other than ``reference``,
    and one column a seed. The rate tuned at ``reference`` and the condition's own are the best on the mean of the other
    seeds; a number is the share of the loss that the one loses on the other in this seed, with its sign. No run chooses
    a rate that it then judges, so that noise favours neither. A single seed has to judge its own choice."""
    found, several = {}, runs["seed"].nunique() > 1
    for seed in sorted(runs["seed"].unique()):
        judging = runs["seed"] == seed
        here = runs[judging].pivot_table(index=at, columns="lr", values="loss")
        tuned = (runs[~judging] if several else runs).pivot_table(index=at, columns="lr", values="loss").idxmin(axis=1)
        own = here.to_numpy()[np.arange(len(here)), here.columns.get_indexer(pd.Index(tuned))]
        found[seed] = (here[tuned[reference]] / own - 1).drop(reference)
    return pd.DataFrame(found)


# ---- figures: loss against the base rate, condition by condition -----------------------------------------------------


def loss_curves(
    runs: pd.DataFrame,
    best: pd.DataFrame,
    panel: str,
    condition: str,
    look: dict[str, str],
    x: str = "base learning rate",
) -> Figure:
    """002, Fig. 5: loss against base rate, the mean of the seeds and a bar that spans them. Each value of the column
    ``panel`` has a panel, in the colour that ``look`` has for it; each value of ``condition`` has a shade and a marker.
    A triangle stands on the line at its parabola's minimum, from ``best_rates``. Of losses so far above the others that
    the minima could not be seen, the value stands at the panel's top."""
    means = runs.groupby([panel, condition, "lr"])["loss"].mean()
    first, last = np.quantile(means, [0.25, 0.75])
    most = last + 3 * (last - first)  # Tukey's outer fence, beyond which a loss is far out
    titles, lines = list(dict.fromkeys(runs[panel])), list(dict.fromkeys(runs[condition]))
    below = x if len(titles) < 5 else x.replace(" ", "\n", 1)
    figure, axes = row_of_panels(titles, 3.0, below, "validation loss (nats per token)", sharey=True)
    for axis, title in zip(axes, titles, strict=True):
        cell, optima = runs[runs[panel] == title], best[(best[panel] == title) & best["inside"]]
        for line, colour, marker in zip(lines, shades(look[title], len(lines)), itertools.cycle(LINES), strict=False):
            seeds = cell[cell[condition] == line].groupby("lr")["loss"]
            losses = seeds.mean()
            axis.plot(losses.index, losses, marker + "-", color=colour, ms=3.5)
            axis.vlines(losses.index, seeds.min(), seeds.max(), color=colour, lw=0.9)
            for lr, loss in losses[losses > most].items():
                axis.annotate(
                    f"{loss:.2f} $\\uparrow$",
                    (lr, 1),
                    xycoords=("data", "axes fraction"),
                    bbox=dict(fc="white", ec="none", pad=0.5),  # over the line
                    ha="right",
                    va="top",
                    fontsize=6,
                )
            minima(axis, optima.loc[optima[condition] == line, "lr"], losses, colour)
        rate_axis(axis, cell["lr"])
    if means.max() > most:
        axes[0].set_ylim(top=most)
    # of one colour for all panels, or grey
    colours = shades(look[titles[0]] if len(set(look.values())) == 1 else "looped-nanochat", len(lines))
    figure.legend(
        handles=[
            Line2D([], [], marker=marker, ms=3.5, color=colour, label=line)
            for line, colour, marker in zip(lines, colours, itertools.cycle(LINES), strict=False)
        ]
        + [
            Line2D([], [], ls="", marker="|", ms=8, color="#6B6B6B", label="range of the seeds"),
            Line2D([], [], ls="", marker=MINIMUM, ms=6, color="#6B6B6B", label="best rate (parabola's minimum)"),
        ],
        loc="outside upper center",
        ncols=len(lines) + 2,
    )
    return figure


def minima(axis: Axes, best: pd.Series, losses: pd.Series, colour: ColorType) -> None:
    """Triangles whose tips stand on a line, ``losses`` by rate, at its best rates."""
    for lr in best:
        on_line = np.interp(np.log(lr), np.log(losses.index), losses)
        axis.plot(lr, on_line, marker=MINIMUM, color=colour, ms=6, mec="white", mew=0.6, zorder=3)


def rate_axis(axis: Axes, rates: Iterable[float]) -> None:
    """A log x axis of learning rates, with a tick at each."""
    axis.set_xscale("log", base=2)
    ticks = sorted(set(rates))
    every = 1 if len(ticks) < 7 and len(ticks) * panels_beside(axis) < 30 else 2  # there is room for so many names
    axis.set_xticks(ticks, ["" if i % every else rate(lr) for i, lr in enumerate(ticks)], rotation=45)
    axis.minorticks_off()


# ---- exponents: how one quantity grows with another, read off a log-log plot -----------------------------------------


def log_slope(x: pd.Series, y: pd.Series) -> float:
    """The slope of log y against log x; nan where there is one x alone, or a y is nan."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0]) if x.nunique() > 1 else np.nan


def slopes(table: pd.DataFrame, by: list[str], quantity: str, over: str) -> pd.Series:
    """``log_slope`` of the column ``quantity`` against the column ``over``, for each combination of the columns
    ``by``."""
    return table.groupby(by, sort=False)[[over, quantity]].apply(lambda cell: log_slope(cell[over], cell[quantity]))
