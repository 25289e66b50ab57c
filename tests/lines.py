"""What somebody is told who gave something bad, one line with the field and the remedy, and what a folder holds."""

import contextlib

import pytest

from lib.base.errors import InputError


def in_one_line(line: str, *words: str, starts: str = "") -> None:
    """It is one, begins so and has all of these words."""
    assert line and len(line.splitlines()) == 1
    assert line.startswith(starts), line
    assert [word for word in words if word not in line] == [], line


@contextlib.contextmanager
def one_line(*words: str, starts: str = ""):
    """What is inside raises InputError, and its text is one line with these words."""
    with pytest.raises(InputError) as error:
        yield
    in_one_line(str(error.value), *words, starts=starts)


def everything(folder) -> dict:
    """What lies in a folder: path -> contents, without the locks and stamps of processes that looked."""
    return {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file() and p.suffix != ".lock"}
