"""Whether a notebook has to run again: what its result depends on has changed since it ran.

That is the notebook and its parameters, and those of the notebooks whose parameters it reads; the modules of lib that
it imports, directly or not, and the data beside them; the ledger; the installed packages; and the parts of the records
that its profile draws from, which never change and come and go whole.

A mark, .<name>.done beside a notebook's executed copy, says what that was made from.
"""

import ast
import functools
import json
import re
from collections.abc import Sequence
from pathlib import Path

import grimp

import lib
from lib.base import files
from lib.workbook import made_from, parameters, places


class Now:
    """What the notebooks ``names`` are made from at a profile, as it is when this is asked."""

    def __init__(self, profile: str, names: Sequence[str], outputs: Path):
        self.profile, self.folder = profile, outputs / "notebooks" / profile
        graph = grimp.build_graph("lib", cache_dir=None, exclude_type_checking_imports=True)
        imported = {name: imports(places.NOTEBOOKS / f"{name}.ipynb") for name in names}
        #: notebook -> the modules of lib that count for it
        self.modules = {name: modules(graph, imported[name]) for name in names}
        parts = sorted(str(path) for folder in places.records(profile) for path in folder.glob("*/*.*"))
        digest = functools.cache(files.digest)  # most modules count for most notebooks
        self._sources = {}
        for name in names:
            paths = [places.LEDGER]
            for one in [name, *sorted(others(imported[name]))]:
                paths += [places.NOTEBOOKS / f"{one}.ipynb", *parameters.files(profile, one)]
            paths += [file for module in sorted(self.modules[name]) for file in _files(module)]
            digests = [f"{path} {digest(path)}" for path in paths if path.exists()]
            self._sources[name] = made_from.checksum([], made_from.packages(), *parts, *digests)

    def fresh(self, name: str) -> bool:
        """Whether a notebook's mark says that it ran on all this."""
        return made_from.unchanged(self.mark(name), self._sources[name], [])

    def mark(self, name: str) -> Path:
        return self.folder / f".{name}.done"

    def done(self, name: str, drawn: bool = True) -> None:
        """Marks a notebook that has run; ``drawn``: unless there was nothing to draw, when it is asked again."""
        made_from.note(self.mark(name), self._sources[name] if drawn else "nothing", [])


def _files(module: str) -> list[Path]:
    """A module, the C beside it, and its package's tables."""
    path = Path(lib.__file__).parent.joinpath(*module.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return sorted({path, *path.parent.glob("*.c"), *path.parent.glob("data/*.csv")})


# ---- what is imported ------------------------------------------------------------------------------------------------


def modules(graph: grimp.ImportGraph, imported: set[str] | None) -> set[str]:
    """The modules of lib that are imported with these: all that those import in turn, also inside functions, and the
    packages that they are in. All there are where ``imported`` is not known."""
    found: set[str] = set()
    todo = graph.modules if imported is None else graph.modules & imported
    while todo:
        module = todo.pop()
        found.add(module)
        packages = {module[: at.start()] for at in re.finditer(r"\.", module)}
        todo |= (graph.find_modules_directly_imported_by(module) | packages) - found
    return found


def imports(notebook: Path) -> set[str] | None:
    """What a notebook's cells import, modules and names from them; None where not all of them are Python alone."""
    found = set()
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        try:
            tree = ast.parse("".join(cell["source"]) if cell["cell_type"] == "code" else "")
        except SyntaxError:
            return None
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def others(imported: set[str] | None) -> set[str]:
    """The notebooks whose parameters a notebook can read: it imports their classes, which are called as they are."""
    classes = [name.rpartition(".")[2] for name in imported or () if ".parameters." in name]
    return {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in classes}
