"""A run costs its budget to the step as its paper counts FLOPs, and a budget of fewer than ten steps is refused."""

import numpy as np
import pytest

from lib.flops import count
from lib.papers.nanochat.parameters import UsageWeighted
from lib.papers.shared import budgets
from lib.papers.shared.parameters import text_of
from lib.presets import preset
from tests.given import given
from tests.lines import one_line

P = given(UsageWeighted, context=32, batch=4)


@pytest.mark.parametrize(("paper", "like"), [("000", "isodepth-s10-r4"), ("003", "looped-nanochat-s8")])
def test_a_run_costs_its_budget_as_its_paper_counts(paper, like):
    shape = dict(vocab_size=256, width=16, heads=2, mlp_width=32, context=32)
    for budget in (1e9, 3e9):
        cfg = budgets.run(P, preset(like, **shape), budget, 3, paper, like)
        a_step = 4 * 32 * count(cfg.model, 32).published[paper]
        assert abs(cfg.train.steps * a_step - budget) <= a_step / 2
        assert (cfg.train.seed, cfg.data) == (3, text_of(P))


@pytest.mark.parametrize(
    ("budget", "says"),
    [
        (np.inf, "budgets: inf FLOPs are inf steps"),
        (np.nan, "budgets: nan FLOPs are nan steps"),
        (9 * 128e3, "budgets: 1.152e+06 FLOPs are 9 steps at width 8, raise them or lower batch"),
    ],
)
def test_what_buys_no_ten_steps_is_refused(budget, says):
    assert budgets.steps_for(P, 10 * 128e3, 1e3, 8) == 10
    with one_line(says):
        budgets.steps_for(P, budget, 1e3, 8)
