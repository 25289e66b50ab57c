"""A panel of the league has a row an intervention and a dot a seed, and says what lies far out."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from lib.figures import style
from lib.papers.league import figures

pytestmark = pytest.mark.usefixtures("style")


def test_a_row_an_intervention_a_dot_a_seed_and_what_lies_far_out_in_words():
    means = pd.Series({"truncated": -0.02, "linear": 0.0, "Muon": 0.01, "AdamW": 0.02, "passthrough": 0.5})
    standings = pd.DataFrame({"loss": means, "loss_low": means - 0.01, "loss_high": means + 0.01})
    gains = pd.DataFrame({"intervention": np.repeat(means.index, 3), "loss": np.repeat(means.to_numpy(), 3)})
    gains["loss"] += np.tile([-0.001, 0, 0.001], 5)
    _, axis = plt.subplots()
    figures.differences(axis, standings, gains, "loss")
    dots = {round(line.get_ydata()[0]): line for line in axis.lines if line.get_marker() == "o"}
    assert {*dots} == {0, 1, 2, 3} and dots[0].get_color() == style.COLOURS["truncated"]
    assert dots[3].get_xdata() == pytest.approx([0.019, 0.02, 0.021])
    ticks = [line.get_xdata()[0] for line in axis.lines if line.get_marker() == "|"]
    assert ticks == pytest.approx(means[:4])
    (text,) = axis.texts
    assert (text.get_text(), text.xy[1]) == (r"+0.50 $\rightarrow$", 4) and axis.get_xlim()[1] < 0.1


def test_nothing_is_far_out_that_an_interval_reaches():
    means, reach = pd.Series([0.0, 0.01, 0.02, 0.03, 0.5]), pd.Series([0.1, 0.1, 0.1, np.inf, 0.1])
    assert [*figures.far_out(means, means - reach, means + reach)] == [False] * 4 + [True]
    reach[1] = 0.6
    assert not figures.far_out(means, means - reach, means + reach).any()
