"""Whether a notebook has to run again: what its result depends on has changed since it ran.

That is the notebook and its parameters, and those of the notebooks whose parameters it reads; the modules of lib that
it imports, directly or not, and the data beside them; the ledger's entries that it reports; the packages of the locks,
as they are installed; and what the records say of the runs and measurements that it planned. Dates do not count: clocks
are set back, and copied files bring their own.

A mark, .<name>.done beside a notebook's executed copy, says what that was made from.
"""

import ast
import collections
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import grimp
import yaml

import lib
from lib.base import files
from lib.base.errors import InputError
from lib.workbook import made_from, parameters, places

# ---- modules ---------------------------------------------------------------------------------------------------------

COMPUTING = ("lib.model", "lib.train", "lib.data", "lib.decode", "lib.tasks")  # rooms
#: what imports what for nothing where nothing is trained: a sweep, to train and to measure; and a layer, whose
#: constants ``lib.flops`` needs: a model that runs reaches the kernels by its head
IDLE = (*(("lib.sweep", room) for room in COMPUTING), ("lib.model.layers", "lib.kernels"))
FACES = ("lib.model", "lib.train", "lib.sweep")  # offer what computes beside what does not


def modules(graph: grimp.ImportGraph, imported: Iterable[str], trains: bool) -> set[str]:
    """The modules of lib that count for what imports these: all that those import in turn, also inside functions, and
    their packages' faces. Where nothing is trained, without what is only there for it: IDLE imports, and FACES but
    where something is imported from them. What a paper's modules import themselves counts in any case."""
    found: set[str] = set()
    todo = set(imported)
    while todo:
        module = todo.pop()
        found.add(module)
        followed = {face for face in _faces(module) if trains or face not in FACES}
        for other in graph.find_modules_directly_imported_by(module):
            if trains or not any(_within(module, one) and _within(other, two) for one, two in IDLE):
                followed.add(other)
        todo |= followed - found
    return found.union(*map(_faces, found))


def _faces(module: str) -> set[str]:
    parts = module.split(".")
    return {".".join(parts[:n]) for n in range(1, len(parts))}


