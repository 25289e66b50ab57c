"""The figures of a published model draw each number where it is."""

import numpy as np
import pandas as pd
import pytest

from lib.base.statistics import wilson_interval
from lib.decode.criteria import CRITERIA, GATE
from lib.papers.others import figures_models

pytestmark = pytest.mark.usefixtures("style")


def drawn(axis, marker=None):
    """(x, y) of the lines with markers."""
    lines = [line for line in axis.lines if line.get_marker() not in ("None", None, "")]
    return [(list(line.get_xdata()), list(line.get_ydata())) for line in lines]


def test_every_reading_of_the_loops_has_a_panel():
    table = pd.DataFrame(
        {"loss": [3.0, 2.5, 2.6], "norm": [1.0, 2.0, 2.1], "move": [np.nan, 0.5, 0.01], "agree": [0.2, 1.0, 0.9]},
        index=pd.Index([1, 4, 16], name="T"),
    )
    figure = figures_models.loops(table, 4)
    for axis, column in zip(figure.axes, table, strict=True):
        ((x, y),) = drawn(axis)
        assert x == [1, 4, 16] and np.allclose(y, table[column], equal_nan=True)
        assert [line.get_xdata()[0] for line in axis.lines if line.get_linestyle() == ":"] == [4]
        assert [label.get_text() for label in axis.get_xticklabels()] == ["1", "2", "4", "8", "16"]


def test_layers_stand_in_the_order_in_which_they_are_computed():
    rows = [(0, 0, 3.0, 1.0), (1, 1, 1.0, 0.5), (2, 1, 1.5, 0.6), (1, 2, 2.0, 1.0), (2, 2, 2.5, 1.0), (3, 0, 9.0, 1.0)]
    left, right = figures_models.layers(pd.DataFrame(rows, columns=["layer", "loop", "norm", "settled"])).axes
    once, looped = drawn(left)
    assert once == ([1, 6], [3.0, 9.0]) and looped == ([2, 3, 4, 5], [1.0, 1.5, 2.0, 2.5])
    assert drawn(right) == [([1, 2], [0.5, 1.0]), ([1, 2], [0.6, 1.0])]
    begins = [line.get_xdata()[0] for line in left.lines if len(set(line.get_xdata())) == 1]
    assert begins == [1.5, 3.5]


def test_a_model_without_a_loop_has_layers_alone():
    table = pd.DataFrame([(0, 0, 3.0, 1.0), (1, 0, 4.0, 1.0)], columns=["layer", "loop", "norm", "settled"])
    left, right = figures_models.layers(table).axes
    assert drawn(left) == [([1, 2], [3.0, 4.0])] and not right.axison


@pytest.mark.parametrize("criteria", [[*CRITERIA], [*CRITERIA, GATE]])
def test_every_criterion_has_its_line(criteria):
    left = pd.DataFrame({name: [10.0, 11.0] for name in criteria}, index=pd.Index([0.0, 0.2], name="saved"))
    (axis,) = figures_models.exits(left).axes
    assert [label.get_text() for label in axis.get_legend().get_texts()] == criteria
    assert drawn(axis) == [([0.0, 20.0], [10.0, 11.0])] * len(criteria)
    speed = pd.DataFrame([{"criterion": name, "FLOPs": x, "time": x / 2} for name in criteria for x in (0.0, 0.4)])
    speed = speed.assign(**{"time low": speed["time"] - 0.125, "time high": speed["time"] + 0.25})
    (axis,) = figures_models.speed(speed, 2).axes
    assert drawn(axis) == [([0.0, 40.0], [0.0, 20.0])] * len(criteria)
    assert {line.get_linestyle() for line in axis.lines if line.get_marker() != "None"} == {"None"}
    spans = np.array([[segment[:, 1] for segment in bars.get_segments()] for bars in axis.collections])
    assert spans == pytest.approx(np.array([[[-12.5, 25.0], [7.5, 45.0]]] * len(criteria)))
    assert axis.get_title().startswith("2 rounds") and "one round" in figures_models.speed(speed, 1).axes[0].get_title()


def test_every_task_has_a_panel_with_its_chance():
    rows = [(task, T, n, 0.1 * (T - 1), 0.25) for task, n in (("a", 50), ("b", 8)) for T in (1, 2)]
    table = pd.DataFrame(rows, columns=["task", "T", "n", "accuracy", "chance"])
    figure = figures_models.tasks(table, 2)
    assert [axis.get_title() for axis in figure.axes] == ["a, 50 questions", "b, 8 questions"]
    for axis, n in zip(figure.axes, (50, 8), strict=True):
        assert ([1, 2], [0.0, 10.0]) in drawn(axis)
        bars = np.array([segment[:, 1] for segment in axis.collections[0].get_segments()])
        low, high = wilson_interval([0.0, 0.1], n)
        assert bars[:, 0] == pytest.approx(100 * low) and bars[:, 1] == pytest.approx(100 * high)
        assert 25 in [line.get_ydata()[0] for line in axis.lines]
        assert axis.get_ylim()[1] > bars.max()
