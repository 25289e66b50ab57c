"""Whether something has to be made again: what it was made from, or it itself, has changed since.

A mark beside what was made keeps one checksum of it and of all that it was made from. Dates would not do: clocks are
set back, and copied files bring their own.

A notebook is made from its file and its parameters, and those of the notebooks whose parameters it reads; the modules
of lib that it imports, directly or not, and the data beside them; the ledger and its explanations; the installed
packages; and the parts of the records that its profile draws from, which never change and come and go whole. Its mark
is .<name>.done beside its executed copy. Nothing that takes long to import is imported before it is known what is
stale.
"""

import ast
import functools
import hashlib
import json
import platform
import shutil
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path

import grimp
from pydantic.alias_generators import to_snake

import lib
from lib.base import files
from lib.base.errors import in_one_line
from lib.workbook import parameters, places

MARK = ".from"  # how the name of a mark ends

# ---- marks -----------------------------------------------------------------------------------------------------------


def checksum(paths: Iterable[Path], *beside: str) -> str:
    """Of the files at ``paths``, and in folders there, with their places, and of what else decides."""
    total = hashlib.sha256("\0".join(beside).encode())
    for path in paths:
        for file in [path, *sorted(path.rglob("*"))]:
            if file.is_file() and not passes(file):
                total.update(f"\n{file}\0{files.digest(file)}".encode())
    return total.hexdigest()


def passes(file: Path) -> bool:
    """Whether a file comes and goes and decides nothing: marks, locks, drafts, caches."""
    return file.name.endswith((MARK, ".lock", ".tmp")) or not {"__pycache__", ".ipynb_checkpoints"}.isdisjoint(
        file.parts
    )


@functools.cache
def packages() -> str:
    """This Python, and the packages that are installed beside it."""
    folders = {Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")}
    found = sorted(path.stem for folder in folders for path in folder.glob("*.dist-info"))
    return " ".join([platform.python_version(), *found])


def unchanged(mark: Path, sources: str, made: Iterable[Path]) -> bool:
    """Whether ``made`` is as it was when ``note`` marked it, from the same ``sources`` (their ``checksum``)."""
    return mark.exists() and mark.read_text(encoding="utf-8") == checksum(made, sources)


def note(mark: Path, sources: str, made: Iterable[Path]) -> None:
    """Marks what was made. ``sources`` are as they were before they were read: what has changed since is read again."""
    files.write(mark, checksum(made, sources).encode())


# ---- notebooks -------------------------------------------------------------------------------------------------------


class Now:
    """What the notebooks ``names`` are made from at a profile, as it is when this is asked."""

    def __init__(self, profile: str, names: Sequence[str], outputs: Path):
        self.profile, self.folder = profile, outputs / "notebooks" / profile
        graph = grimp.build_graph("lib", cache_dir=None, exclude_type_checking_imports=True)
        for module in graph.modules - {"lib"}:  # Python imports the package that a module is in, too
            graph.add_import(importer=module, imported=module.rpartition(".")[0])
        imported = {name: imports(places.NOTEBOOKS / f"{name}.ipynb") for name in names}
        #: notebook -> the modules of lib that count for it: what it imports, and all that those import in turn, also
        #: inside functions; all there are where it is not known what it imports
        self.modules: dict[str, set[str]] = {}
        parts = sorted(str(path) for folder in places.records(profile) for path in folder.glob("*/*.*"))
        digest = functools.cache(files.digest)  # most modules count for most notebooks
        self._sources = {}
        for name, known in imported.items():
            first = graph.modules if known is None else graph.modules & known
            self.modules[name] = first.union(*map(graph.find_upstream_modules, first))
            paths = [places.LEDGER, places.EXPLAINED]
            for one in [name, *sorted(others(known))]:
                paths += [places.NOTEBOOKS / f"{one}.ipynb", *parameters.files(profile, one)]
            paths += [file for module in sorted(self.modules[name]) for file in _files(module)]
            digests = [f"{path} {digest(path)}" for path in paths if path.exists()]
            self._sources[name] = checksum([], packages(), *parts, *digests)

    def fresh(self, name: str) -> bool:
        """Whether a notebook's mark says that it ran on all this."""
        return unchanged(self.mark(name), self._sources[name], [])

    def mark(self, name: str) -> Path:
        return self.folder / f".{name}.done"

    def done(self, name: str, drawn: bool = True) -> None:
        """Marks a notebook that has run; ``drawn``: unless there was nothing to draw, when it is asked again."""
        note(self.mark(name), self._sources[name] if drawn else "nothing", [])


def _files(module: str) -> list[Path]:
    """A module, the C beside it, and its package's tables."""
    path = Path(lib.__file__).parent.joinpath(*module.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return sorted({path, *path.parent.glob("*.c"), *path.parent.glob("data/*.csv")})


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
    return {to_snake(name.rpartition(".")[2]) for name in imported or () if ".parameters." in name}


# ---- the report ------------------------------------------------------------------------------------------------------


def renew(outputs: Path, profile: str) -> list[str]:
    """``report.build``, unless the report of this profile is there and nothing has changed. Where files could not be
    read it is always built, and names them again."""
    mark = outputs / "report" / f".{profile}{MARK}"
    sources = checksum(_sources(outputs), profile, packages())
    if unchanged(mark, sources, _made(outputs, profile)):
        print("report     nothing that it is made from has changed")
        return []
    from lib.workbook import report  # which imports torch

    problems = report.build(outputs, profile)
    if not problems:
        note(mark, sources, _made(outputs, profile))
    return problems


def _sources(outputs: Path) -> list[Path]:
    """A run's result has the checksums of its other files."""
    own = [
        *(places.ROOT / "lib", places.ROOT / "CITATION.cff"),
        *(places.NOTEBOOKS, places.PARAMS, places.PYPROJECT, places.EXPLAINED),
        *(folder / places.VERDICTS.name for folder in places.JUDGED),
    ]
    made = [outputs / name for name in ("audits", "claims", "figures", "notebooks", "plans", "tables")]
    return own + made + sorted([*outputs.glob("runs/*/result.json"), *outputs.glob("records/*/*.parquet/*")])


def _made(outputs: Path, profile: str) -> list[Path]:
    """The report, and what it keeps beside the records."""
    return [outputs / "report", *sorted(path for path in (outputs / "records" / profile).glob("*") if path.is_file())]


def site(outputs: Path, profile: str) -> list[str]:
    """Writes the report, then outputs/site/, the same as a folder that any server of files shows, GitHub Pages too.
    Returns the lines of ``renew``."""
    problems = renew(outputs, profile)
    files.remove(outputs / "site")
    with files.replacing(outputs / "site") as draft:
        shutil.copytree(outputs / "report", draft, ignore=shutil.ignore_patterns(".*", "*.lock"))
        (draft / ".nojekyll").touch()  # GitHub would leave out names that begin with an underscore
    print("site       outputs/site/")
    return problems


def write_report(profile: str, also_site: bool = False, other: str = "") -> None:
    """``renew``, or ``site``, for the Makefile, and before it the page that shows the folder ``other`` beside these
    outputs. It fails, with a line for each, where files could not be read."""

    def write() -> None:
        outputs, problems = Path("outputs"), []
        if other:
            from lib.workbook import beside

            problems = beside.write(outputs, Path(other), profile)
        problems += (site if also_site else renew)(outputs, profile)
        if problems:
            raise SystemExit("\n".join(dict.fromkeys(problems)))

    in_one_line(write)
