"""What earlier versions wrote gets today's checksums once, its numbers unchanged, and what is damaged stays damaged."""

import hashlib
import json
import shutil

import pytest
import safetensors
import safetensors.torch

from lib.base import files
from lib.base.errors import InputError
from lib.data.rows import token_store
from lib.store.runs import RunStore
from lib.sweep import measurements
from lib.sweep.finished import at_depths, losses_by_depth
from lib.sweep.measurements import Asked
from lib.train.loop import load_checkpoint, read_position, train
from lib.workbook import claims, migrate, records
from lib.workbook.migrate import CHECKSUMS
from lib.workbook.notebook import read_plan
from tests.cases import Case, claim, squared
from tests.runs import depth_losses, numbers, records_alone, same_weights, small_run, stopped
from tests.workbooks import a_notebook

CFG, OTHER = small_run(), small_run(train={"seed": 9})
PLAN = "plans/cpu/a.json"


def made(outputs):
    """One of everything that is written with a checksum."""
    store = RunStore(outputs / "runs", [outputs / "records" / "cpu"])
    train(CFG, store)
    depth_losses([CFG], store, [1, 2])
    stopped(OTHER, store)
    measurements.measure(squared, [Case(x=1.5)], store, jobs=1)
    asked = [Asked(squared, Case(x=1.5)), *(Asked(losses_by_depth, case) for case in at_depths([CFG], store, [1, 2]))]
    planned = [{measurements.name(one.function): [one.key]} for one in asked]
    records.pack([CFG], asked, planned, store, outputs / "records" / "cpu")
    claims.report(claim(), "n", [1.0, 1.1, 0.9], [1, 2, 3], "cpu", outputs / "claims" / "cpu", "octaves", "a note")
    a_notebook("a", outputs).plan({("one",): CFG})


def said(outputs):
    """All that can be read of it."""
    store = RunStore(outputs / "runs")
    record = records_alone(outputs / "records" / "cpu", outputs)
    tensors, position = load_checkpoint(store.partial(OTHER.key))
    return {
        "run": numbers(store.find(CFG)),
        "weights": str(store.weights(store.find(CFG)).relative_to(outputs)),
        "record": numbers(record.find(CFG)),
        "losses by depth": depth_losses([CFG], record, [1, 2]).to_dict(),
        "tokens": token_store(CFG.data, store.tokens).meta,
        "measured": [measurements.found(squared, Case(x=1.5), each) for each in (store, record)],
        "finding": claims.read(outputs / "claims" / "cpu" / "x.json"),
        "plan": read_plan(outputs / PLAN),
        "checkpoint": {name: tensor.tolist() for name, tensor in tensors.items()},
        "position": position,
    }


def earlier_records(folder):
    """A directory a run, with what was noted beside it and checksums of all, and a file a measurement."""
    record = records_alone(folder, folder)
    (run,) = record.runs()
    (case,) = at_depths([CFG], record, [1, 2])
    losses, square = (Asked(*each).found(record) for each in ((losses_by_depth, case), (squared, Case(x=1.5))))
    for table in folder.glob("*.parquet"):
        shutil.rmtree(table)
    place = folder / run.key
    place.mkdir()
    (place / "config.json").write_text(run.config.without_paths().model_dump_json(indent=1))
    (place / "result.json").write_text(
        json.dumps({"status": run.status, "summary": run.summary, "provenance": run.provenance})
    )
    (place / "metrics.json").write_text(json.dumps({"columns": dict(run.metrics)}))
    (place / "depth_losses.json").write_text(files.sealed({"0": losses.measured}))
    files.write_checked(place / CHECKSUMS, {path.name: files.digest(path) for path in place.iterdir()})
    fields = {"case": square.case, "measured": square.measured, "provenance": square.provenance}
    files.write_checked(folder / "measured" / square.function / f"{square.key}.json", fields)


