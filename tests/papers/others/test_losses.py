"""The committed table is what its sources say, its split keeps to its rule, and a file of somebody else is read or
refused in one line."""

import hashlib
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from lib.papers.isodepth import published
from lib.papers.others import losses, runs
from tests.lines import one_line
from tests.papers.others.test_runs import SETS
from tests.workbooks import ROOT

#: no test's own process reads the records
MADE = """
import sys
from pathlib import Path
from lib.papers.others import losses
from lib.store import records

folder = Path(sys.argv[1])
losses.made().to_parquet(folder / "made.parquet")
for profile in ("desk", "addendum", "gpu"):
    runs = records.table(losses.RECORDS / profile)
    runs[["key", "status", "train_flops", "val_loss"]].to_parquet(folder / f"{profile}.parquet")
"""
PROFILES = ("desk", "addendum", "gpu")


@pytest.fixture(scope="module")
def table():
    return losses.table()


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """What is made of the sources, and how each profile's recorded runs ended."""
    folder = tmp_path_factory.mktemp("sources")
    subprocess.run([sys.executable, "-c", MADE, str(folder)], check=True, cwd=ROOT)
    return {name: pd.read_parquet(folder / f"{name}.parquet") for name in ("made", *PROFILES)}


def test_the_committed_table_is_made_of_its_sources(table, sources):
    pd.testing.assert_frame_equal(sources["made"], table)
    assert [*table] == losses.COLUMNS and losses.FILE.stat().st_size < 400_000


def test_every_run_of_every_source_is_there_once(table, sources):
    counts = table.groupby(["source", "set"]).size()
    assert counts["000"].to_dict() == {"isodepth": 240}
    arms = table[table["source"] == "000"]["arm"].value_counts().to_dict()
    assert arms == {"baseline": 116, "hyper-connections": 63, "truncated": 61}
    theirs = {name: n for name, n in SETS.items() if name != "growth_test_time" and name.startswith("growth")}
    assert counts[runs.THEIRS].to_dict() == theirs and counts[runs.CART].to_dict() == {"cart_runs": SETS["cart_runs"]}
    for profile in PROFILES:
        finished = sources[profile].query("status == 'finished'")["val_loss"]
        assert sorted(table.loc[table["source"] == profile, "loss"]) == sorted(finished)
    assert {*table["source"]} == {*PROFILES, "000", runs.THEIRS, runs.CART}


def test_numbers_are_those_of_the_sources(table, sources):
    """Of published runs their sums, and one of ours in full, by the label that a notebook has for it."""
    own, theirs = table[table["source"] == "000"], published.runs("loop")
    for name, there in [("N_rec", "n_rec"), ("D", "D"), ("FLOPs", "budget"), ("loss", "loss")]:
        assert own[name].sum() == pytest.approx(theirs[there].sum())
    best = table.query("set == 'cart_runs' and arm == 'cart, prelude 6' and r == 6 and width == 1024 and D > 1e8")
    assert best["loss"].item() == pytest.approx(np.log(20.354)) and best["N"].item() == pytest.approx(125.1e6)
    grown = table[table["set"] == "growth_isoflop"]
    assert grown["FLOPs"].sum() == pytest.approx(runs.isoflop()["compute"].sum()) and (grown["budget"] > 0).all()
    index = pd.read_parquet(losses.RECORDS / "desk" / "index.parquet")
    asked = index[index["label"] == '["r = 4", 2150000000000.0, 4, 40, 311]'].iloc[0]
    end = sources["desk"].set_index("key").loc[asked["key"]]
    grid = table.query("source == 'desk' and set == 'isodepth_isoflop' and width == 40 and r == 4 and seed == 311")
    row = grid[grid["budget"] == 2.15e12].iloc[0]
    assert row[["N_once", "N_rec", "D"]].tolist() == asked[["n_once", "n_rec", "tokens"]].tolist()
    assert [row["loss"], row["FLOPs"], row["arm"]] == [end["val_loss"], end["train_flops"], "baseline"]


def test_what_is_known_adds_up(table):
    inside = table.dropna(subset=["N_once", "N_rec"])
    assert (inside["N"] == inside["N_once"] + inside["N_rec"]).all()
    unknown = table[table["set"] != "growth_ladders"].drop(columns=["budget", "seed"])
    assert not unknown[unknown["source"] != runs.CART].isna().any().any()
    assert table[table["set"] == "growth_ladders"][["r", "N", "N_once", "N_rec", "D"]].isna().all().all()
    cell = ["source", "set", "arm", "width", "r", "N", "D", "budget", "seed"]
    assert not table[table["seed"].notna()].duplicated(cell).any()


@pytest.mark.parametrize(
    "label, told, arm",
    [
        ('["r = 4", 2150000000000.0, 4, 40, 311]', (40, 4, 311), "baseline"),
        ('["truncated", 1000000000000.0, 8, 8, 311]', (8, 8, 311), "truncated"),
        ('["mean_loops", 4, 4, 311]', (64, 4, 311), "mean_loops, 4"),
        ('["ladder", 32, 2.0, 0.058, 2, 312]', (32, 2, 312), "ladder, 0.058"),
        ('["held out", 64, 4265213952000, 8, 315]', (64, 8, 315), "held out"),
        ('["over N", "1/sqrt(N L)", 1, 1, true, 0.128, 311]', (64, 1, 311), "over N, 1/sqrt(N L), 1, true, 0.128"),
        ('["r = 4", "width", "d = 32", 0.0145]', (32, 4, 1), "width, 0.0145"),
        ('["d = 64, concat", 8, 311]', (64, 8, 311), "concat"),
        ('["1e12 FLOPs", 1000000000000.0, 24, 314]', (24, 2, 314), "baseline"),
    ],
)
def test_an_arm_is_a_label_without_what_columns_say(label, told, arm):
    assert losses._arm(label, *told) == arm


