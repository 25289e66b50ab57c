"""The figure of transfer marks each optimum, and says what lies far above the others."""

import pandas as pd
import pytest

from lib.papers.shared.figures_transfer import loss_curves
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


def test_a_loss_far_above_the_others_is_said_and_leaves_room_for_them(runs):
    best = best_rates(runs, ["group", "condition"], 0.02)
    near = loss_curves(runs, best, "group", "condition", LOOK).axes
    assert not [text for axis in near for text in axis.texts]
    triangles = [line.get_xdata()[0] for axis in near for line in axis.lines if line.get_marker() == "v"]
    assert triangles == pytest.approx(best["lr"].tolist())
    runs.loc[3, "loss"] = 9.5
    first, second = loss_curves(runs, best, "group", "condition", LOOK, "learning rate of the table").axes
    assert [text.get_text() for text in first.texts] == [r"9.50 $\uparrow$"] and not second.texts
    assert first.texts[0].xy[0] == 0.08 and 2.2 <= first.get_ylim()[1] < 9
    assert first.get_xlabel() == "learning rate of the table"
