"""The sets of other groups are whole and are what their README says; a folder that lacks what is asked is one line."""

import numpy as np
import pandas as pd
import pytest

from lib.papers.others import runs
from tests.lines import one_line

SETS = {
    "growth_isoflop": 125,
    "growth_loops": 150,
    "growth_allocation": 25,
    "growth_ladders": 74,
    "growth_test_time": 224,
    "cart_runs": 33,
    "cart_test_time": 8,
}
TABLES = {
    "chinchilla_figure": "N,D_tokens,loss_nats\n1e9,2e10,2.5\n",
    "isoflops_open": "experiment,budget_flops,N,D_tokens,loss,outlier\nx,1e20,1e9,2e10,2.5,False\n",
    "test_time_small": "group,model,train_tokens,trained_loops,loop_sampling,T,loss_nats\na,b,1e9,4,fixed,1,3.5\n",
}


def test_every_set_is_whole():
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
    assert runs.loops()["D"].between(9.9e8, 1.001e9).all() and runs.allocation()["D"].between(9.9e8, 1.001e9).all()
    tied = runs.loops().query("arm == 'tied'")
    assert (tied["r"] == tied["loops"]).all() and (runs.loops().query("arm == 'untied'")["r"] == 1).all()


def test_cart_is_in_nats():
    table = runs.cart()
    best = table.query("stage == 2 and arm == 'cart' and width == 1024 and prelude == 6 and r == 6")
    assert best["loss"].item() == pytest.approx(np.log(20.354)) and best["n_rec"].item() == 10.75e6
    assert best["n_once"].item() == pytest.approx(125.1e6 - 10.75e6)


def test_more_test_time_curves_come_from_a_folder(tmp_path):
    here = runs.test_time({})
    assert set(here["group"]) == {"growth", "cart"} and here.notna().all().all()
    (tmp_path / "test_time_small.csv").write_text(TABLES["test_time_small"])
    more = runs.test_time(runs.of_folder(str(tmp_path)))
    assert set(more["group"]) == {"growth", "a"} and more["size"].iloc[-1] == "1e+09 tokens"


# ---- a folder --------------------------------------------------------------------------------------------------------


def test_what_a_folder_has_is_read(tmp_path):
    assert runs.of_folder("") == {}
    for k, (name, text) in enumerate(TABLES.items(), 1):
        (tmp_path / f"{name}.csv").write_text(text)
        found = runs.of_folder(str(tmp_path))
        assert len(found) == k and {"loss"} <= {*found[name]}


@pytest.mark.parametrize(
    ("folder", "words"), [("nowhere", ["has none of", "chinchilla_figure.csv"]), ("", ["none of"])]
)
def test_a_folder_without_the_sets_is_one_line(tmp_path, folder, words):
    with one_line("others: ", "give the folder", *words):
        runs.of_folder(str(tmp_path / folder))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("N,D_tokens\n1,2\n", ["has no column loss_nats", "README"]),
        ("N,D_tokens,loss_nats\n1,2,x\n", ["loss_nats is not a number", "mend"]),
        ("N,D_tokens,loss_nats\n1,,3\n", ["D_tokens is not a number", "mend"]),
        ("", ["is no table", "mend"]),
    ],
)
def test_a_bad_table_is_one_line(tmp_path, text, words):
    (tmp_path / "chinchilla_figure.csv").write_text(text)
    with one_line("others: ", "chinchilla_figure.csv", *words):
        runs.of_folder(str(tmp_path))
