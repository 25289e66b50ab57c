"""A record says what its run said, any reader of Parquet opens it, and what is damaged or half written is named."""

import itertools
import math
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.base.errors import InputError
from lib.config import OptimConfig, RunConfig, TrainConfig
from lib.presets import preset
from lib.store import records
from lib.store.records import Measured, flat, nested, reduced
from lib.store.runs import RunStore
from tests.lines import in_one_line
from tests.runs import WHO_MADE_UP, made_up, records_alone, same, several, small_run

NAN = math.nan


def a_measurement(key="k", **measured) -> Measured:
    return Measured("tests.f", key, {"run": "r", "x": 1.5}, measured, WHO_MADE_UP)


MOE = preset("looped-moe-128", vocab_size=256)
CONFIGS = [
    small_run(),
    small_run(model={"backprop_loops": "all", "windows": "L", "depth": "fixed"}, optim={"betas": (0.8, 0.99)}),
    small_run(model={"backprop_loops": 3}, data={"max_bytes": None, "content": "0123456789012345"}),
    small_run(optim={"name": "muonh", "clip": 1 / 3}, train={"precision": "bf16-mixed", "eval_every": 2}),
    RunConfig(model=MOE, optim=OptimConfig(scaling="mup"), train=TrainConfig(precision="fp32")),
]


@pytest.mark.precision
def test_a_record_says_what_the_run_said(tmp_path):
    runs = [made_up(cfg, val_loss=float(i)) for i, cfg in enumerate(CONFIGS)]
    assert records.add(tmp_path, runs, []) == (len(CONFIGS), 0)
    for cfg, run in zip(CONFIGS, runs, strict=True):
        record = RunStore(tmp_path / "none" / "runs", [tmp_path]).find(cfg)
        assert record.config == cfg.planned and record.key == cfg.key and record.path is None
        assert same(record.summary, run.summary) and record.provenance == run.provenance
        assert {*record.metrics} == {*run.metrics} and len(record.metrics["step"]) in (6, records.POINTS)
        assert record.metrics["loss"][-2:] == pytest.approx([1 / 3, 0.1 + 0.2], rel=1e-7)
        assert np.isnan(record.metrics["val_loss"][:-1]).all()


def test_runs_that_followed_other_quantities_have_them_and_no_others(tmp_path):
    first, second = made_up(small_run()), made_up(small_run(train={"seed": 1}))
    second.metrics["trace loop 1"] = [1.0, *[NAN] * 4, 2.0]
    third = made_up(small_run(train={"seed": 2}), "diverged", loss=NAN)
    records.add(tmp_path, [first, second, third], [])
    found = [records.of(tmp_path).run(run.key) for run in (first, second, third)]
    assert [set(run.metrics) for run in found] == [set(run.metrics) for run in (first, second, third)]
    assert found[1].metrics["trace loop 1"][::5] == [1.0, 2.0] and found[2].status == "diverged"
    assert same(found[2].summary, third.summary) and records.of(tmp_path).run("0" * 16) is None


def test_measurements_of_a_part_are_found_by_function_and_key(tmp_path):
    measured = [a_measurement("k", loss={"1": 2.5}), a_measurement("l", squares=[1, 2.0], rows=[[1.0], [2.0]])]
    assert records.add(tmp_path, [], [*measured, a_measurement("none")]) == (0, 3)
    found = [records.of(tmp_path).measurement("tests.f", key) for key in ("k", "l", "none")]
    assert found == [*measured, a_measurement("none")]
    assert records.of(tmp_path).measurement("tests.g", "k") is None


def test_any_reader_opens_the_tables(tmp_path):
    runs = [made_up(cfg, val_loss=2.0 + cfg.train.seed) for cfg in several(3)]
    records.add(tmp_path, runs, [a_measurement(loss={"1": 2.5, "2": 2.25})])
    table = pd.read_parquet(tmp_path / "runs.parquet")
    shutil.copy(next((tmp_path / "runs.parquet").iterdir()), tmp_path / "runs.parquet" / "another.parquet")
    named_alike = RunStore(tmp_path / "none", [tmp_path]).frame()
    pd.testing.assert_series_equal(records.table(tmp_path)["val_loss"], named_alike["val_loss"])
    assert {*named_alike} <= {*records.table(tmp_path)} and len(records.table(tmp_path, "curves")) == 18
    assert table["key"].tolist() == [run.key for run in runs] and table["train.seed"].tolist() == [0, 1, 2]
    assert table["summary.val_loss"].tolist() == [2.0, 3.0, 4.0] and table["provenance.device"].tolist() == ["x"] * 3
    curves = pd.read_parquet(tmp_path / "curves.parquet")
    assert curves.groupby("key")["step"].agg(list).tolist() == [[*range(1, 7)]] * 3
    measured = pd.read_parquet(tmp_path / "measured.parquet")
    assert measured[["quantity", "value", "run"]].to_numpy().tolist() == [["/loss/1", 2.5, "r"], ["/loss/2", 2.25, "r"]]


