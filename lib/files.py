"""Files that are either whole or not there: written beside their place and renamed."""

import contextlib
import errno
import fcntl
import json
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
def lock(path: Path) -> Iterator[None]:
    """One process at a time. The kernel lets go of the lock when its holder dies, however it dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def set_aside(path: Path) -> Path:
    """Moves something that cannot be trusted out of the way, under a name that says so."""
    for number in range(1, 1000):
        aside = path.with_name(f"{path.name.lstrip('.')}.corrupt-{number}")
        if not aside.exists():
            os.replace(path, aside)
            return aside
    raise FileExistsError(f"{path.parent} holds 1000 corrupt copies of {path.name}, remove them")
