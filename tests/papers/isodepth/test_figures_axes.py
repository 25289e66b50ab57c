"""The figures of the downstream axes put every axis, task and depth at the numbers of their tables."""

import numpy as np
import pandas as pd
import pytest

from lib.papers.isodepth import figures_axes
from lib.papers.isodepth.axes import by_axis, optimal
from tests.papers.isodepth.test_axes import BUDGETS, RECURRENCES, grid

pytestmark = pytest.mark.usefixtures("style")


@pytest.fixture
def points():
    return by_axis(grid(lambda axis, budget, r, width: 2 + r / 10 + len(axis) / 100 + width / 1000))


def test_axes_by_budget(points):
    figure = figures_axes.axes_by_budget(optimal(points))
    assert len(figure.axes) == 5 and "Parametric" in figure.axes[0].get_title()
    alone = figures_axes.axes_by_budget(optimal(points).assign(tasks=1))
    assert "(3 tasks)" in figure.axes[0].get_title() and "(1 task)" in alone.axes[0].get_title()
    lines = [container.lines[0] for container in figure.axes[1].containers]
    assert len(lines) == len(RECURRENCES)
    for line, r in zip(lines, RECURRENCES, strict=True):
        np.testing.assert_allclose(line.get_ydata(orig=False), 2 + r / 10 + len("Reading comprehension") / 100 + 0.008)
        np.testing.assert_allclose(line.get_xdata(orig=False), BUDGETS, rtol=0.1)
    assert len({tuple(line.get_xdata()) for line in lines}) == len(lines)  # beside one another


def test_by_depth():
    rows = [
        dict(task=task, r=r, T=T, loss=r + T / 10, loss_stderr=0.1)
        for task in "abcdefg"
        for r in (1, 2)
        for T in (1, 2, 4)
    ]
    figure = figures_axes.by_depth(pd.DataFrame(rows))
    shown = [axis for axis in figure.axes if axis.get_visible()]
    assert [axis.get_title() for axis in shown] == [*"abcdefg"]
    filled = [line for line in shown[0].lines if len(line.get_xdata()) == 1]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in filled] == [(1, 1.1), (2, 2.2)]
    # the last panel of each column says what its axis is
    assert [axis.get_xlabel() for axis in shown] == ["", "", *["loops T"] * 5]
