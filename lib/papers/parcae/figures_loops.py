"""The figures of 001's scaling laws of looping: training, test time, and both at once."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib.figures.style import (
    COLOURS,
    COLUMN,
    PAGE,
    budget_axis,
    doublings_axis,
    few_decades,
    filled_where,
    legend_above,
    parabola,
    rate,
    row_of_panels,
    shades,
)
from lib.fit.fits import Fit
from lib.fit.isoflop import exponent
from lib.papers.parcae.figures_transformer import ordered

#: the looks of 001's functional forms
FORMS = {
    "exponential": (COLOURS["parcae"], "^"),
    "shifted power": ("#E69F00", "s"),
    "power with floor": ("#0072B2", "v"),
    "power": ("#D55E00", "o"),
}
MEAN_LOOPS = r"mean loops $\mu_{rec}$"
EXACT = 1e-10  # a mean Huber loss below it says only that a form goes through every point


def isoflop(runs: pd.DataFrame, optima: pd.DataFrame) -> Figure:
    """Validation loss against mean_loops. Each run is a dot, open at fixed depth; each budget has a parabola, which
    leaves fixed depth out, and a star at its minimum."""
    figure, axis = plt.subplots(figsize=(COLUMN, 2.9))
    budgets = sorted(runs["budget"].unique())
    for budget, colour in zip(budgets, shades("parcae", len(budgets)), strict=True):
        cell = runs[runs["budget"] == budget]
        looped = cell[cell["mean_loops"] > 1]
        axis.plot(looped["mean_loops"], looped["loss"], "o", color=colour, ms=3, label=f"{rate(budget)} FLOPs")
        fixed = cell[cell["mean_loops"] == 1]
        axis.plot(fixed["mean_loops"], fixed["loss"], "o", color=colour, mfc="white", ms=3)
        parabola(axis, looped["mean_loops"], looped["loss"], color=colour)
        for _, of_seed in cell.groupby("seed"):
            first = of_seed.nsmallest(2, "mean_loops")
            if first["mean_loops"].iloc[0] == 1:  # from fixed depth to the fewest loops
                axis.plot(first["mean_loops"], first["loss"], ":", color=colour, lw=0.7, zorder=1)
        best = optima[(optima["budget"] == budget) & optima["inside"]]
        axis.plot(best["mean_loops"], best["loss"], "*", color=colour, ms=9, mec="white", mew=0.5)
    doublings_axis(axis, runs["mean_loops"], MEAN_LOOPS)
    axis.set(title=f"d = {runs['width'].iloc[0]}", ylabel="validation loss (nats per token)")
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def powers(optima: pd.DataFrame, law: pd.DataFrame, width: int) -> Figure:
    """mean_loops* and D* of models of one width against the budget. Circles are the parabolas' optima; an open one is
    an end of the loops trained, where there is no optimum among them. The dashed line is the parametric law's,
    where its optimum lies among the loops trained."""
    figure, axes = plt.subplots(1, 2, figsize=(PAGE, 2.5))
    for axis, column, label in zip(axes, ("mean_loops", "D"), (r"optimal $\mu_{rec}$", "optimal tokens"), strict=True):
        filled_where(axis, optima["budget"], optima[column], optima["inside"], "o", COLOURS["parcae"])
        if not optima["inside"].all():
            open_label = "open: end of the loops trained,\nno minimum inside"
            axis.plot([], [], "o", color=COLOURS["parcae"], mfc="white", label=open_label)
        slope = exponent(optima, column)[0]
        if np.isfinite(slope):
            own = optima[optima["inside"]]
            middle = np.log(own[column]).mean() - slope * np.log(own["budget"]).mean()
            line = np.exp(middle) * optima["budget"] ** slope
            axis.plot(optima["budget"], line, color=COLOURS["parcae"], label=f"parabolas: exponent {slope:.2f}")
        wanted = law[law["inside"]]
        if len(wanted):
            axis.plot(wanted["budget"], wanted[column], "s--", color="#666666", ms=3, label="parametric law")
        few_decades(axis)
        budget_axis(axis, sorted(optima["budget"]))
        axis.set(title=f"d = {width}", ylabel=label)
        if axis.get_legend_handles_labels()[0]:
            axis.legend()
    low, high = axes[0].get_ylim()
    if high / low < 100:
        ticks = [mu for mu in (1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24) if low <= mu <= high]
        axes[0].set_yticks(ticks, [f"{mu:g}" for mu in ticks])
    return figure


def contours(fit: Fit, runs: pd.DataFrame, law: pd.DataFrame) -> Figure:
    """The fitted law's contours of equal loss over mean_loops and tokens, the runs, and the efficient frontier: what
    the law wants at each budget."""
    figure, axis = plt.subplots(figsize=(COLUMN, 3.0))
    looped = runs[runs["mean_loops"] > 1]
    sizes = looped.groupby("mean_loops")["n_eff"].first()
    mu = np.geomspace(sizes.index.min(), sizes.index.max(), 60)
    D = np.geomspace(looped["D"].min() * 0.9, looped["D"].max() * 1.1, 60)
    n_eff = np.interp(mu, sizes.index, sizes)
    loss = np.array([fit.predict(n_eff, np.full_like(mu, d)) for d in D])
    lines = axis.contour(mu, D, loss, levels=10, colors=[COLOURS["parcae"]], linewidths=0.7)
    low, high = np.quantile(loss, [0.03, 0.97])  # no words on what is cut by a corner
    axis.clabel(lines, [level for level in lines.levels if low < level < high], fontsize=6, fmt="%.2f")
    axis.plot(looped["mean_loops"], looped["D"], "o", color="#666666", ms=2.5, label="runs", clip_on=False, zorder=3)
    axis.plot([], [], color=COLOURS["parcae"], lw=0.7, label="loss by the law (nats per token)")
    inside = law[law["inside"]]
    if len(inside):
        axis.plot(inside["mean_loops"], inside["D"], "-", color="#0072B2", lw=1.6, label="efficient frontier")
    doublings_axis(axis, sizes.index, MEAN_LOOPS)
    few_decades(axis)
    axis.set(title=f"d = {runs['width'].iloc[0]}", ylabel="training tokens D")
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def against_fixed_depth(runs: pd.DataFrame, optima: pd.DataFrame) -> Figure:
    """The lowest loss over mean_loops and that of fixed depth, against the budget. Triangles are minima of parabolas;
    an open one is the better end of the loops trained, where there is none among them."""
    figure, axis = plt.subplots(figsize=(COLUMN, 2.6))
    fixed = runs[runs["mean_loops"] == 1]
    mean = fixed.groupby("budget")["loss"].mean()
    axis.plot(fixed["budget"], fixed["loss"], "D", color=COLOURS["transformer"], ms=3, zorder=3)
    axis.plot(mean.index, mean, color=COLOURS["transformer"])
    axis.plot(optima["budget"], optima["loss"], color=COLOURS["parcae"])
    filled_where(axis, optima["budget"], optima["loss"], optima["inside"], "^", COLOURS["parcae"], ms=6)
    axis.plot([], [], "D-", color=COLOURS["transformer"], ms=3, label="fixed depth, one loop")
    axis.plot([], [], "^-", color=COLOURS["parcae"], ms=6, label=r"best $\mu_{rec} > 1$")
    if not optima["inside"].all():
        axis.plot([], [], "^", color=COLOURS["parcae"], mfc="white", ms=6, label="open: end of the loops trained")
    budget_axis(axis, list(mean.index))
    axis.set(title=f"d = {runs['width'].iloc[0]}", ylabel="validation loss (nats per token)")
    axis.legend()
    return figure


def saturation(panels: dict[str, Any], fitted: dict[str, Any], seen: int) -> Figure:
    """Loss against test-time loops, one panel for each title -> curves. Dots are measured, a model's line is its
    exponential, a star stands at T = mean_loops. The least mean_loops has hollow dots, through which others are seen.
    fitted: key -> Fit, to T up to ``seen``; what lies beyond is shaded."""
    figure, axes = plt.subplots(1, len(panels), figsize=(COLUMN if len(panels) == 1 else PAGE, 2.8), squeeze=False)
    looks = ordered({mu for curves in panels.values() for mu in curves["mean_loops"]})
    hollow = {min(looks): {"ms": 4, "mfc": "none", "mew": 0.7, "zorder": 3}}
    for axis, (title, curves) in zip(axes[0], panels.items(), strict=True):
        for (mu, key), curve in curves.groupby(["mean_loops", "key"]):
            colour, marker = looks[mu]
            axis.plot(curve["T"], curve["loss"], marker, color=colour, **hollow.get(mu, {"ms": 2.5}))
            T = np.linspace(curve["T"].min(), curve["T"].max(), 100)
            axis.plot(T, fitted[key].predict(T), color=colour, lw=0.9)
            at = curve[curve["T"] == mu]
            axis.plot(at["T"], at["loss"], "*", color=colour, ms=9, mec="white", mew=0.5)
        for mu in sorted(curves["mean_loops"].unique()):
            look = hollow.get(mu, {"ms": 3})
            axis.plot([], [], looks[mu][1] + "-", color=looks[mu][0], label=f"$\\mu_{{rec}}$ = {mu}", **look)
        low, high = curves["loss"].min(), np.quantile(curves["loss"], 0.97)
        axis.set_ylim(low - 0.05 * (high - low), high)  # T = 1 of the deepest models lies far above
        beyond = curves[curves["T"] > seen]
        if len(beyond):
            axis.axvspan(seen + 0.5, beyond["T"].max() + 0.5, color="#eeeeee", lw=0, zorder=0)
            off = [fitted[key].predict(own["T"]) / own["loss"] - 1 for key, own in beyond.groupby("key")]
            title += f", {100 * np.abs(np.concatenate(off)).mean():.2g} % off beyond T = {seen}"
        axis.set(title=title, xlabel="test-time loops T")
    axes[0, 0].set_ylabel("validation loss (nats per token)")
    legend_above(figure, axes[0, 0])
    return figure


def forms(table: pd.DataFrame) -> Figure:
    """Mean Huber loss of each functional form, one mark a model: fitted on all T (left) and extrapolated (right). A bar
    is the mean; an arrow at EXACT stands for less. Models lie in their order below each other."""
    titles = "fitted on all T", r"fitted on $T \leq \mu_{rec}$, judged beyond"
    figure, axes = row_of_panels(titles, 2.3, "mean Huber loss of the log residuals", sharex=True, sharey=True)
    for axis, column in zip(axes, ("in", "beyond"), strict=True):
        for y, (form, (colour, marker)) in enumerate(FORMS.items()):
            values = table[table["form"] == form][column].dropna()
            at, exact = y + np.linspace(-0.25, 0.25, len(values)), values < EXACT
            axis.plot(values[~exact], at[~exact], marker, color=colour, ms=3, alpha=0.8)
            axis.plot(values[exact].clip(lower=EXACT), at[exact], ls="", marker="$<$", color=colour, ms=3.5, mew=0.4)
            if len(values):
                axis.plot(values.mean(), y, "|", color="black", ms=12)
        axis.set_yticks(range(len(FORMS)), list(FORMS))
        axis.set(xscale="log", ylim=(len(FORMS) - 0.5, -0.5))
    return figure


def predicted_curves(curves: pd.DataFrame, fitted: np.ndarray, oracle: np.ndarray) -> Figure:
    """The loss of held-out models against T, one column a title: measured, as the unified law predicts it, and as it
    does from the oracle's floor; below, by how much the two are off. curves: key, title, T, loss; fitted and oracle:
    predictions in its order."""
    curves = curves.assign(fitted=fitted, oracle=oracle)
    titles = list(dict.fromkeys(curves["title"]))
    figure, axes = plt.subplots(2, len(titles), figsize=(PAGE, 3.9), height_ratios=(3, 2), squeeze=False, sharex=True)
    for axis, below, title in zip(axes[0], axes[1], titles, strict=True):
        of_title = curves[curves["title"] == title]
        for i, (_, curve) in enumerate(of_title.groupby("key")):
            axis.plot(curve["T"], curve["loss"], "o", color="black", ms=3, label="measured" if i == 0 else None)
            for column, label, colour, line in (
                ("fitted", "unified law", "#E69F00", "-"),
                ("oracle", "oracle floor", "#0072B2", "--"),
            ):
                axis.plot(curve["T"], curve[column], line, color=colour, label=label if i == 0 else None)
                below.plot(curve["T"], 100 * (curve[column] / curve["loss"] - 1), line, color=colour)
        axis.set_title(title)
        below.axhline(0, color="black", lw=0.6)
        below.set_xlabel("test-time loops T")
    axes[0, 0].set_ylabel("validation loss\n(nats per token)")
    axes[1, 0].set_ylabel("predicted less\nmeasured (%)")
    axes[0, -1].legend()
    return figure
