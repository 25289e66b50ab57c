"""The sets of other groups are whole and are what their README says."""

import numpy as np
import pandas as pd
import pytest

from lib.papers.others import runs

SETS = {
    "growth_isoflop": 125, "growth_loops": 150, "growth_allocation": 25, "growth_ladders": 74, "growth_test_time": 224,
    "cart_runs": 33, "cart_test_time": 8,
}  # fmt: skip


def test_every_set_is_whole():
    table = runs.test_time()
    assert set(table["group"]) == {"growth", "cart"} and table.notna().all().all()
    assert {path.stem for path in runs.DATA.glob("*.csv")} == {*SETS}
    assert {name: len(pd.read_csv(runs.DATA / f"{name}.csv")) for name in SETS} == SETS


def test_the_parameters_of_an_arm_follow_from_its_blocks():
    """A pass more of the core adds its blocks where it has weights of its own, and none where it is tied; and compute
    is six FLOPs an active parameter."""
    table = runs.isoflop()
    by = table.set_index(["arm", "depth", "budget_index"])
    vanilla, loop, untied = (
        by.loc[arm].groupby("depth")[["n_once", "n_rec", "r"]].first() for arm in ("vanilla", "loop_2", "untied_2")
    )
    common = loop.index.intersection(vanilla.index)
    assert (loop.loc[common, "n_rec"] == vanilla.loc[common, "n_rec"]).all() and (loop["r"] == 2).all()
    assert (untied.loc[loop.index, "n_rec"] == 2 * loop["n_rec"]).all() and (untied["r"] == 1).all()
    assert np.allclose(table["F"], 6 * table["N_active"], rtol=1e-6)
    np.testing.assert_allclose(table["compute"], table["budget"], rtol=6e-4)
    assert table["budget"].nunique() == 5


def test_the_loops_have_one_number_of_tokens():
    loops = runs.loops()
    assert pd.concat([loops["D"], runs.allocation()["D"]]).between(9.9e8, 1.001e9).all()
    assert loops["r"].equals(loops["loops"].where(loops["arm"] == "tied", 1))


def test_cart_is_in_nats():
    table = runs.cart()
    best = table.query("stage == 2 and arm == 'cart' and width == 1024 and prelude == 6 and r == 6")
    assert best["loss"].item() == pytest.approx(np.log(20.354)) and best["n_rec"].item() == 10.75e6
    assert best["n_once"].item() == pytest.approx(125.1e6 - 10.75e6)
