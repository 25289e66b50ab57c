"""Faults are made in copies of the workbook, each with its own folder for what tests write."""

import contextlib
import hashlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutants.faults import ROOT


def snapshot(place: Path) -> Path:
    """The working tree as it is now, with its history and with the environment of this process."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    subprocess.run(["git", "clone", "--quiet", "--no-checkout", ROOT, place], check=True)
    for name in names:
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    subprocess.run(["git", "add", "--all"], cwd=place, check=True)
    (place / ".venv").mkdir()
    for entry in Path(sys.prefix).iterdir():
        if not entry.name.startswith(".ready"):
            (place / ".venv" / entry.name).symlink_to(entry)
    (place / ".venv" / ".ready-cpu").touch()  # or make would install into the environment that is linked
    return place


def settled() -> Path:
    """The folder of this text of lib and tests, in the system's for temporary ones; with a snapshot of the workbook."""
    with tempfile.TemporaryDirectory() as new:
        copy = snapshot(Path(new).resolve() / "snapshot")
        files = sorted(path for name in ("lib", "tests") for path in (copy / name).rglob("*") if path.is_file())
        texts = hashlib.sha256(b"".join(str(p.relative_to(copy)).encode() + p.read_bytes() for p in files))
        place = Path(tempfile.gettempdir()).resolve() / f"looped-mutants-{texts.hexdigest()[:12]}"
        place.mkdir(exist_ok=True)
        if not (place / "snapshot").exists():
            shutil.move(copy, place / "snapshot")
    return place


def renewed(place: Path) -> Path:
    """A folder for one who tests: workbook/, a copy of the snapshot beside it, and tmp/, for whatever tests write."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(place.parent / "snapshot", place / "workbook", symlinks=True)
    (place / "tmp").mkdir()
    return place


def environment(place: Path) -> dict[str, str]:
    """What processes find in their environment; TMPDIR also tells them from anybody else's."""
    return {"TMPDIR": str(place / "tmp"), "HYPOTHESIS_STORAGE_DIRECTORY": str(place / "tmp" / "hypothesis")}


def clear(place: Path) -> None:
    """Ends the processes that tests have left behind, and removes what they wrote."""
    mark = f"TMPDIR={place / 'tmp'}\0".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
    shutil.rmtree(place / "tmp", ignore_errors=True)
    (place / "tmp").mkdir(exist_ok=True)


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
