"""The four models of ``depth_tasks`` are matched as the notebook says, each on the text of each family."""

import pytest

from lib.base.errors import InputError
from lib.flops import count
from lib.papers.parcae.parameters import DepthTasks
from lib.tasks.evaluations import Evaluation
from lib.workbook import plans
from tests.given import given


@pytest.fixture
def plan():
    return plans.plan("depth_tasks", "cpu", families=["swaps", "hops"], seeds=[1], depths=[1, 8], mean_loops=8)


def test_the_looped_models_have_plains_parameters_and_the_deep_ones_flops(plan):
    assert {cfg.data.source for cfg in plan.runs} == {"generated:swaps", "generated:hops"}
    plain, deep, *looped = [cfg.model for cfg in plan.runs if cfg.data.source == "generated:swaps"]
    assert (plain.prelude, deep.prelude, plain.recur, deep.recur) == (3, 10, 0, 0)
    assert [(cfg.depth, cfg.max_backprop_loops) for cfg in looped] == [("fixed", None), ("poisson", 4)]
    for cfg in looped:
        assert 1 < count(cfg).n_params / count(plain).n_params < 1.06  # the injection and the readout
        assert count(cfg).flops_per_token_forward == pytest.approx(count(deep).flops_per_token_forward, rel=0.1)


def test_looped_ones_are_asked_at_every_depth_and_all_of_them_more_steps_than_their_text_has(plan):
    looped = {cfg.key for cfg in plan.runs if cfg.model.recur}
    asked = [one.case for one in plan.asked]
    assert all(isinstance(case, Evaluation) for case in asked) and {case.subject for case in asked} > looped
    assert all(case.depths == ((1, 8) if case.subject in looped else ()) for case in asked)
    assert len({(case.subject, case.task) for case in asked}) == len(asked) == 8 * 6


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"source": "sotu"}, r"source: .* 'generated' \(got 'sotu'\)"),
        ({"families": ["poems"]}, r"families\.0: .*hops\|addition\|chains\|swaps.* \(got 'poems'\)"),
        ({"depths": [1, 2]}, r"mean_loops: 8 is not one of depths \[1, 2\], add it there"),
    ],
)
def test_what_cannot_be_asked_is_refused(changes, says):
    with pytest.raises(InputError, match=says):
        given(DepthTasks, **changes)