# ---- the split -------------------------------------------------------------------------------------------------------


def budget_of(run):
    if run["budget"] > 0:
        return f"{run['source']}:{run['budget']:.4g}"
    return f"{run['source']}:{run['width']}:{run['D']:.2g}"


def test_whole_budgets_are_apart_until_a_tenth_is(table):
    """By the rule as it is written: one budget after another, by the whole digest."""
    assert {*table["split"]} == {"train", "test"}
    for _, own in table.groupby(["source", "set"]):
        budgets = own.apply(budget_of, axis=1)
        taken: set[str] = set()
        *most, _last = sorted({*budgets}, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
        for name in most:
            if budgets.isin(taken).sum() * 10 >= len(own):
                break
            taken.add(name)
        assert {*budgets[own["split"] == "test"]} == taken and not taken & {*budgets[own["split"] == "train"]}


def test_a_budget_is_apart_whatever_else_a_run_is(table):
    """Another order of rows, other losses and other arms change nothing."""
    own = table[table["set"] == "isodepth"].sample(frac=1, random_state=0)
    assert losses.split(own.assign(loss=1.0, arm="")).equals(own["split"])
    assert own.loc[own["split"] == "test", "budget"].nunique() == 1


def test_a_set_of_one_budget_is_for_training():
    one = pd.DataFrame({"source": "mine", "set": "s", "budget": 1e18, "width": 64, "D": [1e9, 2e9, 3e9]})
    assert (losses.split(one) == "train").all()
    rungs = losses.split(one.assign(budget=np.nan))
    assert sorted(rungs) == ["test", "train", "train"]


# ---- files of others -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
def test_the_table_is_read_as_it_was_written(table, tmp_path, name):
    write = table.to_csv if name.endswith("csv") else table.to_parquet
    write(tmp_path / name, index=False)
    pd.testing.assert_frame_equal(losses.read(tmp_path / name), table)


def test_a_file_without_loops_is_read_by_its_own_names(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text(
        "size,C_flops,D_tokens,loss_nats\n" + "\n".join(f"{i}e9,{i}e20,{i}e10,{4 - i / 20}" for i in range(1, 21))
    )
    found = losses.read(path, N="size", FLOPs="C_flops", D="D_tokens", loss="loss_nats")
    assert [*found] == losses.COLUMNS and len(found) == 20
    assert (found["source"] == "points").all() and (found["set"] == "points").all()
    assert found["N"].sum() == 210e9 and found[["r", "N_once", "N_rec", "seed"]].isna().all().all()
    assert (found["split"] == "test").sum() == 2


def test_parameters_in_two_parts_are_their_sum(tmp_path):
    (tmp_path / "a.csv").write_text("n_once,n_rec,D,loss\n10,20,100,2.5\n0,20,100,2.5\n")
    found = losses.read(str(tmp_path / "a.csv"), N_once="n_once", N_rec="n_rec")
    assert sorted(found["N"]) == [20, 30]


@pytest.mark.parametrize(
    "text, names, words",
    [
        ("N,tokens,loss\n1,2,3\n", {}, ["D", "N, tokens, loss"]),
        ("once,D,loss\n1,2,3\n", {"N_once": "once"}, ["N", "D, loss"]),
        ("N,D,loss\n1,2,3\n", {"D": "tokens"}, ["tokens", "N, D, loss"]),
        ("N,D,loss\n1,2,3\n", {"flops": "D"}, ["flops", "FLOPs"]),
        ("N,D,loss\n1,2,3\n1,2,\n", {}, ["loss", "row 1"]),
        ("N,D,loss\n1,2,3\n1,2,4\n0,2,4\n", {}, ["N", "row 2"]),
        ("N,D,loss\n1,2,3\nmany,2,4\n", {}, ["N", "row 1"]),
        ("N,D,loss,N_rec\n1,2,3,-1\n", {}, ["N_rec", "row 0"]),
        ("N,D,loss\n1,2,inf\n", {}, ["loss", "row 0"]),
        ("N,D,loss,r\n1,2,3,1.5\n", {}, ["r", "row 0"]),
        ("", {}, ["path", "a.csv", "CSV or Parquet"]),
    ],
)
def test_what_is_missing_is_said_in_one_line(tmp_path, text, names, words):
    (tmp_path / "a.csv").write_text(text)
    with one_line(*words, starts=words[0]):
        losses.read(tmp_path / "a.csv", **names)


def test_a_file_that_is_not_there_or_no_table_is_said_in_one_line(tmp_path):
    (tmp_path / "a.parquet").write_text("no table")
    for name in ("a.parquet", "b.parquet", "b.csv"):
        with one_line("path", name):
            losses.read(tmp_path / name)


# ---- the card --------------------------------------------------------------------------------------------------------


def test_the_card_has_every_column_and_counts_every_set(table):
    card = losses.FILE.with_suffix(".md").read_text()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in card.splitlines() if line.startswith("| ")
    ]
    named = {name for cells in rows for name in cells[0].split(", ")}
    assert {*losses.COLUMNS} <= named
    told = {(cells[0], cells[1]): cells[2] for cells in rows if len(cells) == 5}
    for (source, name), own in table.groupby(["source", "set"]):
        assert told.pop((source, name)) == f"{len(own)}, {(own['split'] == 'test').sum()} for tests"
    assert {*told} == {("source", "set")}