def earlier(outputs, checksums=True):
    """The same in the layout before today's, or in the one before that, which had no checksums but in records."""
    earlier_records(outputs / "records" / "cpu")
    for path in (outputs / "records").rglob("depth_losses.json"):  # and beside the run itself
        shutil.copy(path, outputs / "runs" / CFG.key)

    def rewritten(path, **changes):
        fields = files.read_checked(path) | changes
        for field in [name for name, value in changes.items() if value is None]:
            del fields[field]
        told = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
        path.write_text(json.dumps({**fields, "sha256": told} if checksums else fields, indent=1))

    for path in outputs.rglob("*.json"):
        if path.name not in ("config.json", "metrics.json", "result.json", "depth_losses.json", CHECKSUMS):
            rewritten(path)
    rewritten(outputs / "runs" / CFG.key / "result.json", **({} if checksums else {"files": None}))
    record = outputs / "records" / "cpu" / CFG.key
    sums = {name: files.digest(record / name) for name in files.read_checked(record / CHECKSUMS)}
    (record / CHECKSUMS).write_text(json.dumps(sums, indent=1))
    path = RunStore(outputs / "runs").partial(OTHER.key)
    tensors, position = load_checkpoint(path)
    position["sha256"] = migrate._digest(tensors)
    safetensors.torch.save_file(tensors, path, metadata={"position": json.dumps(position)})


@pytest.fixture(scope="module")
def outputs_made(tmp_path_factory):
    outputs = tmp_path_factory.mktemp("made") / "outputs"
    made(outputs)
    return outputs


@pytest.fixture
def outputs(outputs_made, tmp_path):
    return shutil.copytree(outputs_made, tmp_path / "outputs")


@pytest.mark.parametrize("checksums", [True, False])
def test_all_that_is_written_says_the_same_as_before(outputs, checksums):
    expected = said(outputs)
    earlier(outputs, checksums)
    with pytest.raises(InputError, match=r"has no checksum, run make migrate once if an earlier version wrote it"):
        RunStore(outputs / "runs").find(CFG)
    assert migrate.migrate(outputs) > 0
    assert said(outputs) == expected
    assert migrate.migrate(outputs) == 0


def test_what_has_todays_checksums_is_left_alone(outputs):
    before = {path: path.stat().st_mtime_ns for path in outputs.rglob("*")}
    assert migrate.migrate(outputs) == 0
    assert {path: path.stat().st_mtime_ns for path in outputs.rglob("*")} == before


def test_what_is_damaged_stays_as_it_is(outputs, capsys):
    earlier(outputs)
    checkpoint = RunStore(outputs / "runs").partial(OTHER.key)
    raw = bytearray(checkpoint.read_bytes())
    raw[-1] ^= 1
    checkpoint.write_bytes(raw)
    metrics = outputs / "records" / "cpu" / CFG.key / "metrics.json"
    metrics.write_text(metrics.read_text().replace("1", "2"))
    before = {path: path.read_bytes() for path in (checkpoint, *metrics.parent.iterdir())}
    migrate.main(outputs)
    assert "files and folders of an earlier version" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in before} == before


def test_a_plan_that_was_a_list_is_written_anew(outputs):
    (outputs / PLAN).write_text(json.dumps([CFG.key]))
    assert migrate.migrate(outputs) == 1 and not (outputs / PLAN).exists()


def test_a_run_goes_on_from_a_checkpoint_of_an_earlier_version(outputs, tmp_path):
    earlier(outputs)
    migrate.migrate(outputs)
    store = RunStore(outputs / "runs")
    position, steps = read_position(store.partial(OTHER.key)), []
    train(OTHER, store, progress=lambda step, loss: steps.append(step))
    assert steps[0] == position["step"] + 1 > 1
    whole = train(OTHER, RunStore(tmp_path / "whole" / "runs"))
    assert numbers(store.find(OTHER)) == numbers(whole) and same_weights(store.find(OTHER), whole)
