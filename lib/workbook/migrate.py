"""Gives outputs of earlier versions the checksums of today, once.

Files that had a checksum of another form must pass it first. Files that had none are believed this one time. Plans of
the earliest layout, which were lists of keys, are removed: their notebooks write them anew.
"""

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from lib.base import files
from lib.store.runs import CHECKSUMS, DESCRIBED, UNREADABLE, WEIGHTS
from lib.train.loop import read_position, save_checkpoint
from lib.workbook import places
from lib.workbook.records import BESIDE

EARLIER = "sha256"  # the name of the checksum in earlier versions
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
    """Gives everything under ``outputs`` its checksums; returns how many files, runs and records it changed.

    What is damaged stays as it is: whoever reads it names it."""
    changed = sum(_fields(path) for pattern in FIELDS for path in sorted(outputs.glob(pattern)))
    runs = [path.parent for path in sorted(outputs.glob("runs/*/result.json"))]
    changed += sum(_run(folder) for folder in runs if "." not in folder.name)  # not those that are set aside
    changed += sum(_record(path.parent) for path in sorted(outputs.glob(f"records/*/*/{CHECKSUMS}")))
    return changed + sum(_checkpoint(path) for path in sorted(outputs.glob("runs/.*.partial")))


def main(outputs: Path = places.ROOT / "outputs") -> None:
    """``migrate`` for the Makefile."""
    if changed := migrate(outputs):
        print(f"migrated   {changed} files and folders of an earlier version, which have checksums of today's form now")


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
    notes = [_fields(path) for path in sorted(folder.glob("*.json")) if path.name not in BESIDE]
    fields = _earlier(folder / "result.json")
    if fields is not None:
        fields.setdefault("files", {name: files.digest(folder / name) for name in (*DESCRIBED, WEIGHTS)})
        files.write_checked(folder / "result.json", fields)
    return any(notes) or fields is not None


def _record(folder: Path) -> bool:
    sums = _earlier(folder / CHECKSUMS)
    if sums is None or any(files.digest(folder / name) != told for name, told in sums.items()):
        return False
    texts = {name: (folder / name).read_text() for name in sums}
    notes = {name: _earlier(folder / name) for name in sums.keys() - {*BESIDE}}
    texts |= {name: files.sealed(note) for name, note in notes.items() if note is not None}
    texts[CHECKSUMS] = files.sealed({name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()})
    with files.replacing(folder) as draft:
        draft.mkdir()
        for name, text in texts.items():
            (draft / name).write_text(text)
        files.remove(folder)
    return True


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