def test_a_part_is_named_by_what_it_holds_and_never_changed(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        records.add(folder, [made_up(small_run())], [a_measurement(x=1.0)])
    names, other = ([path.name for path in (folder / "runs.parquet").iterdir()] for folder in (one, two))
    assert names == other
    before = {path: path.stat().st_mtime_ns for path in one.rglob("*.parquet/*")}
    assert records.add(one, [made_up(small_run())], [a_measurement(x=1.0)]) == (0, 0)
    assert records.add(one, [made_up(cfg) for cfg in several(2)], [a_measurement("l", x=2.0)]) == (1, 1)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len([*(one / "runs.parquet").iterdir()]) == 2


def test_two_peoples_parts_are_merged_by_copying(tmp_path):
    """Where both have a run, all machines that have both parts read the same one's."""
    first, second, third = several(3)
    folders = [tmp_path / "ann", tmp_path / "ben"]
    records.add(folders[0], [made_up(first), made_up(second, val_loss=1.0)], [a_measurement("k", x=1.0)])
    records.add(folders[1], [made_up(second, val_loss=2.0), made_up(third)], [a_measurement("l", x=2.0)])
    for one, other in itertools.permutations(folders):
        shutil.copytree(one, other, dirs_exist_ok=True)  # cp -rn
    stores = [records_alone(folder, tmp_path) for folder in folders]
    for store in stores:
        assert {run.key for run in store.runs()} == {cfg.key for cfg in (first, second, third)}
    assert len({store.find(second).summary["val_loss"] for store in stores}) == 1
    assert [records.of(folders[0]).measurement("tests.f", key).measured["x"] for key in "kl"] == [1.0, 2.0]
    assert {*records.of(folders[0]).run(second.key).metrics} == {*made_up(second).metrics}


def test_what_a_killed_process_left_is_no_part(tmp_path, capsys):
    """The file of runs is written last: a part without it is none, goes with the next, and is written another time."""
    records.add(tmp_path, [made_up(small_run())], [a_measurement(x=1.0)])
    (last,) = (tmp_path / "runs.parquet").iterdir()
    last.rename(last.with_name(f".{last.name}.host-1.tmp"))
    assert records.of(tmp_path).run(small_run().key) is None
    in_one_line(capsys.readouterr().err, f"part {last.name}", "runs.parquet")
    assert records.add(tmp_path, [made_up(small_run(train={"seed": 1}))], []) == (1, 0)
    assert [len([*folder.iterdir()]) for folder in tmp_path.glob("*.parquet")] == [1, 1, 1]
    assert pd.read_parquet(tmp_path / "measured.parquet").empty
    assert records.add(tmp_path, [made_up(small_run())], []) == (1, 0)
    assert records.of(tmp_path).run(small_run().key).status == "finished"


def test_a_store_reads_its_own_runs_first_and_records_in_their_order(store, tmp_path):
    folders = [tmp_path / "first", tmp_path / "second"]
    for number, folder in enumerate(folders):
        records.add(folder, [made_up(small_run(), val_loss=float(number))], [])
    for order in (folders, folders[::-1]):
        both = RunStore(store.path, order)
        expected = float(folders.index(order[0]))
        assert both.find(small_run()).summary["val_loss"] == expected == both.runs()[0].summary["val_loss"]
        assert len(both.runs()) == 1 and not store.path.exists()


def put(column, value, rows=slice(1)):
    """Changes cells of a column, that of the first row where nothing else is said; None is empty."""

    def change(table):
        cells = np.array([*table[column].to_pylist(), None], object)[:-1]
        cells[rows] = value
        field = table.schema.field(column)
        return table.set_column(table.schema.get_field_index(column), field, pa.array(cells, field.type))

    return change


FIRST, EVERY = f"row 0 of runs, {small_run().key}, is left out (", slice(None)
MEASURED = "row 0 of measured, tests.f k, is left out ("
FORGED = [
    ("runs", lambda table: table.drop_columns("status"), "status is missing, not string"),
    ("curves", lambda table: table.set_column(1, "step", table["step"].cast("double")), "step is [DataType(double)]"),
    *[("runs", put("summary.val_loss", x), f"{FIRST}val_loss: ") for x in (-5.0, NAN, None)],
    ("runs", put("summary.val_loss", 0.25), f"{FIRST}its losses are not those where its curve ends"),
    ("runs", put("provenance.device", None), f"{FIRST}device: is required"),
    ("runs", put("status", "diverged"), f"{FIRST}status is diverged, and its numbers are not"),
    ("runs", put("data.content", None), f"{FIRST}its config is not that of its key"),
    ("runs", lambda table: table.take([1, 0, 0]), "row 1 of runs, 9b194630a2ef09ac, is left out (it stands in several"),
    ("measured", put("key", None), "row 0 of measured has no name"),
    ("curves", lambda table: table.take([*range(1, 12), 0]), f"{FIRST}its curve of 0 rows"),
    ("curves", lambda table: table.take([0, *range(2, 12)]), f"{FIRST}its curve of 5 rows"),
    ("curves", put("loss", -1.0), f"{FIRST}loss is missing in its curve, or negative"),
    ("curves", put("state_norm", None), f"{FIRST}records: state_norm of {small_run().key}: some steps are empty"),
    ("measured", lambda table: table.take([0, 0, 1, 2]), f"{MEASURED}its rows do not belong together"),
    ("measured", put("value", None, EVERY), MEASURED),
    *[("measured", put("case", case, EVERY), MEASURED) for case in (None, "[1]", "[" * 10**5)],
    ("measured", put("provenance.device", None, EVERY), f"{MEASURED}device is None"),
]


@pytest.mark.parametrize(("table", "change", "says"), FORGED)
def test_what_cannot_be_believed_is_named_and_left_out(tmp_path, monkeypatch, capsys, table, change, says):
    """Somebody has changed a table, and named the part by what it now holds."""
    runs = [made_up(cfg, rho=1.0) for cfg in several(2)]
    measured = [a_measurement("k", x=[1.0, 2.0]), a_measurement("l")]
    part = records.write(tmp_path, runs, measured)
    monkeypatch.setattr(records, "_name", lambda contents: part)
    path = records.path_of(tmp_path, table, part)
    pyarrow.parquet.write_table(change(pyarrow.parquet.read_table(path)), path)
    there = records.of(tmp_path)
    found = [there.run(run.key) for run in runs], [there.measurement("tests.f", one.key) for one in measured]
    assert None in found[0] + found[1] and all(now in (None, one) for now, one in zip(found[1], measured, strict=True))
    assert all(now is None or now.summary == run.summary for now, run in zip(found[0], runs, strict=True))
    in_one_line(capsys.readouterr().err.splitlines()[0], f"part {part}.parquet", says, "restore its files")


def test_of_many_rows_that_are_left_out_three_are_named(tmp_path, monkeypatch, capsys):
    records.write(tmp_path, [made_up(cfg) for cfg in several(6)], [])
    monkeypatch.setattr(records, "check", lambda run: 1 / 0)
    there = records.of(tmp_path)
    assert not any(map(there.run, there.keys))
    *three, last = capsys.readouterr().err.splitlines()
    assert len(three) == 3 and "more of runs are left out" in last


def test_a_reduced_curve_keeps_its_ends_and_what_was_rarely_measured():
    n, rare = 600, {1, 300, 600}
    steps = list(range(1, n + 1))
    metrics = {
        "step": steps,
        "loss": [1 / 3 + step for step in steps],
        "rho": [float(step) if step % 6 == 0 or step == 1 else NAN for step in steps],
        "val_loss": [2.0 if step in rare else NAN for step in steps],
    }
    few = reduced(metrics, points=125)
    assert len(few["step"]) == 125 and few["step"] == sorted(few["step"]) and few["step"][0] == 1
    assert few["step"][-1] == 600 and rare <= set(few["step"]) and {s for s in steps if s % 6 == 0} <= set(few["step"])
    assert few["loss"][0] == 1 / 3 + 1 and isinstance(few["step"][0], int)
    fewer = reduced(metrics, points=12)
    assert len(fewer["step"]) == 12 and rare <= set(fewer["step"])
    gaps = [b - a for a, b in itertools.pairwise(fewer["step"])]
    assert max(gaps) < 4 * 600 / 12  # and evenly those of the rest
    short = {name: column[:5] for name, column in metrics.items()}
    assert reduced(short)["step"] == [1, 2, 3, 4, 5] and reduced({}) == {}


values = st.one_of(st.floats(), st.integers(-(2**53), 2**53), st.booleans(), st.none(), st.text(max_size=5))
names = st.text(max_size=5).filter(lambda name: "/" not in name)
tables = st.lists(st.lists(values, min_size=1, max_size=3), max_size=3)
measurements = st.dictionaries(
    names,
    st.recursive(
        st.one_of(values, st.lists(values, max_size=3), tables), lambda x: st.dictionaries(names, x, max_size=3)
    ),
    max_size=4,
)


@given(measurements)
def test_what_was_measured_comes_back_as_it_was(measured):
    assert same(nested(list(flat(measured))), measured)


@pytest.mark.parametrize("measured", [{"a/b": 1.0}, {"a": [[[1.0]]]}, {"a": [{"b": 1.0}]}, {"a": np.int64(1)}])
def test_what_no_table_holds_is_refused(measured):
    with pytest.raises(InputError, match=r"^measured: '/?a"):
        list(flat(measured))
