"""The figures of models that are trained on questions whose answer takes steps."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from lib.figures.style import COLOURS, PAGE, doublings_axis, legend_above, shades
from lib.papers.parcae.depth_tasks import DEEP, LOOPED, PLAIN, SAMPLED
from lib.papers.parcae.figures_transformer import ordered

_LIGHT = shades("parcae", 5)[1]
#: model -> (colour, marker, line)
LOOKS = {
    PLAIN: (COLOURS["transformer"], "D", ":"),
    DEEP: (COLOURS["transformer"], "o", "-"),
    LOOPED: (_LIGHT, "v", "--"),
    SAMPLED: (COLOURS["parcae"], "^", "-"),
}


def by_steps(table: pd.DataFrame) -> Figure:
    """Accuracy against the steps that an answer takes, one panel a family: a line through each model's means over
    seeds, a dot a seed. Right of the dotted line are steps that no text has. table: ``depth_tasks.as_trained``."""
    families = list(dict.fromkeys(table["family"]))
    columns = min(2, len(families))
    rows = -(-len(families) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(PAGE, 2.1 * rows + 0.5), squeeze=False, sharey=True)
    for axis, family in zip(axes.flat, families, strict=False):
        own = table[table["family"] == family]
        steps = sorted(own["steps"].unique())
        for i, (model, (colour, marker, line)) in enumerate(LOOKS.items()):
            cells = own[own["model"] == model]
            place = cells["steps"].map(steps.index) + 0.09 * (i - 1.5)
            axis.plot(place, cells["accuracy"], marker, color=colour, ms=2.5, alpha=0.5)
            mean = cells.groupby("steps")["accuracy"].mean()
            at = [steps.index(n) + 0.09 * (i - 1.5) for n in mean.index]
            axis.plot(at, mean, marker + line, color=colour, ms=4.5, lw=1, label=model)
        last = steps.index(own[own["trained"]]["steps"].max())
        axis.axvline(last + 0.5, color="#666666", lw=0.8, ls=":")
        axis.set_xticks(range(len(steps)), [str(n) for n in steps])
        axis.set(title=family, ylim=(-4, 104))
    for axis in axes.flat[len(families) :]:
        axis.set_visible(False)
    plt.setp(axes[-1], xlabel="steps of the answer")
    plt.setp(axes[:, 0], ylabel="right answers (%)")
    legend_above(figure, axes[0, 0])
    return figure


def by_loops(table: pd.DataFrame, mean_loops: int) -> Figure:
    """Accuracy against test-time loops T, a row for each looped model, a column a family. Each number of steps
    has a line and a marker, light for few and dark for many, dashed where no text has them. The dotted line is
    mean_loops."""
    looped = [name for name in (LOOPED, SAMPLED) if name in set(table["model"])]
    means = table[table["model"].isin(looped)].groupby(["model", "family", "steps", "T"])["accuracy"].mean()
    most = max(1.0, means.max())
    families = list(dict.fromkeys(table["family"]))
    figure, axes = plt.subplots(
        len(looped), len(families), figsize=(PAGE, 1.9 * len(looped) + 0.9), squeeze=False, sharex=True, sharey=True
    )
    for row, model in zip(axes, looped, strict=True):
        for axis, family in zip(row, families, strict=True):
            own = table[(table["model"] == model) & (table["family"] == family)]
            looks = ordered(own["steps"].unique())
            for steps, cell in own.groupby("steps"):
                colour, marker = looks[steps]
                mean = cell.groupby("T")["accuracy"].mean()
                line = "-" if cell["trained"].all() else "--"
                axis.plot(mean.index, mean, marker + line, color=colour, mfc="none", ms=4, lw=1, label=f"{steps}")
            axis.axvline(mean_loops, color="#666666", lw=0.8, ls=":")
            doublings_axis(axis, own["T"], fontsize=6)
            axis.set(xlim=(0.9, 1.1 * own["T"].max()), ylim=(-0.04 * most, 1.04 * most))
            axis.set_title(f"{family}, {model.removeprefix('looped, ')}", fontsize=7)
    plt.setp(axes[:, 0], ylabel="right answers (%)")
    plt.setp(axes[-1], xlabel="test-time loops T")
    for axis in axes[-1]:
        axis.legend(
            title="steps", title_fontsize=6, fontsize=6, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.3)
        )
    return figure
