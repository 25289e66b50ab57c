"""What a notebook would train, found out from its own cells up to the plan; nothing is trained."""

import contextlib
import dataclasses
import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat

from lib.base.errors import InputError
from lib.config import RunConfig
from lib.figures import style
from lib.workbook.notebook import ROOT, read_parameters, read_plan

NOTEBOOKS = ROOT / "notebooks"


@dataclasses.dataclass(frozen=True)
class Plan:
    """Distinct runs in the notebook's order; and function -> key of a case -> FLOPs of what it would measure without
    any run being there. What is measured on runs is known only when they are."""

    runs: list[RunConfig]
    measurements: dict[str, dict[str, float]]


def names() -> list[str]:
    """Every notebook, by its file's name."""
    return sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


def planned(name: str, profile: str, **changes: Any) -> list[RunConfig]:
    """The distinct runs that a notebook plans for a profile, in its order; see ``plan``."""
    return plan(name, profile, **changes).runs


def plan(name: str, profile: str, **changes: Any) -> Plan:
    """Executes the notebook's code cells up to the one tagged ``plan``, with params/<profile>/<name>.yaml and
    ``changes`` put in as papermill would, and reads the plan that they write into ``outputs``, a folder that is
    forgotten where changes do not name one.

    Needs the texts that the profile names neither here nor on a network, if they are named by their content. Raises
    InputError for an unknown notebook, profile or parameter, and what the cells raise."""
    if name not in names():
        raise InputError(f"name: there is no notebook {name!r}, use one of {', '.join(names())}")
    parameters = read_parameters(profile, name)
    for change in changes:
        if change not in parameters:
            raise InputError(f"{change}: is not a parameter of {name}, use one of {', '.join(parameters)}")
    with tempfile.TemporaryDirectory() as forgotten, _undone():
        values = {**parameters, "outputs": forgotten, **changes}
        # where notebook.start resolves it: from the workbook, not from here
        written = ROOT / values["outputs"] / "plans" / str(values["profile"]) / f"{name}.json"
        _execute(name, values)
        return read(written)


def read(path: Path) -> Plan:
    """The plan that a notebook wrote last (``Notebook.plan``); an empty one where there is none that can be read."""
    found = read_plan(path)
    return Plan([RunConfig(**fields) for fields in found.get("runs", {}).values()], found.get("measurements", {}))


def _execute(name: str, values: dict[str, Any]) -> None:
    """The cells up to the plan in a namespace of their own, without a word."""
    namespace: dict[str, Any] = {}
    for cell in nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4).cells:
        if cell.cell_type != "code":
            continue
        tags = cell.metadata.get("tags", [])
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(cell.source, f"{name}.ipynb", "exec"), namespace)
        if "parameters" in tags:
            namespace.update(values)
        if "plan" in tags:
            return
    raise InputError(f"name: notebook {name!r} has no cell tagged plan, tag the one that calls nb.plan")


@contextlib.contextmanager
def _undone() -> Iterator[None]:
    """What a notebook does to its process, the working directory and the look of figures, ends with the block."""
    here = os.getcwd()
    with style.keeping_style():
        try:
            yield
        finally:
            os.chdir(here)