def _within(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def _files(module: str) -> list[Path]:
    """A module, the C beside it, and its package's tables."""
    path = Path(lib.__file__).parent.joinpath(*module.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return sorted({path, *path.parent.glob("*.c"), *path.parent.glob("data/*.csv")})


# ---- all but the records ---------------------------------------------------------------------------------------------


class Now:
    """What the notebooks ``names`` are made from at a profile, as it is when this is asked."""

    def __init__(self, profile: str, names: Sequence[str], outputs: Path):
        self.profile, self.folder = profile, outputs / "notebooks" / profile
        self._plans, self._records = outputs / "plans" / profile, places.records(profile)
        self._parts = sorted(path.name for place in ("runs.parquet", "weights") for path in self._of(place))
        self._graph = grimp.build_graph("lib", cache_dir=None, exclude_type_checking_imports=True)
        self.imports = {name: imports(places.NOTEBOOKS / f"{name}.ipynb") for name in names}
        self._made_from = {name: self._sources(name) for name in names}

    def _of(self, place: str) -> Iterable[Path]:
        return (path for folder in self._records for path in (folder / place).glob("*.*"))

    def modules(self, name: str) -> set[str]:
        """The modules of lib that count for a notebook."""
        imported = self.imports[name]
        known = self._graph.modules
        return (
            known if imported is None else modules(self._graph, imported & known, self._given(name).get("train", False))
        )

    def _given(self, name: str) -> dict[str, Any]:
        """A notebook's parameters; of those that cannot be read, which it will say itself, the safest."""
        try:
            return parameters.of_profile(self.profile, name)
        except InputError:
            return {"train": True}

    def _sources(self, name: str) -> str:
        read = [name, *sorted(others(self.imports[name]))]
        own = [places.NOTEBOOKS / f"{one}.ipynb" for one in read]
        own += [places.PARAMS / self.profile / f"{one}.yaml" for one in read]
        lib_files = [file for module in sorted(self.modules(name)) for file in _files(module)]
        digests = [_digest(file) for file in (*own, *lib_files) if file.exists()]
        return _hash([digests, _entries(places.LEDGER.read_text(), name), made_from.packages()])

    # ---- marks, and records

    def fresh(self, name: str) -> bool:
        """Whether a notebook's mark says that it ran on all this. More records of others are no matter to it."""
        mark = _read_mark(self.mark(name))
        if mark.get("made_from") != self._made_from[name]:
            return False
        same = mark["parts"] == self._parts
        return same or (mark["records"] != "" and mark["records"] == self._said_of(name))

    def mark(self, name: str) -> Path:
        return self.folder / f".{name}.done"

    def done(self, name: str, drawn: bool = True) -> None:
        """Marks a notebook that has run; ``drawn``: unless there was nothing to draw, when it is asked again."""
        mark = {"made_from": self._made_from[name], "parts": self._parts, "records": self._said_of(name)}
        with files.replacing(self.mark(name)) as draft:
            draft.write_text(json.dumps(mark if drawn else {}) + "\n")

    def _said_of(self, name: str) -> str:
        """A digest of where the records have what a notebook planned when it ran, and the run that a parameter names;
        empty where it drew a part of its plan: any further record may complete it."""
        plan = json.loads(path.read_text()) if (path := self._plans / f"{name}.json").exists() else {}
        if plan.get("part"):
            return ""
        keys = {*plan.get("runs", {}), *(value for value in self._given(name).values() if isinstance(value, str))}
        keys |= {f"{function} {key}" for function, some in plan.get("measurements", {}).items() for key in some}
        return _hash([(key, self.said[key]) for key in sorted(keys) if key in self.said])

    @functools.cached_property
    def said(self) -> dict[str, str]:
        """Key of a run, or function and key of a measurement -> the files of records that hold something of it, each
        of which never changes (``lib/store/records.py``)."""
        found: dict[str, str] = collections.defaultdict(str)
        for place in ("runs.parquet", "measured.parquet", "weights"):
            for path in sorted(self._of(place)):
                for key in _held(path):
                    found[key] += f" {path.stem}"
        return found


def _held(path: Path) -> list[str]:
    """Of which runs or measurements a file of records holds something: of none where it cannot be read, which whoever
    draws from it will say."""
    if path.parent.name == "weights":
        return [path.stem.partition("-")[0]]
    import pyarrow.parquet  # takes its time

    names = ["key"] if path.parent.name == "runs.parquet" else ["measurement", "key"]
    try:
        rows = pyarrow.parquet.read_table(path, columns=names).group_by(names).aggregate([])
    except (OSError, ValueError):
        return []
    return [" ".join(row.values()) for row in rows.to_pylist()]


def _read_mark(path: Path) -> dict[str, Any]:
    try:
        mark = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return mark if isinstance(mark, dict) else {}


def _digest(path: Path) -> str:
    return _digest_at(path, path.stat().st_mtime_ns)


@functools.cache
def _digest_at(path: Path, mtime_ns: int) -> str:
    return files.digest(path)


def _hash(what: Any) -> str:
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]


def imports(notebook: Path) -> set[str] | None:
    """What a notebook's cells import, modules and names from them; None where not all of them are Python alone."""
    found = set()
    for cell in json.loads(notebook.read_text())["cells"]:
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


@functools.lru_cache(maxsize=1)
def _ledger(text: str) -> list[dict[str, Any]]:
    return yaml.safe_load(text)


def _entries(text: str, name: str) -> list[Any]:
    """The ledger's entries that a notebook reports; all of the text where it cannot be read."""
    try:
        return [
            entry
            for entry in _ledger(text)
            if entry.get("notebook") == name or (name == places.OF_PUBLISHED and entry.get("published"))
        ]
    except (yaml.YAMLError, AttributeError, TypeError):
        return [text]
