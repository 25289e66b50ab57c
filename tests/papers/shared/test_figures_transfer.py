"""The figures of transfer have regret zero at the best rate, and mark the kept rate and each optimum."""

import pandas as pd
import pytest

from lib.papers.shared.figures_transfer import loss_against_base_rate, loss_curves, regrets
from lib.papers.shared.transfer import best_rates

pytestmark = pytest.mark.usefixtures("style")


@pytest.fixture
def runs():
    return pd.DataFrame(
        [
            {"group": group, "condition": condition, "lr": lr, "loss": 2 + abs(i - best) / 10}
            for group in ("r = 1", "r = 4")
            for condition, best in (("d = 16", 1), ("d = 24", 2))
            for i, lr in enumerate((0.01, 0.02, 0.04, 0.08))
        ]
    )


LOOK = {"r = 1": "transformer", "r = 4": "isodepth"}


def test_a_regret_is_zero_at_the_best_rate_and_marked_at_the_kept_one(runs):
    figure = regrets({"width": runs, "again": runs}, 0.02, LOOK)
    titles = [axis.get_title() for axis in figure.axes]
    assert titles == ["r = 1: width", "r = 1: again", "r = 4: width", "r = 4: again"]
    for axis in figure.axes:
        curves = [line.get_ydata() for line in axis.lines if line.get_marker() == "o"]
        assert len(curves) == 2 and all(min(curve) == 0 for curve in curves)
        kept = [line.get_ydata()[0] for line in axis.lines if line.get_marker() == "D"]
        assert kept == pytest.approx([0, 0.1])


def test_a_line_a_group_and_a_triangle_at_its_optimum(runs):
    one = runs[runs["condition"] == "d = 16"]
    best = best_rates(one, ["group", "condition"], 0.02)
    (axis,) = loss_against_base_rate(one, best, 0.02, LOOK).axes
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["r = 1", "r = 4"]
    triangles = [line.get_xdata()[0] for line in axis.lines if line.get_marker() == "v" and line.get_markersize() == 4]
    assert triangles == pytest.approx(best["lr"].tolist())


def test_a_loss_far_above_the_others_is_said_and_leaves_room_for_them(runs):
    best = best_rates(runs, ["group", "condition"], 0.02)
    assert not [text for axis in loss_curves(runs, best, "group", "condition", LOOK).axes for text in axis.texts]
    runs.loc[3, "loss"] = 9.5
    first, second = loss_curves(runs, best, "group", "condition", LOOK, "learning rate of the table").axes
    assert [text.get_text() for text in first.texts] == [r"9.50 $\uparrow$"] and not second.texts
    assert first.texts[0].xy[0] == 0.08 and 2.2 <= first.get_ylim()[1] < 9
    assert first.get_xlabel() == "learning rate of the table"
