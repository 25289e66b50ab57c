"""Gives outputs of earlier versions the form of today, once.

Files that had a checksum of another form must pass it first. Files that had none are believed this one time. Records,
which were a directory a run, become a part of their profile's tables. Plans of the earliest layout, which were lists of
keys, are removed: their notebooks write them anew; so are losses by depth that were noted beside a run with weights.
"""

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from lib.base import files
from lib.config import RunConfig
from lib.store import records
from lib.store.records import Measured
from lib.store.result import RunResult
from lib.store.runs import DESCRIBED, UNREADABLE, WEIGHTS, RunStore
from lib.sweep import measurements
from lib.sweep.finished import OfRun, at_depths, losses_by_depth
from lib.train.loop import read_position, save_checkpoint
from lib.workbook import data_card, places

EARLIER = "sha256"  # the name of the checksum in earlier versions
CHECKSUMS = "checksums.json"  # file -> SHA-256 of what a record's directory held
NOTES = ("depth_losses.json", "increments.json")  # what was measured on a run lay beside it
#: files that hold nothing but fields and their checksum
FIELDS = (
    "claims/*/*.json",
    "plans/*/*.json",
    "measured/*/*.json",
    "records/*/measured/*/*.json",
    "tokens/**/meta.json",
    "tokens/**/state.json",
)


def migrate(outputs: Path) -> int:
    """Gives everything under ``outputs`` today's form; returns how many files, runs and records it changed.

    What is damaged stays as it is: whoever reads it names it."""
    changed = sum(_fields(path) for pattern in FIELDS for path in sorted(outputs.glob(pattern)))
    runs = [path.parent for path in sorted(outputs.glob("runs/*/result.json"))]
    changed += sum(_run(folder) for folder in runs if "." not in folder.name)  # not those that are set aside
    changed += sum(_records(folder) for folder in sorted(outputs.glob("records/*")) if folder.is_dir())
    return changed + sum(_checkpoint(path) for path in sorted(outputs.glob("runs/.*.partial")))


def main(outputs: Path = places.ROOT / "outputs") -> None:
    """``migrate`` for the Makefile."""
    if changed := migrate(outputs):
        print(f"migrated   {changed} files and folders of an earlier version, which have today's form now")


def _earlier(path: Path) -> Any:
    """The content of a file of an earlier version, without its checksum; None for one of today and a damaged one."""
    with contextlib.suppress(ValueError):
        return files.read_checked(path) and None
    with contextlib.suppress(ValueError):
        said = files.read_json(path)
        told = said.pop(EARLIER, None) if isinstance(said, dict) else None
        # it was taken over the other fields, sorted by name
        if told in (None, hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()):
            return said
    return None


def _fields(path: Path) -> bool:
    fields = _earlier(path)
    if isinstance(fields, dict):
        files.write_checked(path, fields)
    elif fields is not None:
        path.unlink()
    return fields is not None


def _run(folder: Path) -> bool:
    notes = [folder / name for name in NOTES if (folder / name).exists()]
    for note in notes:
        files.remove(note)
    fields = _earlier(folder / "result.json")
    if fields is not None:
        fields.setdefault("files", {name: files.digest(folder / name) for name in (*DESCRIBED, WEIGHTS)})
        files.write_checked(folder / "result.json", fields)
    return bool(notes) or fields is not None


def _records(folder: Path) -> int:
    """Makes one part of a profile's directories and files of measurements, and removes them; damaged ones stay."""
    runs: list[RunResult] = []
    measured: list[Measured] = []
    read: list[Path] = []
    for path in sorted(folder.glob(f"*/{CHECKSUMS}")):
        with contextlib.suppress(*UNREADABLE):
            run, noted = _record(path.parent)
            runs += [run]
            measured += noted
            read += [path.parent]
    for path in sorted(folder.glob("measured/*/*.json")):
        with contextlib.suppress(*UNREADABLE):
            measured += [measurements.read(path)]
            read += [path]
    if read:
        records.add(folder, runs, measured)
        data_card.write(folder, folder.name)
    for path in read:
        files.remove(path)
    for path in sorted((folder / "measured").rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    if (folder / "measured").is_dir() and not any((folder / "measured").iterdir()):
        (folder / "measured").rmdir()
    return len(read)


def _record(folder: Path) -> tuple[RunResult, list[Measured]]:
    """A record that was a directory, and what was noted in it. Raises one of UNREADABLE where it is damaged."""
    sums = _earlier(folder / CHECKSUMS) or files.read_checked(folder / CHECKSUMS)
    if any(files.digest(folder / name) != told for name, told in sums.items()):
        raise ValueError("it has changed since it was written")
    config = RunConfig(**files.read_json(folder / "config.json"))
    if config.key != folder.name:  # of another recipe, say
        raise ValueError(f"config.json belongs to run {config.key}")
    said, columns = files.read_json(folder / "result.json"), files.read_json(folder / "metrics.json")["columns"]
    run = RunResult(config, said["status"], said["summary"], columns, said["provenance"])
    notes = {name: files.read_json(folder / name) for name in NOTES if name in sums}
    store = RunStore(folder.parent)
    measured: list[Measured] = []
    for seed, losses in notes.get("depth_losses.json", {}).items():
        if isinstance(losses, dict):  # and not the checksum
            (case,) = at_depths([config], store, map(int, losses), int(seed))
            measured.append(_measured(measurements.name(losses_by_depth), case, losses, run))
    if found := notes.get("increments.json"):
        found = {name: value for name, value in found.items() if isinstance(value, list)}
        measured.append(_measured("lib.papers.residual.increments", OfRun.of(config, store, 0.0), found, run))
    return run, measured


def _measured(function: str, case: OfRun, found: dict[str, Any], run: RunResult) -> Measured:
    return Measured(function, measurements.key(case), case.model_dump(mode="json"), found, run.provenance)


def _checkpoint(path: Path) -> bool:
    with contextlib.suppress(*UNREADABLE):
        position, tensors = read_position(path), safetensors.torch.load_file(path)
        if position.pop(EARLIER) == _digest(tensors):
            with files.replacing(path) as draft:
                save_checkpoint(tensors, position, draft)
            return True
    return False


def _digest(tensors: dict[str, torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].cpu().numpy().tobytes())
    return digest.hexdigest()
