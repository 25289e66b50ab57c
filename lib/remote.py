"""Finished runs and checkpoints at a URL, for machines that share no file system: s3://, gs://, abfs://, file:// and
whatever else fsspec knows.

Every machine works in a directory of its own and sends there what is finished. There are neither locks nor renames: a
run is there when its last file is.
"""

import dataclasses
import functools
import os
from pathlib import Path, PurePosixPath

from lib import files
from lib.errors import InputError

LAST = "result.json"


@dataclasses.dataclass(frozen=True)
class Remote:
    """A folder at ``url``."""

    url: str

    @functools.cached_property
    def _place(self):
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

    def __getstate__(self) -> dict:
        return {"url": self.url}  # a connection is made where it is used

    def fetch_run(self, path: Path) -> bool:
        """The finished run that is called like ``path``, put there whole; False where there is none."""
        system, root = self._place
        if not system.exists(f"{root}/{path.name}/{LAST}"):
            return False
        with files.replacing(path) as draft:
            draft.mkdir()
            for name in system.ls(f"{root}/{path.name}", detail=False):
                system.get_file(name, str(draft / PurePosixPath(name).name))
        return True

    def send_run(self, path: Path) -> None:
        """A finished run, unless there is one of its name."""
        system, root = self._place
        if system.exists(f"{root}/{path.name}/{LAST}"):
            return
        for file in sorted(path.iterdir(), key=lambda file: file.name == LAST):
            self.send(file, f"{path.name}/{file.name}")

    def send(self, path: Path, name: str) -> None:
        """One file, under ``name``."""
        system, root = self._place
        system.makedirs(os.path.dirname(f"{root}/{name}"), exist_ok=True)
        system.put_file(str(path), f"{root}/{name}")

    def fetch(self, name: str, path: Path) -> bool:
        """The file of that name, put at ``path``; False where there is none."""
        system, root = self._place
        if not system.exists(f"{root}/{name}"):
            return False
        with files.replacing(path) as draft:
            system.get_file(f"{root}/{name}", str(draft))
        return True

    def remove(self, name: str) -> None:
        system, root = self._place
        if system.exists(f"{root}/{name}"):
            system.rm(f"{root}/{name}")
