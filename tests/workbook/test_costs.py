"""Every run is counted once, with the first notebook that asks for it, and at its cost."""

import pytest

from lib.flops import count
from lib.workbook.costs import NOTEBOOKS, costs, hours
from lib.workbook.plans import names


def test_every_notebook_is_counted_once():
    assert sorted(name for part in NOTEBOOKS.values() for name in part) == names()


def test_runs_are_counted_once_and_cost_what_count_says(plans_once):
    every = costs("paper")
    keys = [cfg.key for cost in every.values() for cfg in cost.own]
    assert len(keys) == len(set(keys)) == len({cfg.key for cost in every.values() for cfg in cost.runs})
    for cost in every.values():
        assert len(cost.own) + sum(cost.shared.values()) == len(cost.runs)
    exponent, pair = every["recurrence_exponent"], every["extrapolation"].own
    assert exponent.flops == 0 and exponent.shared == {"isodepth_isoflop": 120}
    assert [cfg.model.width for cfg in pair] == [2176, 2176]
    expected = sum(cfg.tokens * count(cfg.model, 2048).flops_per_token for cfg in pair)
    assert every["extrapolation"].flops == pytest.approx(expected)
    init = every["residual_scaling_init"]
    assert not init.runs and init.measurements == 510 + 110 and init.flops > 0  # first steps, increments at the init


def test_an_hour_is_an_hour_at_the_stated_rate():
    assert hours(0.4 * 989e12 * 3600) == pytest.approx(1)


def test_the_papers_sizes_stay_within_their_limit(plans_once):
    """10,000 GPU hours without 002."""
    every = costs("paper")
    flops = sum(cost.flops for name, cost in every.items() if name not in NOTEBOOKS["002"])
    assert 5000 < hours(flops) < 10_000
