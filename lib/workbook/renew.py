"""``make report``: writes the report where something that it is made from has changed. ``make site`` copies it.

Nothing that takes long to import is imported before that is known.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from lib.base import files
from lib.base.errors import in_one_line
from lib.workbook import made_from, places

#: what the report is made from, of the outputs; a run's result has the checksums of its other files
FOLDERS = ("audits", "claims", "figures", "notebooks", "plans", "tables")
RUNS = ("runs/*/result.json", "records/*/*.parquet/*")


def renew(outputs: Path, profile: str) -> list[str]:
    """``report.build``, unless the report of this profile is there and nothing has changed. Where files could not be
    read it is always built, and names them again."""
    mark = outputs / "report" / f".{profile}{made_from.MARK}"
    sources = made_from.checksum(_sources(outputs), profile, made_from.packages())
    if made_from.unchanged(mark, sources, _made(outputs, profile)):
        print("report     nothing that it is made from has changed")
        return []
    from lib.workbook import report  # which imports torch

    problems = report.build(outputs, profile)
    if not problems:
        made_from.note(mark, sources, _made(outputs, profile))
    return problems


def _sources(outputs: Path) -> list[Path]:
    own = [places.ROOT / "lib", places.NOTEBOOKS, places.PARAMS, places.PYPROJECT, places.ROOT / "CITATION.cff"]
    runs = [path for pattern in RUNS for path in sorted(outputs.glob(pattern))]
    return own + [outputs / name for name in FOLDERS] + runs


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


def main(profile: str, also_site: bool = False) -> None:
    """``renew``, or ``site``, for the Makefile. It fails, with a line for each, where files could not be read."""
    in_one_line(_make_or_complain, site if also_site else renew, profile)


def _make_or_complain(make: Callable[[Path, str], list[str]], profile: str) -> None:
    if problems := make(Path("outputs"), profile):
        raise SystemExit("\n".join(problems))
