"""The usage figures star each budget's optimum in both counts, and say so where no optimum was found."""

import pytest

from lib.papers.nanochat import usage_weighted
from lib.papers.nanochat.figures import ratio_against_budget

pytestmark = pytest.mark.usefixtures("style")


def test_the_ratios_of_the_log_are_drawn():
    (axis,) = ratio_against_budget({"log": usage_weighted.published_optima()}).axes
    lines = {line.get_label(): line.get_ydata() for line in axis.lines if not line.get_label().startswith("_")}
    assert lines["physical parameters"].tolist() == pytest.approx([8.69, 9.31, 10.55, 11.34], abs=0.01)
    assert lines["usage-weighted parameters"].tolist() == pytest.approx([5.84, 6.00, 6.47, 6.54], abs=0.01)
    assert not axis.texts


def test_a_panel_without_optima_says_so():
    (axis,) = ratio_against_budget({"here": usage_weighted.published_optima().assign(ratio=float("nan"))}).axes
    assert [text.get_text() for text in axis.texts] == ["no optimum lies inside the widths"]
    assert axis.get_xlim()[0] < min(axis.get_xticks()) < max(axis.get_xticks()) < axis.get_xlim()[1]
