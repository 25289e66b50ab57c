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


def test_every_family_has_a_panel_with_every_model_and_the_end_of_its_text():
    figure = figures_depth_tasks.by_steps(TABLE[(TABLE["T"] == 4) | TABLE["model"].isin([PLAIN, DEEP])])
    shown = [axis for axis in figure.axes if axis.get_visible()]
    assert [axis.get_title() for axis in shown] == ["hops", "swaps", "chains"]
    for axis in shown:
        named = {line.get_label() for line in axis.lines} & set(figures_depth_tasks.LOOKS)
        assert named == set(figures_depth_tasks.LOOKS)
        assert [t.get_text() for t in axis.get_xticklabels()] == ["1", "2", "6"]
        assert axis.lines[-1].get_xdata()[0] == 1.5  # between 2 and 6 steps


def test_loops_have_a_line_for_every_number_of_steps_dashed_where_no_text_has_it():
    figure = figures_depth_tasks.by_loops(TABLE, 4)
    assert len(figure.axes) == 2 * 3
    lines = [line for line in figure.axes[0].lines if line.get_label() in ("1", "2", "6")]
    assert [(line.get_label(), line.get_linestyle()) for line in lines] == [("1", "-"), ("2", "-"), ("6", "--")]
    assert len({line.get_marker() for line in lines}) == 3
    assert 0.9 < 61.5 / figure.axes[0].get_ylim()[1] < 1  # the highest mean over seeds fills the panel
    assert [tick.get_text() for tick in figure.axes[-1].get_xticklabels()] == ["1", "4", "8"]
    assert lines[0].get_xdata().tolist() == [1, 4, 8] and lines[0].get_ydata().tolist() == [11.5, 11.5, 11.5]
