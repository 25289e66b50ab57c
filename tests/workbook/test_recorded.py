"""A checksum tells what a record says from what another says, whichever part holds it."""

import shutil

import pytest

from lib.store import records
from lib.workbook.recorded import said
from tests.runs import small_run
from tests.store.test_records import a_measurement, a_run

SEEDS = [small_run(train={"seed": seed}) for seed in range(3)]


def of(folder, runs, measured=()) -> dict[str, str]:
    records.write(folder, runs, list(measured))
    return said(folder)


def test_it_names_what_is_there(tmp_path):
    found = of(tmp_path, [a_run(cfg) for cfg in SEEDS[:2]], [a_measurement("k", x=1.0, y=[1, 2])])
    assert found.keys() == {a_run(cfg).key for cfg in SEEDS[:2]} | {"tests.f k"}
    assert said(tmp_path / "none") == {}


@pytest.mark.parametrize("changed", [{"val_loss": 0.5}, {"seconds": 3.0}, {"steps_done": 7}])
def test_a_run_that_ended_otherwise_is_told(tmp_path, changed):
    one = of(tmp_path / "a", [a_run(SEEDS[0]), a_run(SEEDS[1])])
    other = of(tmp_path / "b", [a_run(SEEDS[0], **changed), a_run(SEEDS[1])])
    assert {key for key in one if one[key] != other[key]} == {a_run(SEEDS[0]).key}


def test_a_curve_with_two_losses_exchanged_is_told(tmp_path):
    run = a_run(SEEDS[0])
    one = of(tmp_path / "a", [run])
    run.metrics["loss"][:2] = run.metrics["loss"][1::-1]
    assert one != of(tmp_path / "b", [run])


@pytest.mark.parametrize("measured", [{"x": 2.0}, {"y": 1.0}, {"x": [1.0]}, {"x": "1.0"}, {"x": None}])
def test_a_measurement_that_says_something_else_is_told(tmp_path, measured):
    one = of(tmp_path / "a", [], [a_measurement("k", x=1.0)])
    assert one != of(tmp_path / "b", [], [a_measurement("k", **measured)])


def test_parts_say_together_what_one_says(tmp_path):
    """Also where a column is empty in one of them, and where both have something."""
    first = [a_run(SEEDS[0]), a_run(SEEDS[1], val_loss=1.0)]
    second = [a_run(SEEDS[1], val_loss=2.0), a_run(small_run(data={"max_bytes": None, "content": "0123456789012345"}))]
    measured = [
        a_measurement("k", x=1.0),
        records.Measured("tests.f", "of", {"run": SEEDS[1].planned.key}, {"x": 1}, {}),
    ]
    of(tmp_path, first, measured)
    several = of(tmp_path, second, [measured[1]._replace(measured={"x": 2})])
    there = records.of(tmp_path)
    numbers = [there.measurement(*of) for of in there.measured]
    assert of(tmp_path / "one", [*map(there.run, there.runs)], numbers) == several and len(several) == 5


def test_a_part_that_cannot_be_read_says_nothing(tmp_path):
    of(tmp_path, [a_run(SEEDS[0])])
    shutil.rmtree(tmp_path / "curves.parquet")
    (part,) = (tmp_path / "runs.parquet").iterdir()
    part.write_text("no table")
    assert said(tmp_path) == {}
