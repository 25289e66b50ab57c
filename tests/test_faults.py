"""Flipped bits, full disks, a clock set back, kills and odd names change no number, and damage is always named.

That a fault in one module is met there is for that module's tests; these go through files of every kind, and through
whole makes."""

import contextlib
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot

from lib.base import files
from lib.base.errors import DiskFull, InputError
from lib.config import DataConfig
from lib.data.rows import token_store
from lib.figures import style
from lib.store.runs import UNREADABLE, RunStore
from lib.sweep import training as sweeping
from lib.sweep.finished import depth_losses, run_model
from lib.sweep.measurements import found, key, measure, name
from lib.sweep.training import sweep
from lib.tasks import files as taskfiles
from lib.text.tokenizer import train_bpe
from lib.train.loop import load_checkpoint, train
from lib.workbook import claims, records, report
from lib.workbook.notebook import read_plan
from tests.cases import Case, claim, squared
from tests.processes import ENDED, python, until
from tests.runs import numbers, records_alone, small_run, stopped
from tests.tasks.test_files import HERE, written
from tests.workbooks import a_notebook, copied, own_environment, papermill

ODD = "Größe и 模型 run"  # a folder of somebody


# ---- files that something has damaged --------------------------------------------------------------------------------


def flipped(raw: bytes, at: int) -> bytes:
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


