"""Every run is counted once, with the first notebook that asks for it, and at its cost."""

import pytest

from lib.flops import count
from lib.workbook.costs import NOTEBOOKS, by_budget, cells, costs, hours, text_bytes
from lib.workbook.plans import names
from tests.runs import small_run


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


def test_the_budgets_of_a_grid_are_met(plans_once):
    at = by_budget(costs("paper")["moe_isoflop"].runs, [5e16, 2e17, 5e17, 1e18])
    # three to six widths of four architectures, three seeds
    assert [len(runs) for runs in at.values()] == [36, 48, 48, 72]
    assert by_budget([small_run()], [1e18]) == {1e18: []}


def test_a_text_is_counted_once_and_a_large_vocabulary_takes_four_bytes():
    def run(tokenizer, **changes):
        return small_run(model={"vocab_size": 2**17}, data={"tokenizer": tokenizer, "content": "x", **changes})

    small, large = run("bpe-32768", max_bytes=465), run("bpe-128256", max_bytes=465)
    assert text_bytes([small, small]) == pytest.approx(200) and text_bytes([small, large]) == pytest.approx(600)
    assert text_bytes([run("bpe-32768", max_bytes=None)]) == pytest.approx(20e9)
    assert text_bytes([run("bytes", max_bytes=1000)]) == 2000  # a token is a byte


def test_a_cell_is_its_runs_whatever_their_seed():
    runs = [small_run(train={"seed": seed, "steps": steps}) for steps in (9, 3) for seed in (5, 4)]
    assert [*cells(runs).values()] == [runs[0], runs[2]]
