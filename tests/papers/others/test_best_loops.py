"""The best number of loops at a budget: of losses with a known optimum, and of the published runs."""

import numpy as np
import pandas as pd
import pytest

from lib.papers.others import best_loops, runs


def made(best):
    """Models on several ladders whose loss at a compute has its least at ``best`` loops."""
    rows = []
    for recipe, arm in best_loops.SETS.values():
        for k in (1, 2, 3, 4, 6):
            compute = np.geomspace(4e17, 9e18, 60)
            loss = 4 - 1e-20 * compute + 0.1 * np.log(k / best) ** 2
            rows.append(pd.DataFrame({"recipe": recipe, "arm": arm, "loops": k, "compute": compute, "loss": loss}))
    return pd.concat(rows, ignore_index=True)


def test_the_optimum_is_found_on_every_set():
    found = best_loops.optima(made(2.5).query("recipe != 'tuned'"))
    assert found["K"].isna().sum() == 10
    there = found.dropna()
    assert there["K"].tolist() == pytest.approx([2.5] * 15, rel=1e-6) and (there["tried"] == 5).all()


def test_loops_that_no_model_brackets_are_not_counted():
    table = made(2.5)
    cut = table[~((table["loops"] == 6) & (table["compute"] > 2e18))]
    found = best_loops.optima(cut)
    assert found["tried"].xs(best_loops.BUDGETS[0], level="budget").eq(5).all()
    assert found["tried"].xs(best_loops.BUDGETS[-1], level="budget").eq(4).all()


def test_an_optimum_stands_in_its_interval():
    table = runs.loops()
    found = best_loops.optima(table)
    shown = best_loops.with_intervals(found, best_loops.fresh_optima(table, 0.002, 40, 0))
    assert shown["K"].tolist() == found["K"].tolist()
    assert ((shown["low"] < shown["K"]) & (shown["K"] < shown["high"])).all()
    wide = best_loops.with_intervals(found, best_loops.fresh_optima(table, 0.004, 40, 0))
    assert ((wide["high"] - wide["low"]) / (shown["high"] - shown["low"])).median() == pytest.approx(2, abs=0.2)
    fresh_text = shown.xs("one epoch, tied", level="set")
    assert (fresh_text["high"] < 2).all() and shown["low"]["one recipe, 10 epochs"].iloc[-1] > 6
