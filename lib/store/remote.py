"""Finished runs and checkpoints at a URL, for machines that share no file system: s3://, gs://, abfs://, file:// and
whatever else fsspec knows.

Every machine works in a directory of its own and sends what is finished to the URL. There are neither locks nor renames
there: a run is complete when its last file, LAST, has come.
"""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from lib.base import files
from lib.base.errors import InputError

LAST = "result.json"


@dataclasses.dataclass(frozen=True)
class Remote:
    """A folder at ``url``."""

    url: str

    @functools.cached_property
    def _place(self) -> tuple[Any, str]:
        """The file system and the folder's path in it. Raises InputError where it cannot be reached."""
        import fsspec  # not needed by those whose runs lie on a disk

        try:
            system, root = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
            system.makedirs(root, exist_ok=True)
        except Exception as error:  # every file system has its own
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise InputError(
                f"STORE: {self.url} cannot be reached ({reason}), mend it, or install what fsspec needs for it"
            ) from None
        return system, root

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url}  # a connection is made where it is used

    def fetch_run(self, path: Path) -> bool:
        """Puts the finished run of that name at ``path``, whole; False if there is none."""
        system, root = self._place
        if not self._has(f"{path.name}/{LAST}"):
            return False
        with files.replacing(path) as draft, self._said(f"fetching {path.name}"):
            draft.mkdir()
            for name in system.ls(f"{root}/{path.name}", detail=False):
                if not name.endswith(".tmp"):
                    system.get_file(name, str(draft / PurePosixPath(name).name))
        return True

    def has_run(self, key: str) -> bool:
        return self._has(f"{key}/{LAST}")

    def send_run(self, path: Path) -> None:
        """Sends a finished run, unless there is one of its name."""
        for file in sorted(path.iterdir(), key=lambda file: file.name == LAST):
            if self._has(f"{path.name}/{LAST}"):  # another machine may finish it meanwhile
                return
            self.send(file, f"{path.name}/{file.name}")

    def send(self, path: Path, name: str) -> None:
        """Sends one file, under ``name``."""
        system, root = self._place
        draft = f"{root}/{name}.{os.uname().nodename}-{os.getpid()}.tmp"
        with self._said(f"sending {name}"):
            system.makedirs(os.path.dirname(draft), exist_ok=True)
            system.put_file(str(path), draft)
            system.mv(draft, f"{root}/{name}")  # of an object store a copy; elsewhere what is half-sent has no name

    def fetch(self, name: str, path: Path) -> bool:
        """Puts the file of that name at ``path``; False if there is none."""
        system, root = self._place
        if not self._has(name):
            return False
        with files.replacing(path) as draft, self._said(f"fetching {name}"):
            system.get_file(f"{root}/{name}", str(draft))
        return True

    def remove(self, name: str) -> None:
        system, root = self._place
        if self._has(name):
            with self._said(f"removing {name}"):
                system.rm(f"{root}/{name}")

    def _has(self, name: str) -> bool:
        system, root = self._place
        with self._said(f"looking for {name}"):
            return system.exists(f"{root}/{name}")

    @contextlib.contextmanager
    def _said(self, what: str) -> Iterator[None]:
        """Raises InputError, in one line, for what a file system raises while it does ``what``."""
        try:
            yield
        except Exception as error:  # every file system has its own
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise InputError(f"STORE: {what} at {self.url} failed ({reason}), start again when it is back") from None
