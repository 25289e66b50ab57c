"""A run costs what ``count`` says, once, however many notebooks ask for it."""

import pytest

from lib.flops import count
from lib.workbook import plans
from lib.workbook.costs import NOTEBOOKS, asked, hours, parts


def test_every_notebook_is_counted_once():
    assert sorted(name for part in NOTEBOOKS.values() for name in part) == plans.names()


def test_runs_cost_what_count_says_and_count_once(plans_once):
    pair = plans.plan("extrapolation", "paper").runs
    expected = sum(cfg.tokens * count(cfg.model, 2048).flops_per_token for cfg in pair)
    every = asked("paper")
    assert every[every["notebook"] == "extrapolation"]["flops"].sum() == pytest.approx(expected)
    assert every["key"].nunique() < len(every)
    assert parts()["papers"].splitlines()[-1].startswith(f"| all | {every['key'].nunique():,} |")


def test_an_hour_is_an_hour_at_the_stated_rate():
    assert hours(0.4 * 989e12 * 3600) == pytest.approx(1)


def test_the_papers_sizes_stay_within_their_limit(plans_once):
    """10,000 GPU hours without 002."""
    every = asked("paper")
    others = every[every["paper"] != "002"].drop_duplicates("key")
    assert 5000 < hours(others["flops"].sum()) < 10_000
