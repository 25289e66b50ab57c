"""Files that are either whole or not there: written beside their place and renamed."""

import contextlib
import errno
import fcntl
import json
import multiprocessing
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from lib.errors import DiskFull


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a name beside ``path`` to write to; when the block succeeds, it takes the place of ``path``.

    The name may become a file, or a directory where there is none yet. A block that fails, or a disk that fills up,
    leaves ``path`` as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.uname().nodename}-{os.getpid()}.tmp")
    remove(draft)
    try:
        with disk_full_says(path):
            yield draft
            for file in [draft, *draft.rglob("*")] if draft.is_dir() else [draft]:
                _sync(file)
            os.replace(draft, path)
            _sync(path.parent)
    finally:
        remove(draft)


@contextlib.contextmanager
def disk_full_says(path: Path) -> Iterator[None]:
    """Turns a full disk, or a quota, into one line. numpy and safetensors report it without an errno."""
    try:
        yield
    except Exception as error:
        by_number = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        by_text = re.search(r"os error (28|122|27)\b|\d+ requested and \d+ written", str(error))
        if by_number or by_text:
            raise DiskFull(
                f"no space left while writing {path}: free some and start again, nothing half-written was kept"
            ) from None
        raise


def write_json(path: Path, value) -> None:
    with replacing(path) as draft:
        draft.write_text(json.dumps(value, indent=1) + "\n")


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def lock(path: Path, wait: bool = True) -> Iterator[bool]:
    """One process at a time. The kernel lets go of the lock when its holder dies, however it dies.

    Yields whether the lock is held, which without ``wait`` it is not where somebody else holds it.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        # it imports the script that started it, which may hold the lock and wait for it in turn
        raise RuntimeError("a process is starting that runs the script anew: put it under if __name__ == '__main__'")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = True
        except BlockingIOError:
            held = False
        yield held


def set_aside(path: Path, beside: Path | None = None) -> Path:
    """Moves something that cannot be trusted out of the way, under a name that says so; beside a folder that it is
    in, where that is given."""
    name = path.name if beside is None else f"{beside.name}-{path.name}"
    for number in range(1, 1000):
        aside = (beside or path).with_name(f"{name.lstrip('.')}.corrupt-{number}")
        if not aside.exists():
            os.replace(path, aside)
            return aside
    raise FileExistsError(f"{aside.parent} holds 1000 corrupt copies of {path.name}, remove them")
