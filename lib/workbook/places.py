"""Where the workbook is, what lies in it, and where it is published."""

import re
import tomllib
from pathlib import Path
from urllib.parse import quote

import lib
from lib.base.errors import InputError

ROOT = Path(lib.__file__).parent.parent
NOTEBOOKS = ROOT / "notebooks"
PARAMS = ROOT / "params"
RECORDS = ROOT / "outputs" / "records"
VERDICTS = RECORDS / "desk" / "verdicts.json"  # the committed ones, which documents and pages tell
#: records with the verdicts that are committed; desk's come first
JUDGED = [RECORDS / profile for profile in ("desk", "addendum", "second-text")]
LEDGER = PARAMS / "claims.yaml"
EXPLAINED = ROOT / "docs" / "explanations.md"
#: a profile that adds to another: it draws that one's runs beside its own
ADDS_TO = {"addendum": "desk"}
#: a profile that also draws from another's records
READS_TOO = ADDS_TO | {"desk": "addendum"}
PYPROJECT = ROOT / "pyproject.toml"


def records(profile: str, folder: Path | None = None) -> list[Path]:
    """Where the records are that a profile draws from, in ``folder`` in place of the committed ones; its own first."""
    return [(folder or RECORDS) / one for one in (profile, READS_TOO.get(profile)) if one]


def published() -> str:
    """https://github.com/OWNER/NAME, or "" where it is published nowhere yet: links to it are left out then.

    Raises InputError where the field of pyproject.toml has another form.
    """
    place = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["looped-lm"]["repository"]
    if place and not re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]*[\w-]", place):
        raise InputError(
            f"repository: {place!r} is no https://github.com/OWNER/NAME, mend it in pyproject.toml or empty it"
        )
    return str(place)


def binder(notebook: str) -> str:
    """Where Binder opens a notebook, which then is at desk; "" where the workbook is
    published nowhere, or desk has no such notebook."""
    repository = published().removeprefix("https://github.com/")
    if not repository or not (PARAMS / "desk" / f"{notebook}.yaml").exists():
        return ""
    return f"https://mybinder.org/v2/gh/{repository}/HEAD?labpath={quote(f'notebooks/{notebook}.ipynb', safe='')}"
