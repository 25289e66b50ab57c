"""A file that is cut, emptied or has a flipped bit is named, and made again or refused.

That each module finds its own damaged files is for that module's tests; these go through files of every kind.
"""

import shutil
from pathlib import Path

import pytest

from lib.base import files
from lib.base.errors import InputError
from lib.store import records
from lib.store.runs import UNREADABLE, RunStore
from lib.sweep.measurements import Asked
from lib.train import checkpoints
from lib.train.loop import train
from lib.workbook import claims
from lib.workbook.plans import read_plan
from tests.cases import Case, squared
from tests.kinds import KINDS, a_checkpoint, a_finding, a_measurement
from tests.runs import small_run
from tests.workbooks import a_notebook

# ---- a file of every kind, damaged -----------------------------------------------------------------------------------


def flipped(raw: bytes, at: int) -> bytes:
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


DAMAGE = {
    "cut": lambda raw: raw[: len(raw) // 2],
    "emptied": lambda raw: b"",
    "a bit of its header": lambda raw: flipped(raw, 8),
    "a bit in its middle": lambda raw: flipped(raw, len(raw) // 2),
    "a bit at its end": lambda raw: flipped(raw, len(raw) - 1),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_named_and_made_again_or_refused(tmp_path, capfd, kind):
    folder, whole = tmp_path / "used", tmp_path / "whole"
    path, use = KINDS[kind](folder)
    shutil.copytree(folder, whole)
    expected = use()
    for name, damage in DAMAGE.items():
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
        said = capfd.readouterr().out + complaint
        assert path.name.lstrip(".") in said, f"{name}: {said}"


# ---- every bit of a file ---------------------------------------------------------------------------------------------


def plan_of_one_run(folder):
    a_notebook("a", folder).plan({("one",): small_run()})
    path = folder / "plans" / "cpu" / "a.json"
    return [path], lambda path: read_plan(path)


def measured_case(folder):
    path, _ = a_measurement(folder)
    return [path], lambda path: Asked(squared, Case(x=1.5)).found(RunStore(folder / "runs"))


def one_finding(folder):
    path, _ = a_finding(folder)
    return [path], claims.read


def whole_run(folder):
    """All of it but the weights, which are checked where they are used."""
    cfg, store = small_run(train={"steps": 2}), RunStore(folder / "runs")
    path = train(cfg, store).path
    return [path / name for name in ("config.json", "metrics.json", "result.json")], lambda path: store.find(cfg)


def whole_record(folder):
    cfg, store = small_run(train={"steps": 2}), RunStore(folder / "runs")
    records.add(folder / "records", [train(cfg, store)], [])

    return sorted((folder / "records").rglob("*.parquet/*")), lambda path: records.Records(path.parents[1], [path.stem])


def header(folder):
    """Of a checkpoint: all in front of its tensors. One that cannot be loaded is set aside, with the reason."""
    path, _ = a_checkpoint(folder, model={"width": 4, "heads": 1, "mlp_width": 4})

    def load(path):
        try:
            checkpoints.load(path)
        except UNREADABLE as error:
            raise InputError(f"{path.name}: {error}") from None

    return [path], load


EVERYTHING = {
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
    monkeypatch.setattr(files, "set_aside", lambda path: path)
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
    every = 1 if kind == "finding" else 61
    assert bits_that_pass(EVERYTHING[kind], tmp_path, capfd, monkeypatch, every) == []


@pytest.mark.long
@pytest.mark.parametrize("kind", EVERYTHING)
def test_no_bit_at_all_is_flipped_unnoticed(tmp_path, capfd, monkeypatch, kind):
    every = 7 if kind == "record" else 1  # a part is large, and known by one hash of all its bytes
    assert bits_that_pass(EVERYTHING[kind], tmp_path, capfd, monkeypatch, every) == []
