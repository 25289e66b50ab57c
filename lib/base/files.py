"""Files that are either whole or not there: written beside their place and renamed; and checksums of what they say."""

import contextlib
import errno
import fcntl
import glob
import hashlib
import itertools
import json
import multiprocessing
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError

from lib.base.errors import DiskFull, InputError

CHECKSUM = "checksum"  # the last field of a JSON file: the SHA-256 of all bytes in front of it
SEAL = f'"{CHECKSUM}": "'.encode()
UNREADABLE = (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError)  # what reading raises then
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
UNABLE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)  # of a file system that has no fsync


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a name beside ``path`` to write to; when the block succeeds, it takes the place of ``path``.

    The name may become a file, or a directory where there is none yet. A block that fails, or a disk that fills up,
    leaves ``path`` as it was. Raises DiskFull, and InputError for a folder that cannot be written to.
    """
    need_folder(path.parent)
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
def replacing_together(*paths: Path) -> Iterator[list[Path]]:
    """``replacing`` for files of one folder that belong together. One process at a time writes to the folder, so that
    all files come from the one that finished last, never some of each; what a killed one began goes."""
    with lock(paths[0].parent / ".lock"), contextlib.ExitStack() as stack:
        for path in paths:
            for draft in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
                remove(draft)
        yield [stack.enter_context(replacing(path)) for path in paths]


@contextlib.contextmanager
def disk_full_says(path: Path) -> Iterator[None]:
    """Raises DiskFull, in one line, for a disk or a quota that is full. numpy and safetensors report these without an
    errno."""
    try:
        yield
    except Exception as error:
        by_number = getattr(error, "errno", None) in FULL
        if by_number or re.search(r"os error (28|122|27)\b|\d+ requested and \d+ written", str(error)):
            raise DiskFull(
                f"no space left while writing {path}: free some and start again, nothing half-written was kept"
            ) from None
        raise


def need_folder(path: Path) -> None:
    """Makes a folder where there is none. Raises InputError where it cannot be written to, DiskFull, in one line."""
    with disk_full_says(path):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if error.errno in FULL:
                raise
    if not os.access(path, os.W_OK | os.X_OK):  # also on a file system that is mounted to be read
        raise InputError(f"outputs: {path} cannot be written to, choose another place, or change its rights")


def write(path: Path, content: bytes) -> None:
    """Writes a file as a whole."""
    with replacing(path) as draft:
        draft.write_bytes(content)


def write_checked(path: Path, fields: dict[str, Any]) -> None:
    """JSON with a checksum as its last field, for ``read_checked``."""
    write(path, sealed(fields).encode())


def read_checked(path: Path) -> dict[str, Any]:
    """The fields of a JSON file, without their checksum. Raises OSError, or ValueError where it is not what was
    written."""
    raw = path.read_bytes()
    text, mark, end = raw.rpartition(SEAL)
    if not mark or end.decode() != f'{hashlib.sha256(text).hexdigest()}"\n}}\n':
        raise ValueError(f"{path.name} has changed since it was written")
    fields: dict[str, Any] = json.loads(raw)
    del fields[CHECKSUM]
    return fields


def sealed(fields: dict[str, Any]) -> str:
    """The text of such a file. Its checksum is one of bytes, so that it also tells 1e-3 from 1E-3."""
    text, mark, end = json.dumps({**fields, CHECKSUM: ""}, indent=1).rpartition(SEAL.decode())
    return f"{text}{mark}{hashlib.sha256(text.encode()).hexdigest()}{end}\n"


def json_object(text: str | bytes) -> dict[str, Any]:
    """The fields of an object of somebody else's JSON. Raises ValueError, also for what nests beyond all measure, for a
    name that is there twice and for numbers that are none."""
    try:
        found = json.loads(text, object_pairs_hook=_each_once, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it nests beyond all measure") from None
    if not isinstance(found, dict):
        raise ValueError("it is no object with fields")
    return found


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len({*names}) < len(names):
        raise ValueError(f"{max(names, key=names.count)} is there twice")
    return dict(pairs)


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


def need_file(field: str, path: Path) -> None:
    """Raises InputError where there is no file: who opens a pipe waits without end."""
    if not os.path.isfile(path):
        raise InputError(
            f"{field}: {path} {'is no file' if os.path.exists(path) else 'does not exist'}, check the path"
        )


def digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in UNABLE:  # where it knows how
            raise
    finally:
        os.close(handle)


@contextlib.contextmanager
def lock(path: Path, wait: bool = True, stays: bool = True) -> Iterator[bool]:
    """Lets one process at a time into the block. The kernel releases the lock when its holder dies, however it dies.

    Yields whether this process holds the lock: without ``wait`` it does not if another one does. A file that does not
    stay is removed by its holder.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        # it imports the script that started it, which may hold the lock and wait for it in turn
        raise RuntimeError("a process is starting that runs the script anew: put it under if __name__ == '__main__'")
    need_folder(path.parent)
    while True:
        with disk_full_says(path):
            file = path.open("w", encoding="utf-8")
        with file:
            held = False
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = True
            if held and not _still_there(file, path):
                continue  # its last holder has removed it, and another may have made it anew
            try:
                yield held
            finally:
                if held and not stays:
                    path.unlink(missing_ok=True)
            return


def _still_there(file: IO[str], path: Path) -> bool:
    """Whether an open file is the one of that name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def set_aside_if_unreadable(path: Path, what: str, made: str) -> Iterator[None]:
    """Sets aside what the block cannot read, and says so; it is then made again, by somebody who may write there."""
    try:
        yield
    except UNREADABLE as error:
        done = (
            f"set aside as {set_aside(path).name}, to be {made} again"
            if os.access(path.parent, os.W_OK | os.X_OK)
            else f"to be {made} again by somebody who may write to {path.parent}"
        )
        print(f"{what} {path.name} cannot be read ({error}): {done}")


def set_aside(path: Path) -> Path:
    """Moves what cannot be trusted out of the way, under a name that says so."""
    places = (path.with_name(f"{path.name.lstrip('.')}.corrupt-{number}") for number in itertools.count(1))
    aside = next(place for place in places if not place.exists())
    os.replace(path, aside)
    return aside
