"""The figures have a panel a family, a line a model or a number of steps, and mark what was not trained."""

import pandas as pd
import pytest

from lib.papers.parcae import figures_depth_tasks
from lib.papers.parcae.depth_tasks import DEEP, LOOPED, PLAIN, SAMPLED

pytestmark = pytest.mark.usefixtures("style")

TABLE = pd.DataFrame(
    [
        {"model": model, "family": family, "seed": seed, "steps": steps, "trained": steps < 6, "T": T,
         "accuracy": 10.0 * steps + seed, "loss": 1.0}
        for model in (PLAIN, DEEP, LOOPED, SAMPLED)
        for family in ("hops", "swaps", "chains")
        for seed in (1, 2)
        for steps in (1, 2, 6)
        for T in ((1, 4, 8) if model in (LOOPED, SAMPLED) else (1,))
    ]
)  # fmt: skip


def test_loops_have_a_line_for_every_number_of_steps_dashed_where_no_text_has_it():
    figure = figures_depth_tasks.by_loops(TABLE, 4)
    assert len(figure.axes) == 2 * 3
    lines = [line for line in figure.axes[0].lines if line.get_label() in ("1", "2", "6")]
    assert [(line.get_label(), line.get_linestyle()) for line in lines] == [("1", "-"), ("2", "-"), ("6", "--")]
    assert len({line.get_marker() for line in lines}) == 3
    assert 0.9 < 61.5 / figure.axes[0].get_ylim()[1] < 1  # the highest mean over seeds fills the panel
    assert [tick.get_text() for tick in figure.axes[-1].get_xticklabels()] == ["1", "4", "8"]
    assert lines[0].get_xdata().tolist() == [1, 4, 8] and lines[0].get_ydata().tolist() == [11.5, 11.5, 11.5]
