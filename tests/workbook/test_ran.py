"""What a plan came to is counted from the runs that are there, each with its own size, machine and time."""

import csv
import dataclasses

import pytest

from lib.base import files
from lib.flops import count
from lib.sweep.training import sweep
from lib.workbook import ran
from tests.runs import several


@pytest.fixture
def outputs(store, tmp_path):
    """Two runs of three that a notebook planned."""
    folder = tmp_path / "outputs"
    results = sweep(several(2), store, jobs=1).results
    files.need_folder(folder)
    (folder / "runs").symlink_to(store.path)
    planned = {run.key: run.config for run in results} | {"c": several(3)[2].planned}
    dumped = {key: config.model_dump(mode="json") for key, config in planned.items()}
    files.write_checked(
        folder / "plans" / "cpu" / "instability.json", {"runs": dumped, "measurements": {"f": {"k": 1.0}}}
    )
    return folder


def test_a_plan_is_what_it_asked_for_and_what_is_there(outputs):
    found = ran.ran(outputs, "cpu", "instability")
    assert (found.planned, found.measurements, len(found.runs)) == (3, [1.0], 2)
    assert found.missing == [several(3)[2].planned]
    assert ran.ran(outputs, "cpu", "of_no_plan") == ran.Ran({}, [], [])


def test_scale_hardware_and_hours_are_those_of_the_runs(outputs):
    runs = [*ran.ran(outputs, "cpu", "instability").runs.values()]
    parameters = ran.short(count(runs[0].config.model).n_params)
    assert ran.scale(runs) == f"2 runs: {parameters} parameters, {ran.short(runs[0].config.tokens)} tokens"
    assert ran.scale([]) == ran.hours([]) == ran.hardware([]) == ""
    hour = [dataclasses.replace(run, summary={**run.summary, "seconds": 1800.0}) for run in runs]
    own = [dataclasses.replace(run, provenance={**run.provenance, "device": "cpu x", "cpu": "A core"}) for run in hour]
    gpu = dataclasses.replace(hour[0], provenance={**hour[0].provenance, "device": "NVIDIA H200", "processes": 4})
    assert ran.hours(own) == "1 core-hours" and ran.hours([*own, gpu]) == "1 core-hours, 2 GPU-hours"
    assert ran.hardware([*own, gpu]) == "A core, NVIDIA H200"


def test_the_table_has_what_the_runs_differ_in_and_how_they_ended(outputs):
    runs = ran.ran(outputs, "cpu", "instability").runs
    rows = [*csv.DictReader(ran.table(runs.values()).splitlines())]
    assert [row["key"] for row in rows] == [*runs]
    for row, run in zip(rows, runs.values(), strict=True):
        assert float(row["val_loss"]) == run.summary["val_loss"] and row["status"] == run.status
    assert "model.width" not in rows[0]  # of all of them
    assert all(len({row[name] for row in rows}) > 1 for name in rows[0] if name.startswith(("model.", "train.")))
