"""What has not changed is not made again: a mark beside what was made keeps a checksum of it, and of what it was made
from.

Dates would not do: clocks are set back, and copied files bring their own.
"""

import functools
import hashlib
import platform
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from lib.base import files

MARK = ".from"  # how the name of a mark ends


def checksum(paths: Iterable[Path], *beside: str) -> str:
    """Of the files at ``paths``, and in folders there, with their places, and of what else decides."""
    total = hashlib.sha256("\0".join(beside).encode())
    for path in paths:
        for file in [path, *sorted(path.rglob("*"))]:
            if file.is_file() and not passes(file):
                total.update(f"\n{file}\0{files.digest(file)}".encode())
    return total.hexdigest()


def passes(file: Path) -> bool:
    """Whether a file comes and goes and decides nothing: marks, locks, drafts, caches."""
    return file.name.endswith((MARK, ".lock", ".tmp")) or not {"__pycache__", ".ipynb_checkpoints"}.isdisjoint(
        file.parts
    )


@functools.cache
def packages() -> str:
    """This Python, and the packages that are installed beside it."""
    folders = {Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")}
    found = sorted(path.stem for folder in folders for path in folder.glob("*.dist-info"))
    return " ".join([platform.python_version(), *found])


def unchanged(mark: Path, sources: str, made: Iterable[Path]) -> bool:
    """Whether ``made`` is as it was when ``note`` marked it, from the same ``sources`` (their ``checksum``)."""
    return mark.exists() and mark.read_text(encoding="utf-8") == checksum(made, sources)


def note(mark: Path, sources: str, made: Iterable[Path]) -> None:
    """Marks what was made. ``sources`` are as they were before they were read: what has changed since is read again."""
    with files.replacing(mark) as draft:
        draft.write_text(checksum(made, sources), encoding="utf-8")
