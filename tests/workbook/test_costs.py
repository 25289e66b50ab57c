"""docs/scale.md has the tables that the notebooks' plans give, with every run counted once at its cost."""

import pytest

from lib.flops import count
from lib.workbook import costs as scale
from lib.workbook.costs import DOCUMENT, NOTEBOOKS, by_budget, costs, filled
from lib.workbook.plans import names
from tests.runs import small_run
from tests.workbooks import ROOT

MEND = ".venv/bin/python -c 'from lib.workbook.costs import write; write()'"


def test_the_document_has_the_tables_that_the_plans_give(plans_once):
    text = DOCUMENT.read_text()
    assert filled(text, scale.tables()) == text, f"docs/scale.md is not what the plans cost, run {MEND}"
    assert {name for part in NOTEBOOKS.values() for name in part} == set(names())
    assert "docs/scale.md" in (ROOT / "README.md").read_text()


def test_runs_are_counted_once_and_cost_what_count_says(plans_once):
    every = costs("paper")
    keys = [cfg.key for cost in every.values() for cfg in cost.own]
    assert len(keys) == len(set(keys)) == len({cfg.key for cost in every.values() for cfg in cost.runs})
    for cost in every.values():
        assert len(cost.own) + sum(cost.shared.values()) == len(cost.runs)
    exponent, pair = every["recurrence_exponent"], every["extrapolation"].own
    assert exponent.flops == 0 and exponent.shared == {"isodepth_isoflop": 118}
    assert [cfg.model.width for cfg in pair] == [2176, 2176]
    expected = sum(cfg.tokens * count(cfg.model, 2048).flops_per_token for cfg in pair)
    assert every["extrapolation"].flops == pytest.approx(expected)
    init = every["residual_scaling_init"]
    assert not init.runs and init.measurements == 480 and init.flops > 0


def test_an_hour_is_an_hour_at_the_stated_rate():
    assert scale.hours(0.4 * 989e12 * 3600) == pytest.approx(1)


def test_the_budgets_of_a_grid_are_met(plans_once):
    at = by_budget(costs("paper")["moe_isoflop"].runs, [5e16, 2e17, 5e17, 1e18])
    assert [len(runs) for runs in at.values()] == [12, 16, 16, 20]  # three to five widths of four architectures
    assert by_budget([small_run()], [1e18]) == {1e18: []}


def test_tables_are_put_where_their_names_are():
    text = "a\n<!-- x -->\nold\n<!-- /x -->\nb\n<!-- y -->\n<!-- /y -->\n"
    once = filled(text, {"x": r"| \1 |"})
    assert once == text.replace("old", r"| \1 |") and filled(once, {"x": r"| \1 |"}) == once
