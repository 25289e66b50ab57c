"""The downstream figures put every axis, task, size and depth at the numbers of their tables."""

import numpy as np
import pandas as pd
import pytest

from lib import plots_downstream as pictures
from lib.axes import by_axis, macro, optimal
from lib.core import nine_scores
from lib.tasks import CORE, CORE_9, CORE_EXTENDED
from tests.runs import small_run
from tests.test_axes import BUDGETS, RECURRENCES, grid
from tests.test_core import NAMES, asked, results, sized

pytestmark = pytest.mark.usefixtures("style")


@pytest.fixture
def points():
    return by_axis(grid(lambda axis, budget, r, width: 2 + r / 10 + len(axis) / 100 + width / 1000))


def test_axes_by_budget(points):
    figure = pictures.axes_by_budget(optimal(points))
    assert len(figure.axes) == 5 and "Parametric" in figure.axes[0].get_title()
    lines = [container.lines[0] for container in figure.axes[1].containers]
    assert len(lines) == len(RECURRENCES)
    for line, r in zip(lines, RECURRENCES, strict=True):
        np.testing.assert_allclose(line.get_ydata(orig=False), 2 + r / 10 + len("Reading comprehension") / 100 + 0.008)
        np.testing.assert_allclose(line.get_xdata(orig=False), BUDGETS, rtol=0.1)
    assert len({tuple(line.get_xdata()) for line in lines}) == len(lines)  # beside one another


def test_axes_by_loss(points):
    figure = pictures.axes_by_loss(points)
    assert len(figure.axes) == 5
    left, right = figure.axes[0].get_xlim()
    assert left > right  # better models to the right
    dots = [line for line in figure.axes[0].lines if line.get_linestyle() == "None"]
    assert sum(len(line.get_xdata()) for line in dots) == 12


def test_accuracy_and_loss(points):
    figure = pictures.accuracy_and_loss(macro(points))
    accuracy, loss = figure.axes
    assert accuracy.yaxis_inverted() and not loss.yaxis_inverted()
    assert accuracy.xaxis_inverted() and loss.xaxis_inverted()


def test_by_depth():
    rows = [
        dict(task=task, r=r, T=T, loss=r + T / 10, loss_stderr=0.1)
        for task in "abcdefg"
        for r in (1, 2)
        for T in (1, 2, 4)
    ]
    figure = pictures.by_depth(pd.DataFrame(rows))
    shown = [axis for axis in figure.axes if axis.get_visible()]
    assert [axis.get_title() for axis in shown] == [*"abcdefg"]
    filled = [line for line in shown[0].lines if len(line.get_xdata()) == 1]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in filled] == [(1, 1.1), (2, 2.2)]
    # the last panel of each column says what its axis is
    assert [axis.get_xlabel() for axis in shown] == ["", "", *["loops T"] * 5]


def test_by_size():
    runs = sized(tasks=CORE_EXTENDED)
    figure = pictures.by_size(runs)
    core, _, lambada = figure.axes
    assert [axis.get_title() for axis in figure.axes] == ["Core", "Core-Extended", "LAMBADA per token"]
    transformer, parcae = (container.lines[0] for container in core.containers)
    np.testing.assert_allclose(transformer.get_ydata(orig=False), [8, 16, 24])
    np.testing.assert_allclose(parcae.get_ydata(orig=False), [18, 26, 34])
    sizes = sorted(runs["parameters"][runs["architecture"] == "parcae"].unique())
    np.testing.assert_allclose(parcae.get_xdata(orig=False), sizes, rtol=0.04)
    assert lambada.get_yscale() == "log" and lambada.containers[0].has_yerr
    # what none of its own tasks was asked of has no panel
    assert [axis.get_title() for axis in pictures.by_size(sized(tasks=CORE)).axes] == ["Core", "LAMBADA per token"]


def test_ladder_and_frontier():
    rows = [
        {"variant": rung, "seed": seed, "T": T, "Core": T + seed, "Core stderr": 1.0}
        for rung in ("RDM", "+ constrained A", "+ prelude norm") for seed in (1, 3) for T in (1.0, 4.0)
    ]  # fmt: skip
    ladder = pd.DataFrame(rows)
    ladder.loc[ladder["variant"] == "RDM", ["T", "Core", "Core stderr"]] = np.nan  # it diverged
    edge = pd.DataFrame(
        [{"which": which, "budget": budget, "Core": i + budget / 1e9, "Core stderr": 1.0}
         for i, which in enumerate(("looped", "fixed depth")) for budget in (1e9, 2e9)]
    )  # fmt: skip
    left, right = pictures.ladder_and_frontier(ladder, edge).axes
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["+ constrained A", "+ prelude norm"]
    assert [[*container.lines[0].get_ydata()] for container in left.containers] == [[3.0, 6.0], [3.0, 6.0]]
    assert [[*container.lines[0].get_ydata()] for container in right.containers] == [[1.0, 2.0], [2.0, 3.0]]
    assert len({tuple(container.lines[0].get_xdata()) for container in left.containers}) == 2  # beside one another


def test_nine():
    plan = {(name, 32, 5): small_run(train={"seed": i}) for i, name in enumerate(("looped-moe", "base"))}
    table = asked(plan, lambda label, task, T: 0.3 + 0.1 * (label[0] == "base"), CORE_9)
    figure = pictures.nine(nine_scores(table, plan, NAMES, results(plan)))
    (axis,) = figure.axes
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["Base", "Looped-MoE"]
    assert [label.get_text() for label in axis.get_xticklabels()][:3] == ["ARC-E", "ARC-C", "BoolQ"]
    base, sparse = (container.lines[0].get_ydata(orig=False) for container in axis.containers)
    np.testing.assert_allclose(base, 40)
    np.testing.assert_allclose(sparse, 30)
    chances = next(c for c in axis.collections if len(c.get_segments()) == 9 and c.get_linestyle()[0][1] is not None)
    heights = [segment[0][1] for segment in chances.get_segments()]
    assert heights == pytest.approx([25, 25, 50, 20, 25, 25, 50, 100 / 3, 50])
