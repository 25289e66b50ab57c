"""A disk that is full or only to be read is named in one line, with nothing half written left on it, and a file that is
cut, emptied or has a flipped bit is named, and made again or refused."""

import math
import re
import shutil

import numpy as np
import pytest
from matplotlib import pyplot

from lib.base.errors import DiskFull, InputError
from lib.config import DataConfig
from lib.data.rows import token_store
from lib.figures import style
from lib.store import records
from lib.store.runs import RunStore
from lib.sweep import training as sweeping
from lib.sweep.finished import losses_by_depth, run_model
from lib.sweep.measurements import Asked, key, measure, name
from lib.sweep.training import sweep
from lib.train.loop import train
from lib.workbook import claims, report
from lib.workbook.report import Outputs
from tests.cases import Case, claim, squared
from tests.runs import depth_losses, numbers, records_alone, small_run, stopped
from tests.workbooks import a_notebook

CFG, CASE = small_run(), Case(x=1.5)


def a_checkpoint(folder):
    store = RunStore(folder / "runs")
    return stopped(CFG, store), lambda: numbers(train(CFG, store))


def tokens(file, **data):
    def make(folder):
        cfg = DataConfig(**{**small_run().data.model_dump(), "content": "", **data})
        token_store(cfg, folder)
        (path,) = (path for path in folder.rglob(file) if "corrupt" not in path.name)

        def use():
            again = token_store(cfg, folder)
            return again.tokenizer.encode_batch(["one text"])[0].tolist(), again.tokens(3, 0, 50).tolist(), again.meta

        return path, use

    return make


def a_run(file):
    def make(folder):
        store = RunStore(folder / "runs")
        return train(CFG, store).path / file, lambda: numbers(train(CFG, store))

    return make


def weights(folder):
    path, _ = a_run("model.safetensors")(folder)
    store = RunStore(folder / "runs")
    return path, lambda: {name: value.tolist() for name, value in run_model(CFG, store).state_dict().items()}


def losses(folder):
    store = RunStore(folder / "runs")
    train(CFG, store)
    depth_losses([CFG], store, [1, 2])
    (path,) = (folder / "measured" / name(losses_by_depth)).glob("*.json")
    return path, lambda: depth_losses([CFG], store, [1, 2]).to_dict()


def a_record(table):
    def make(folder):
        a_measurement(folder)
        store, record = RunStore(folder / "runs"), records_alone(folder / "records", folder)
        records.add(folder / "records", [train(CFG, store)], [Asked(squared, CASE).found(store)])
        (path,) = (folder / "records" / f"{table}.parquet").iterdir()
        return path, lambda: (numbers(record.get(CFG)), measure(squared, [CASE], record, jobs=1))

    return make


def a_measurement(folder):
    store = RunStore(folder / "runs")
    measure(squared, [CASE], store, jobs=1)
    path = folder / "measured" / name(squared) / f"{key(CASE)}.json"
    return path, lambda: measure(squared, [CASE], store, jobs=1)


def a_finding(folder):
    claims.report(claim(), "n", [1.0, 1.1, 0.9], [1, 2, 3], "cpu", folder / "claims" / "cpu", "octaves", "a note")

    def use():
        outputs = Outputs(folder)
        rows = outputs.rows({"x": claim()}, "cpu")
        if outputs.problems:
            raise InputError(*outputs.problems)
        return rows

    return folder / "claims" / "cpu" / "x.json", use


def a_plan(folder):
    nb, cfg = a_notebook("a", folder), small_run()

    def use():
        nb.plan({("one",): cfg})
        return a_notebook("b", folder).plan({("one",): cfg}).to_dict()

    use()
    return folder / "plans" / "cpu" / "a.json", use


KINDS = {
    "checkpoint": a_checkpoint,
    "ends of documents": tokens("ends.npy"),
    "tokens": tokens("meta.json"),
    "tokenizer": tokens("tokenizer.json", tokenizer="bpe-300"),
    "result": a_run("result.json"),
    "config": a_run("config.json"),
    "metrics": a_run("metrics.json"),
    "weights": weights,
    "losses by depth": losses,
    "records of runs": a_record("runs"),
    "records of curves": a_record("curves"),
    "records of measurements": a_record("measured"),
    "measurement": a_measurement,
    "finding": a_finding,
    "plan": a_plan,
}


