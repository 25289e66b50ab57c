"""Every run is counted once, with the first notebook that asks for it, and at its cost."""

import pytest

from lib.flops import count
from lib.workbook import costs as costing
from lib.workbook.costs import NOTEBOOKS, cells, costs, hours, text_bytes
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


def test_the_papers_sizes_stay_within_their_limit(plans_once):
    """10,000 GPU hours without 002."""
    every = costs("paper")
    flops = sum(cost.flops for name, cost in every.items() if name not in NOTEBOOKS["002"])
    assert 5000 < hours(flops) < 10_000


def test_numbers_are_spelled_in_few_characters():
    assert [costing._whole(x) for x in (0, 0.04, 0.26, 9.94, 1234.5)] == ["", "below 0.1", "0.3", "9.9", "1,234"]
    assert [costing._short(x) for x in (0, 999, 1.234e6, 2e9, 4.35e12)] == ["", "999", "1.23M", "2B", "4.35T"]
    assert [costing._bytes(x) for x in (0, 2.345e9, 45.6e9, 1.4e12)] == ["", "2.3 GB", "46 GB", "1.4 TB"]
    assert [costing._range(x) for x in ([], [2_000_000], [3_000_000, 1_000_000])] == ["", "2M", "1M to 3M"]
