"""Runs cells of a notebook on made-up frames: what decides a verdict may stand there, and is tested like the rest."""

import ast
import contextlib
from types import SimpleNamespace
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

from lib.sweep import measurements
from tests.made import cells
from tests.workbooks import ROOT


class Said:
    """In the place of ``nb``: keeps the numbers of claims and the tables, and closes figures."""

    def __init__(self, store: Any = None, parameters: Any = None) -> None:
        self.store, self.parameters = store, parameters
        self.claims: dict[str, Any] = {}
        self.tables: dict[str, Any] = {}

    def claim(self, id: str, values: Any, *rest: Any, **more: Any) -> None:
        self.claims[id] = values

    def save_table(self, table: Any, name: str, **how: Any) -> Any:
        self.tables[name] = table
        return table

    def save(self, *figure: Any) -> None:
        plt.close("all")

    def slide(self, *figure: Any, **sliders: Any) -> None:
        """Nothing is moved."""

    def need(self, holds: bool, otherwise: str) -> None:
        assert holds, otherwise

    def plan(self, configs: Any) -> None:
        """Nothing is trained."""

    def will_measure(self, function: Any, cases: Any) -> None:
        """Nothing is noted."""

    def measure(self, function: Any, cases: Any) -> Any:
        return measurements.measure(function, cases, self.store)

    def verdicts(self, findings: Any) -> None:
        """Nothing is shown."""


def _imports(name: str, names: dict[str, Any]) -> list[str]:
    """Executes a notebook's imports; returns the sources of its cells."""
    sources = [cell.source for cell in cells(name)]
    found = [node for source in sources for node in ast.parse(source).body]
    imports: list[ast.stmt] = [node for node in found if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(imports, []), name, "exec"), names)
    return sources


def run(name: str, *begins: str, p: Any = None, **given: Any) -> SimpleNamespace:
    """What the cells that ``begins`` name by the begin of one of their lines leave, with the notebook's imports and
    what is ``given`` in the place of what the other cells compute; ``said`` is what they reported. ``p``: the
    notebook's parameters."""
    parameters = SimpleNamespace(**p) if isinstance(p, dict) else p
    names = {"nb": Said(parameters=parameters), "p": parameters, "display": lambda *shown: None, **given}
    sources = _imports(name, names)
    for begin in begins:
        (source,) = (source for source in sources if any(line.startswith(begin) for line in source.splitlines()))
        exec(compile(source, name, "exec"), names)
    return SimpleNamespace(**{**names, "said": names["nb"]})


def whole(name: str, given: dict[str, Any]) -> None:
    """All cells of a notebook, with these parameters."""
    names: dict[str, Any] = {"display": lambda *shown: None}
    with contextlib.chdir(ROOT), mpl.rc_context():
        for cell in cells(name):
            exec(compile(cell.source, name, "exec"), names)
            if "parameters" in cell.metadata.get("tags", []):
                names.update(given)


def function(name: str, wanted: str, **given: Any) -> Any:
    """A function that stands in one of a notebook's cells, with what is ``given`` for what it reads there."""
    names = {**given}
    sources = _imports(name, names)
    for node in (node for source in sources for node in ast.parse(source).body):
        if isinstance(node, ast.FunctionDef) and node.name == wanted:
            exec(compile(ast.Module([node], []), name, "exec"), names)
    return names[wanted]