def a_figure(folder):
    figure, axes = pyplot.subplots()
    axes.plot(np.random.default_rng(0).normal(size=50_000), ".")  # a PDF larger than the PNG
    style.save(figure, folder / "a", {"stamp": 1}, "smoke")
    pyplot.close(figure)


def run_here(folder, seconds=math.inf):
    train(CFG, RunStore(folder / "runs"), checkpoint_seconds=seconds)


def elsewhere(folder) -> RunStore:
    """A store on another disk, with a run."""
    run_here(folder.parent / "elsewhere")
    return RunStore(folder.parent / "elsewhere" / "runs")


def a_text(folder):
    return tokens("*.bin")(folder / "tokens")


#: file -> what writes it, what is there before, and what is left of the disk
WRITERS = {
    f"runs/.{CFG.key}.partial": (lambda folder: run_here(folder, 0), a_text, 0),
    f"runs/{CFG.key}": (run_here, a_text, 0),
    "tokens/*.tokens": (run_here, None, 0),
    "records/*.parquet/*.parquet": (
        lambda to: records.add(to / "records", [elsewhere(to).find(CFG)], []),
        elsewhere,
        0,
    ),
    f"measured/*/{key(CASE)}.json": (a_measurement, None, 0),
    "claims/cpu/x.json": (a_finding, None, 0),
    "a.*": (a_figure, None, 4096),
    "a.pdf": (a_figure, None, 300_000),
    "plans/cpu/a.json": (a_plan, None, 0),
    "report/style.css": (lambda folder: report.build(folder, "smoke"), None, 0),
}


@pytest.mark.parametrize("file", WRITERS)
def test_a_full_disk_names_the_file_and_leaves_nothing_half_written(small_disk, file):
    write, before, leave = WRITERS[file]
    if before:
        before(small_disk.path)
    with small_disk.full(leave), pytest.raises(DiskFull) as error:
        write(small_disk.path)
    line = str(error.value)
    assert line.startswith("no space left while writing") and "\n" not in line
    assert re.search(re.escape(file).replace(r"\*", "[^ ]*"), line), line
    assert not list(small_disk.path.glob(file)) and not list(small_disk.path.rglob("*.tmp"))
    write(small_disk.path)
    assert list(small_disk.path.glob(file)) or "partial" in file  # a finished run needs no checkpoint


def test_a_store_that_cannot_be_written_is_said_before_anything_is_trained(small_disk, monkeypatch):
    monkeypatch.setattr(sweeping, "work_through", lambda *args: pytest.fail("trained"))
    (small_disk.path / "runs" / CFG.key).mkdir(parents=True)  # it cannot be read, and would be set aside
    unwritable = r"^outputs: .* cannot be (made|written to).*, choose another place, or change its rights$"
    store, other = RunStore(small_disk.path / "runs"), small_run(train={"seed": 1})
    with small_disk.read_only():
        for attempt in (
            lambda: sweep([other], store, jobs=1),
            lambda: train(CFG, store),
            lambda: a_notebook("a", small_disk.path).plan({("one",): other}),
            lambda: a_figure(small_disk.path),
        ):
            with pytest.raises(InputError, match=unwritable):
                attempt()


def flipped(raw: bytes, at: int) -> bytes:
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


DAMAGE = {
    "cut": lambda raw: raw[: len(raw) // 2],
    "emptied": lambda raw: b"",
    "another's": lambda raw: b"[]",
    "a bit of its header": lambda raw: flipped(raw, 8),
    **{f"a bit at {at}/16": lambda raw, at=at: flipped(raw, len(raw) * at // 16) for at in range(1, 16)},
    "a bit at its end": lambda raw: flipped(raw, len(raw) - 1),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_named_and_made_again_or_refused(tmp_path, capfd, kind):
    folder, whole = tmp_path / "used", tmp_path / "whole"
    path, use = KINDS[kind](folder)
    shutil.copytree(folder, whole)
    expected = use()
    for how, damage in DAMAGE.items():
        shutil.rmtree(folder)
        shutil.copytree(whole, folder)
        records._records.cache_clear()  # parts are read once by a process
        path.write_bytes(damage(path.read_bytes()))
        capfd.readouterr()
        complaint = ""
        try:
            found = use()
        except (InputError, OSError) as error:
            complaint = str(error)
            assert "\n" not in complaint
        else:
            assert found == expected
        said = "".join(capfd.readouterr()) + complaint
        assert path.name.lstrip(".") in said, f"{how}: {said}"
