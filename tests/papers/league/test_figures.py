"""The league's figure has a row an intervention and a dot a seed, and shows phi or why there is none."""

import numpy as np
import pandas as pd
import pytest

from lib.figures import style
from lib.papers.league import designs, figures
from lib.papers.league.designs import BASELINE
from tests.papers.league.test_designs import made_up

pytestmark = pytest.mark.usefixtures("style")
RUNS = {BASELINE: made_up(0.0), "truncated": made_up(-0.02), "AdamW": made_up(0.3).query("r == 1 or seed != 2")}
NOTHING = pd.DataFrame()
NOTHING.attrs["why"] = "2 values of r, three are needed"


def drawn(shifts):
    return figures.league(designs.standings(RUNS, 4), designs.gains(RUNS, 4), shifts, 4)


def test_a_row_an_intervention_and_a_dot_a_seed():
    figure = drawn(NOTHING)
    loss, price, _ = figure.axes
    names = [tick.get_text() for tick in loss.get_yticklabels()]
    assert names == ["truncated (000)", "linear (000), baseline", "AdamW (002), 1 diverged"]
    for axis, columns in ((loss, "loss"), (price, "price")):
        dots = {round(line.get_ydata()[0]): line for line in axis.lines if line.get_marker() == "o"}
        assert [len(dots[y].get_xdata()) for y in range(3)] == [3, 3, 2]
        assert dots[0].get_color() == style.COLOURS["truncated"]
        found = designs.gains(RUNS, 4).query("intervention == 'AdamW'")[columns]
        assert np.allclose(dots[2].get_xdata(), found)
        assert not axis.texts


def test_what_lies_far_out_is_said_and_leaves_room_for_the_others():
    runs = {BASELINE: made_up(0.0), **{name: made_up(0.01 * i) for i, name in enumerate(("truncated", "AdamW", "MoE"))}}
    far = {**runs, "passthrough": made_up(0.5)}
    loss = figures.league(designs.standings(far, 4), designs.gains(far, 4), NOTHING, 4).axes[0]
    assert [text.get_text() for text in loss.texts] == [r"+0.50 $\rightarrow$"]
    assert loss.texts[0].xy[1] == 4 and loss.get_xlim()[1] < 0.1
    assert {round(line.get_ydata()[0]) for line in loss.lines if line.get_marker() == "o"} == {0, 1, 2, 3}


def test_nothing_is_far_out_that_an_interval_reaches():
    means, reach = pd.Series([0.0, 0.01, 0.02, 0.03, 0.5]), pd.Series([0.1, 0.1, 0.1, np.inf, 0.1])
    assert [*figures.far_out(means, means - reach, means + reach)] == [False] * 4 + [True]
    reach[1] = 0.6
    assert not figures.far_out(means, means - reach, means + reach).any()


def test_phi_is_drawn_with_its_interval():
    shifts = pd.DataFrame(
        {"phi": [0.45, 0.38], "delta": [0, -0.07], "delta_low": [0, -0.1], "delta_high": [0, -0.02]}
        | {"low": [0.4, 0.3], "high": [0.5, 0.44]},
        index=[BASELINE, "truncated"],
    )
    axis = drawn(shifts).axes[2]
    (interval,) = [line for line in axis.lines if [*line.get_xdata()] == [-0.1, -0.02]]
    assert [*interval.get_ydata()] == [0, 0] and not axis.texts
    shifts.loc["truncated", "low"] = -3.0  # where the fit lets phi go no further
    axis = drawn(shifts).axes[2]
    assert [text.get_text() for text in axis.texts] == ["not resolved"] and axis.texts[0].xy[1] == 0
    assert not [line for line in axis.lines if line.get_marker() == "D"]
