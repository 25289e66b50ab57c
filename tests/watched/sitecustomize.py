"""What every Python process does that has this folder in its PYTHONPATH, as those have that tests start.

It refuses to write to the workbook's own outputs. ``precision: auto`` comes to what AUTO_PRECISION says, where it says
anything. It is bf16-mixed where a machine has the instructions and fp32 elsewhere: this is how the tests see both on
any machine. Without the instructions bf16 is emulated, slower and to the same accuracy.
"""

import importlib.abc
import importlib.machinery
import os
import sys

OUTPUTS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "outputs")
RECORDS = os.path.join(OUTPUTS, "records")
CHANGES = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate")


class Precision(importlib.abc.MetaPathFinder):
    """Loads lib.config, with another answer to what this machine's precision is."""

    def find_spec(self, name, path, target=None):
        if name != "lib.config":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        load = spec.loader.exec_module

        def loaded(module):
            load(module)
            module.native_precision = lambda: os.environ["AUTO_PRECISION"]

        spec.loader.exec_module = loaded
        return spec


def own(path: object) -> bool:
    """Whether a path lies in what this workbook made, or in its committed records, but for what explains these, who
    asks for them and what they say."""
    if not isinstance(path, str | os.PathLike):
        return False
    path = os.path.abspath(path)
    if path.startswith(f"{RECORDS}{os.sep}") and os.path.basename(path) in (
        "README.md",
        "index.parquet",
        "verdicts.json",
    ):
        return False
    return isinstance(path, str) and path.startswith(f"{OUTPUTS}{os.sep}")


def refuse_writing(event: str, arguments: tuple) -> None:
    """Reading is refused to the process of the tests alone (tests/conftest.py)."""
    if event == "open":
        path, _, flags = arguments
        if not flags & (os.O_WRONLY | os.O_RDWR) or not own(path):
            return
    elif event not in CHANGES or not any(map(own, arguments[:2])):
        return
    raise RuntimeError(f"a test's process writes to the workbook's own outputs: {event} {arguments[0]}")


def begin() -> None:
    """In a process of the tests: before anybody loads lib.config, and without a grammar that takes a second to load and
    that lib.workbook.make_notebooks does without as well."""
    if os.environ.get("AUTO_PRECISION"):
        sys.meta_path.insert(0, Precision())
    sys.modules.setdefault("rfc3987_syntax", None)


if __name__ == "sitecustomize" and "WATCHED" in os.environ:
    begin()
    sys.addaudithook(refuse_writing)
