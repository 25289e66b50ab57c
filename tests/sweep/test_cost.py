"""What is missing is counted, the longest run first, and its time is of the right size."""

import time
from types import SimpleNamespace

import pytest

from lib.sweep import cost
from lib.sweep.cost import hours, missing
from lib.train.loop import train
from tests.runs import several, small_run


def test_it_says_what_is_missing_and_what_it_costs(store):
    train(several()[0], store)
    todo = missing([*several(), *several()], store)
    assert todo == several()[1:]
    assert 0 < hours(todo, 2) < 0.1


def test_the_estimate_is_of_the_right_size(store, monkeypatch):
    # by the processor's time, which does not tell what else a machine has to do
    monkeypatch.setattr(cost, "time", SimpleNamespace(perf_counter=time.process_time))
    train(small_run(train={"steps": 1}), store)  # the tokens, and torch's first use
    ratios = []
    for seed in range(3):
        cfg = small_run(train={"steps": 40, "seed": seed})
        estimate = hours([cfg], 1) * 3600
        begin = time.process_time()
        train(cfg, store)
        ratios.append((time.process_time() - begin) / estimate)
    assert 1 / 3 < sorted(ratios)[1] < 3


@pytest.mark.parametrize("rule", [{"fill": True}, {"on_top": True}])
def test_a_sampler_that_adds_loops_is_timed_at_its_mean_and_a_large_model_on_a_small_one(rule):
    begin = time.process_time()
    for size in ({"batch": 4}, {"batch": 4096}):
        assert cost.flops_per_second(small_run(model=rule, train=size)) > 0
    assert time.process_time() - begin < 20