DAMAGE = {
    "cut": lambda raw: raw[: len(raw) // 2],
    "emptied": lambda raw: b"",
    "a bit of its header": lambda raw: flipped(raw, 8),
    "a bit in its middle": lambda raw: flipped(raw, len(raw) // 2),
    "a bit at its end": lambda raw: flipped(raw, len(raw) - 1),
}

# each of these makes a file in a folder, and returns it with a function that uses it


def a_checkpoint(folder, **changes):
    cfg, store = small_run(**changes), RunStore(folder / "runs")
    return stopped(cfg, store), lambda: numbers(train(cfg, store))


def tokens(file, unfinished=False, **data):
    def make(folder):
        cfg = DataConfig(**{**small_run().data.model_dump(), "content": "", **data})
        found = token_store(cfg, folder)
        if unfinished:  # as if it had been killed before its last file
            (found.path / "meta.json").unlink()
        (path,) = (path for path in folder.rglob(file) if "corrupt" not in path.name)

        def use():
            again = token_store(cfg, folder)
            return again.tokenizer.encode_batch(["one text"])[0].tolist(), again.tokens(3, 0, 50).tolist(), again.meta

        return path, use

    return make


def a_run(file):
    def make(folder):
        cfg, store = small_run(), RunStore(folder / "runs")
        return train(cfg, store).path / file, lambda: numbers(train(cfg, store))

    return make


def weights(folder):
    cfg, store = small_run(), RunStore(folder / "runs")
    path = train(cfg, store).path / "model.safetensors"
    return path, lambda: {name: value.tolist() for name, value in run_model(cfg, store).state_dict().items()}


def a_note(folder):
    cfg, store = small_run(), RunStore(folder / "runs")
    result = train(cfg, store)

    def use():
        return depth_losses([cfg], store, [1, 2]).to_dict()

    use()
    return result.path / "depth_losses.json", use


def a_record(file):
    def make(folder):
        cfg, store = small_run(), RunStore(folder / "runs")
        train(cfg, store)
        records.pack([cfg], store, folder / "records")
        record = records_alone(folder / "records", folder)
        return folder / "records" / cfg.key / file, lambda: numbers(record.find(cfg))

    return make


def a_measurement(folder):
    store = RunStore(folder / "runs")
    measure(squared, [Case(x=1.5)], store, jobs=1)
    path = folder / "measured" / name(squared) / f"{key(Case(x=1.5))}.json"
    return path, lambda: measure(squared, [Case(x=1.5)], store, jobs=1)


def a_measured_record(folder):
    path, _ = a_measurement(folder)
    asked = {name(squared): {path.stem: 1.0}}
    records.pack_measured(asked, RunStore(folder / "runs"), folder / "records")
    record = records_alone(folder / "records", folder)
    return folder / "records" / path.relative_to(folder), lambda: measure(squared, [Case(x=1.5)], record, jobs=1)


def a_finding(folder):
    claims.report(claim(), "n", [1.0, 1.1, 0.9], [1, 2, 3], "cpu", folder, "octaves", "a note")
    return folder / "x.json", lambda: claims.findings(folder)


def a_plan(folder):
    nb, cfg = a_notebook("a", folder), small_run()

    def use():
        nb.plan({("one",): cfg})
        return a_notebook("b", folder).plan({("one",): cfg}).to_dict()

    use()
    return folder / "plans" / "cpu" / "a.json", use


KINDS = {
    "checkpoint": a_checkpoint,
    "shard": tokens("00000.bin"),
    "ends of documents": tokens("00000.ends.npy"),
    "tokens": tokens("meta.json"),
    "begun tokens": tokens("state.json", unfinished=True),
    "tokenizer": tokens("*bpe-300*.json", tokenizer="bpe-300"),
    "result": a_run("result.json"),
    "config": a_run("config.json"),
    "metrics": a_run("metrics.json"),
    "weights": weights,
    "note": a_note,
    "record": a_record("result.json"),
    "metrics of a record": a_record("metrics.json"),
    "checksums of a record": a_record("checksums.json"),
    "measurement": a_measurement,
    "measured record": a_measured_record,
    "finding": a_finding,
    "plan": a_plan,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_named_and_made_again_or_refused(tmp_path, capfd, kind, damage):
    expected = KINDS[kind](tmp_path / "whole")[1]()
    path, use = KINDS[kind](tmp_path / "damaged")
    raw = path.read_bytes()
    path.write_bytes(DAMAGE[damage](raw))
    capfd.readouterr()
    complaint = ""
    try:
        found = use()
    except (InputError, OSError) as error:
        complaint = str(error)
        assert "\n" not in complaint
    else:
        assert found == expected
    said = capfd.readouterr().out + complaint
    assert path.name.lstrip(".") in said, said


def plan_of_one_run(folder):
    a_notebook("a", folder).plan({("one",): small_run()})
    path = folder / "plans" / "cpu" / "a.json"
    return [path], lambda path: read_plan(path)


def measured_case(folder):
    path, _ = a_measurement(folder)
    return [path], lambda path: found(squared, Case(x=1.5), RunStore(folder / "runs"))


def one_finding(folder):
    path, _ = a_finding(folder)
    return [path], claims.read


def one_note(folder):
    path, _ = a_note(folder)
    store = RunStore(folder / "runs")
    result = store.find(small_run())
    return [path], lambda path: store.noted(result, "depth_losses")


def whole_run(folder):
    """All of it but the weights, which are checked where they are used."""
    cfg, store = small_run(train={"steps": 2}), RunStore(folder / "runs")
    path = train(cfg, store).path
    return [path / name for name in ("config.json", "metrics.json", "result.json")], lambda path: store.find(cfg)


def whole_record(folder):
    cfg, store = small_run(train={"steps": 2}), RunStore(folder / "runs")
    train(cfg, store)
    depth_losses([cfg], store, [1])
    records.pack([cfg], store, folder / "records")
    record = records_alone(folder / "records", folder)
    return sorted((folder / "records" / cfg.key).iterdir()), lambda path: record.find(cfg)


def header(folder):
    """Of a checkpoint: all in front of its tensors. One that cannot be loaded is set aside, with the reason."""
    path, _ = a_checkpoint(folder, model={"width": 4, "heads": 1, "mlp_width": 4})

    def load(path):
        try:
            load_checkpoint(path)
        except UNREADABLE as error:
            raise InputError(f"{path.name}: {error}") from None

    return [path], load


EVERYTHING = {
    "note": one_note,
    "plan": plan_of_one_run,
    "measurement": measured_case,
    "finding": one_finding,
    "run": whole_run,
    "record": whole_record,
    "header": header,
}


def put(path: Path, at: int, byte: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([byte]))


def bits_that_pass(make, folder, capfd, monkeypatch, every: int) -> list[str]:
    """Where a bit of a file can be flipped and nobody says so; every so many bits are tried."""
    paths, read = make(folder)
    # thousands of copies are not set aside: the name says enough
    monkeypatch.setattr(files, "set_aside", lambda path, beside=None: path)
    passed, tried = [], 0
    for path in paths:
        raw = path.read_bytes()
        size = 8 + int.from_bytes(raw[:8], "little") if path.name.endswith(".partial") else len(raw)
        for bit in range(0, 8 * size, every):
            at, mask = bit // 8, 1 << bit % 8
            put(path, at, raw[at] ^ mask)
            tried += 1
            try:
                read(path)
            except InputError as error:
                said = str(error)
            else:
                said = capfd.readouterr().out
            put(path, at, raw[at])
            if path.name not in said and path.parent.name not in said:
                passed.append(f"bit {bit} of {path.name}")
        read(path)  # whole again, it is read
        assert not capfd.readouterr().out
    assert tried >= 8 * sum(path.stat().st_size for path in paths) // every or make is header
    return passed


@pytest.mark.parametrize("kind", EVERYTHING)
def test_no_bit_of_what_is_written_is_flipped_unnoticed(tmp_path, capfd, monkeypatch, kind):
    """A sample of them; make test-long tries every one."""
    every = 1 if kind in ("note", "finding") else 61
    assert bits_that_pass(EVERYTHING[kind], tmp_path, capfd, monkeypatch, every) == []


@pytest.mark.long
@pytest.mark.parametrize("kind", EVERYTHING)
def test_no_bit_at_all_is_flipped_unnoticed(tmp_path, capfd, monkeypatch, kind):
    assert bits_that_pass(EVERYTHING[kind], tmp_path, capfd, monkeypatch, 1) == []


# ---- a disk that is full, or only to be read -------------------------------------------------------------------------


def a_figure(folder):
    figure, axes = pyplot.subplots()
    axes.plot(np.random.default_rng(0).normal(size=50_000), ".")  # a PDF larger than the PNG
    style.save(figure, folder / "a", {"stamp": 1})
    pyplot.close(figure)


def a_table(folder):
    import pandas as pd

    a_notebook("n", folder, profile="smoke").save_table(pd.DataFrame({"x": range(5000)}), "a")


def a_report(folder):
    report.build(folder, "smoke")


def run_here(folder, seconds=math.inf):
    train(small_run(), RunStore(folder / "runs"), checkpoint_seconds=seconds)


def elsewhere(folder) -> RunStore:
    """A store on another disk, with a run."""
    store = RunStore(folder.parent / "elsewhere" / "runs")
    train(small_run(), store)
    return store


KEY = small_run().key
#: file -> what writes it, what is there before, and what is left of the disk
WRITERS = {
    f"runs/.{KEY}.partial": (lambda folder: run_here(folder, 0), lambda folder: tokens("*.bin")(folder / "tokens"), 0),
    f"runs/{KEY}": (run_here, lambda folder: tokens("*.bin")(folder / "tokens"), 0),
    "tokens/*/00000.bin": (run_here, None, 0),
    "tokens/*bpe-300*.json": (lambda folder: tokens("*.bin", tokenizer="bpe-300")(folder / "tokens"), None, 0),
    f"records/{KEY}": (lambda folder: records.pack([small_run()], elsewhere(folder), folder / "records"), elsewhere, 0),
    f"measured/*/{key(Case(x=2))}.json": (
        lambda folder: measure(squared, [Case(x=2)], RunStore(folder / "runs"), jobs=1),
        None,
        0,
    ),
    f"runs/{KEY}/depth_losses.json": (
        lambda folder: depth_losses([small_run()], RunStore(folder / "runs"), [1]),
        run_here,
        0,
    ),
    "x.json": (lambda folder: a_finding(folder), None, 0),
    "a.*": (a_figure, None, 4096),
    "a.pdf": (a_figure, None, 300_000),
    "tables/smoke/a.*": (a_table, None, 4096),
    "plans/cpu/a.json": (a_plan, None, 0),
    "report/index.html": (a_report, None, 0),
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
    monkeypatch.setattr(sweeping, "_train_all", lambda *args: pytest.fail("trained"))
    cfg = small_run()
    (small_disk.path / "runs").mkdir()
    begun = small_disk.path / "runs" / cfg.key
    begun.mkdir()  # it cannot be read, and would be set aside
    unwritable = r"^outputs: .* cannot be (made|written to).*, choose another place for outputs, or change its rights$"
    with small_disk.read_only():
        for attempt in (
            lambda: sweep([small_run(train={"seed": 1})], RunStore(small_disk.path / "runs"), jobs=1),
            lambda: train(cfg, RunStore(small_disk.path / "runs")),
            lambda: a_notebook("a", small_disk.path).plan({("one",): small_run(train={"seed": 1})}),
            lambda: a_figure(small_disk.path),
        ):
            with pytest.raises(InputError, match=unwritable):
                attempt()


# ---- a clock that is set back ----------------------------------------------------------------------------------------


def test_a_clock_that_is_set_back_changes_no_number(tmp_path):
    configs = [small_run(train={"seed": seed}) for seed in range(2)]
    listed = json.dumps([cfg.model_dump(mode="json") for cfg in configs])
    code = f"""
import json, time
now = time.time()
def set_back():
    global now
    now -= 3600
    return now
time.time = set_back
from lib.config import RunConfig
from lib.store.runs import RunStore
from lib.sweep.training import sweep
sweep([RunConfig(**c) for c in json.loads({listed!r})], RunStore({str(tmp_path / "runs")!r}), jobs=1)
"""
    output, _ = (process := python(code)).communicate(timeout=300)
    assert process.returncode == 0, output
    assert not re.search(r"-\d+:|-\d+[ .\d]*s\b|\?FLOP/s\]$", output.replace("\r", "\n").strip()), output
    found = RunStore(tmp_path / "runs")
    for cfg in configs:
        result = found.find(cfg)
        assert numbers(result) == numbers(train(cfg, RunStore(tmp_path / "plain" / "runs")))
        assert result.summary["seconds"] > 0 and min(result.metrics["tokens_per_s"]) > 0


# ---- odd names -------------------------------------------------------------------------------------------------------


def a_text_and_a_tokenizer(folder: Path, text: str, tokenizer: str) -> dict[str, str]:
    folder.mkdir(parents=True)
    documents = [f"document {i} says {i * i} things" * 5 for i in range(60)]
    (folder / text).write_text("\n\n".join(documents))
    train_bpe(documents, 300, folder / tokenizer)
    return {"source": str(folder / text), "tokenizer": str(folder / tokenizer)}


def test_a_name_changes_no_number(tmp_path):
    found = []
    for folder, *names in [
        ("plain", "text.txt", "tokenizer.json"),
        (ODD, "mein Text 模型.txt", "l'été 'n' \"ü\".json"),
    ]:
        data = a_text_and_a_tokenizer(tmp_path / folder, *names)
        cfg = small_run(model={"vocab_size": 300}, data={**data, "max_bytes": None, "val_rows": 4})
        store = RunStore(tmp_path / folder / "meine Läufe" / "runs")
        result = train(cfg, store)
        examples = taskfiles.read(
            HERE, written(tmp_path / folder / "Aufgaben 1", {"context": "c", "continuation": "z"})
        )
        found.append((result.key, numbers(result), depth_losses([cfg], store, [1]).to_dict(), examples))
    assert found[0] == found[1]


@pytest.mark.long
def test_papermill_takes_odd_names(tmp_path, clean_workbook):
    data = a_text_and_a_tokenizer(tmp_path / ODD, "mein Text 模型.txt", "l'été.json")
    given = {
        **data,
        "outputs": str(tmp_path / ODD / "meine Läufe"),
        "vocab_size": "300",
        "val_rows": "4",
        "architectures": "[parcae]",
        "lrs": "[0.004]",
        "max_hours": "2.0",
    }
    words = [word for parameter, value in given.items() for word in ("-p", parameter, value)]
    output = tmp_path / ODD / "Kopie ü.ipynb"
    done = papermill(clean_workbook, "instability", output, "-f", "params/smoke/instability.yaml", *words, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(RunStore(tmp_path / ODD / "meine Läufe" / "runs").frame()) == 1


# ---- whole makes -----------------------------------------------------------------------------------------------------

NOTEBOOK = "instability"
KILLS = 3  # of each victim


def command_of(pid: int) -> str:
    with contextlib.suppress(OSError):  # it has gone meanwhile
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return "gone"


class Workbook:
    """A copy of the workbook in a folder with an odd name, in which a notebook takes some seconds to train: by itself,
    or with ``jobs`` on so many processes."""

    def __init__(self, place: Path, jobs: int = 0):
        self.path, self.jobs = copied(place / ODD), jobs
        path = self.path / "params" / "smoke" / f"{NOTEBOOK}.yaml"
        text = re.sub(r"^steps: .*", "steps: 40", path.read_text(), flags=re.M)
        path.write_text(re.sub(r"^max_hours: .*", "max_hours: 2.0", text, flags=re.M))

    def start(self, **environment: str) -> subprocess.Popen:
        """make in a session of its own, as in a terminal."""
        command = ["make", "reproduce-figures", "PROFILE=smoke", "TORCH=cpu", f"ONLY={NOTEBOOK}"]
        command += [f"JOBS={self.jobs}"]
        self.log = (self.path.parent / f"{time.monotonic_ns()}.log").open("w+")
        return subprocess.Popen(
            command,
            cwd=self.path,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**own_environment(), **environment},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # some shells start what they leave deaf
        )

    def said(self) -> str:
        return Path(self.log.name).read_text().replace("\r", "\n")

    def finish(self) -> None:
        process = self.start()
        assert process.wait(timeout=900) == 0, self.said()
        assert "failed" not in self.said()
        self.wait_until_alone()

    def processes(self, kind: str = "") -> list[int]:
        """Those that work here, and whose command line holds ``kind``; the oldest first."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has gone meanwhile
                here = Path(os.readlink(folder / "cwd")).is_relative_to(self.path)
                state, *fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
                if here and state != "Z" and kind in (folder / "cmdline").read_text().replace("\0", " "):
                    found[int(folder.name)] = int(fields[18])  # when it began
        return sorted(found, key=found.get)

    def wait_until_alone(self) -> None:
        until(lambda: not self.processes(), ENDED, said=lambda: [*map(command_of, self.processes())])

    def training(self) -> bool:
        """In processes of its own, beside the one that forks them, or in the notebook's."""
        at_it = len(self.processes("forkserver")) >= 2 if self.jobs else self.processes("ipykernel_launcher")
        return bool(at_it) and any((self.path / "outputs/runs").glob(".*.lock"))

    def numbers(self) -> dict[str, str]:
        """Everything that came out, but the clock and who made it."""
        outputs = self.path / "outputs"
        found = {run.key: json.dumps(numbers(run), sort_keys=True) for run in RunStore(outputs / "runs").runs()}
        for path in outputs.glob("tables/*/*.csv"):
            found[path.name] = path.read_text()
        for path in outputs.glob("claims/*/*.json"):
            finding = json.loads(path.read_text())
            del finding["checksum"], finding["provenance"]["parameters"]["jobs"]
            found[path.name] = json.dumps(finding, sort_keys=True)
        figures = sorted(path.name for path in outputs.glob("figures/*/*.p*"))
        return {**found, "figures": ", ".join(figures)}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[str, str]:
    if not Path("/proc/self/cwd").exists():
        pytest.skip("processes are found in /proc")
    whole = Workbook(tmp_path_factory.mktemp("whole"))
    process = whole.start(LC_ALL="C")  # whose file names are bytes
    assert process.wait(timeout=900) == 0, whole.said()
    found = whole.numbers()
    assert sum(len(name) == 16 for name in found) == 6 and len(found["figures"].split(", ")) == 8
    assert "Traceback" not in whole.said()
    return found


#: who is killed -> what is in its command line, how many others have it too, and seconds in which it is still alive
VICTIMS = {
    "make": ("make", 0, 6),
    "driver": ("lib.workbook.execute", 0, 6),
    "kernel": ("ipykernel_launcher", 0, 4),
    "worker": ("forkserver", 1, 1),
}


@pytest.mark.long
@pytest.mark.parametrize("victim", VICTIMS)
def test_whatever_is_killed_a_second_call_finishes_to_the_same_numbers(tmp_path, undisturbed, victim):
    """Some times in a row, at a random moment of its life."""
    workbook, chance, kills = Workbook(tmp_path, jobs=2 * (victim == "worker")), random.Random(victim), 0
    kind, others, life = VICTIMS[victim]
    while kills < KILLS:
        make = workbook.start()
        delay = chance.uniform(0, life)
        while make.poll() is None and len(workbook.processes(kind)) <= others:
            time.sleep(0.05)
        with contextlib.suppress(subprocess.TimeoutExpired):
            make.wait(timeout=delay)
        found = workbook.processes(kind)[others:]  # the process that forks workers is older than they are
        for pid in found if victim == "make" else found[:1]:
            os.kill(pid, signal.SIGKILL)
        kills += bool(found)
        if victim != "make":  # whose children live on, and are met by the next make
            make.wait(timeout=900)
            workbook.wait_until_alone()
        if not found:  # everything was done before
            shutil.rmtree(workbook.path / "outputs")
    workbook.finish()
    assert workbook.numbers() == undisturbed


@pytest.mark.long
def test_four_makes_at_once_train_each_run_once(tmp_path, undisturbed):
    workbook = Workbook(tmp_path)
    makes = [(workbook.start(), workbook.log) for _ in range(4)]
    assert [make.wait(timeout=900) for make, _ in makes] == [0] * 4, [Path(log.name).read_text() for _, log in makes]
    said = "".join(Path(log.name).read_text() for _, log in makes)
    assert said.count(f"notebook   {NOTEBOOK} (") == 1 and "set aside" not in said
    assert workbook.numbers() == undisturbed


@pytest.mark.long
@pytest.mark.parametrize("jobs", [0, 2])
@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_a_make_that_is_stopped_ends_at_once_and_goes_on_later(tmp_path, undisturbed, how, jobs):
    workbook = Workbook(tmp_path, jobs)
    make = workbook.start()
    until(workbook.training, running=lambda: make.poll() is None, said=workbook.said)
    before = len(workbook.said())
    if how == "Ctrl-C":
        os.killpg(make.pid, signal.SIGINT)
    else:
        make.send_signal(signal.SIGTERM)
    make.wait(timeout=ENDED)
    workbook.wait_until_alone()
    said = workbook.said()[before:]
    assert "stopped, what was begun goes on" in said and "Traceback" not in said
    lines = [line for line in said.splitlines() if line.strip() and not re.match(r"\d+ runs:", line)]
    assert len(lines) <= 5, said
    workbook.finish()
    assert workbook.numbers() == undisturbed
