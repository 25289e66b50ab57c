"""The figures of the downstream axes put every axis, task and depth at the numbers of their tables."""

import numpy as np
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
