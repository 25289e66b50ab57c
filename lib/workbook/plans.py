"""The runs that a notebook asks for, found out by its own cells up to the one tagged ``plan``; nothing is trained."""

import contextlib
import dataclasses
import io
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import nbformat

from lib.base.errors import InputError
from lib.base.parameters import Computing
from lib.config import RunConfig
from lib.figures import style
from lib.sweep.measurements import Asked
from lib.workbook import parameters, places
from lib.workbook.notebook import Notebook, read_plan


@dataclasses.dataclass(frozen=True)
class Plan:
    """Distinct runs in the notebook's order, and what it measures: function -> key of a case -> its FLOPs, also of what
    was known only when it ran. ``asked``: what it plans to measure from the first, ready to be measured; ``opened``:
    keys of runs whose weights it opens; ``parts``: changes to its parameters with which it can be drawn in part;
    ``seeds``: its lists of seeds."""

    runs: list[RunConfig]
    measurements: dict[str, dict[str, float]]
    asked: list[Asked] = dataclasses.field(default_factory=list, compare=False)
    opened: set[str] = dataclasses.field(default_factory=set, compare=False)
    parts: list[dict[str, Any]] = dataclasses.field(default_factory=list, compare=False)
    seeds: list[list[int]] = dataclasses.field(default_factory=list, compare=False)


def names(profile: str = "") -> list[str]:
    """All notebooks, or those that have parameters at a profile: all of them but at an addendum and a second text."""
    there = {path.stem for path in (places.PARAMS / profile).glob("*.yaml")} if profile else None
    return sorted(path.stem for path in places.NOTEBOOKS.glob("*.ipynb") if there is None or path.stem in there)


def planned(name: str, profile: str, **changes: Any) -> list[RunConfig]:
    """The runs of ``plan``."""
    return plan(name, profile, **changes).runs


def plan(name: str, profile: str, **changes: Any) -> Plan:
    """What a notebook asks for with its parameters at a profile, some of them changed: all of it, also where the
    notebook itself shall only draw what is there.

    Executes its code cells up to the one tagged ``plan``, in this process. They write their plan into the parameter
    ``outputs``, or into a folder that is removed again where ``changes`` do not name one. Texts are read only
    where the parameters do not name their content. Raises InputError for an unknown notebook, profile or parameter, and
    what the cells raise."""
    if name not in names():
        raise InputError(f"name: there is no notebook {name!r}, use one of {', '.join(names())}")
    given = parameters.of_profile(profile, name)
    parameters.check_names(name, changes, given)
    with tempfile.TemporaryDirectory() as forgotten, _undone():
        values = {**given, "outputs": forgotten, **changes, **({"train": True} if "train" in given else {})}
        # notebook.start resolves it from the workbook's root, wherever this process is
        written = places.ROOT / values["outputs"] / "plans" / str(values["profile"]) / f"{name}.json"
        nb = _execute(name, values)
        asked = [Asked(function, case) for function, cases in nb.to_measure for case in cases]
        asked += [Asked(function, case, of_finished=True) for function, cases in nb.may_ask for case in cases]
        plan = Plan([*nb.planned.values()], read_plan(written).get("measurements", {}), asked, nb.opened)
        if isinstance(nb.parameters, Computing):
            seeds = [*nb.parameters.seed_lists().values()]
            plan = dataclasses.replace(plan, parts=nb.parameters.parts(), seeds=seeds)
        return plan


def _execute(name: str, values: dict[str, Any]) -> Notebook:
    """Executes the cells up to the plan in a namespace of their own, and drops what they print."""
    namespace: dict[str, Any] = {}
    for cell in nbformat.read(places.NOTEBOOKS / f"{name}.ipynb", as_version=4).cells:
        if cell.cell_type != "code":
            continue
        tags = cell.metadata.get("tags", [])
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(cell.source, f"{name}.ipynb", "exec"), namespace)
        if "parameters" in tags:
            namespace.update(values)
        if "plan" in tags:
            return next(value for value in namespace.values() if isinstance(value, Notebook))
    raise InputError(f"name: notebook {name!r} has no cell tagged plan, tag the one that calls nb.plan")


@contextlib.contextmanager
def _undone() -> Iterator[None]:
    """Restores, after the block, what a notebook changes in its process: the working directory, the look of figures."""
    here = os.getcwd()
    with style.keeping_style():
        try:
            yield
        finally:
            os.chdir(here)
