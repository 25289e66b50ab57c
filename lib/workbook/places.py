"""Where the workbook is, what lies in it, and where it is published."""

import re
import tomllib
from pathlib import Path

import lib
from lib.base.errors import InputError

ROOT = Path(lib.__file__).parent.parent
NOTEBOOKS = ROOT / "notebooks"
PARAMS = ROOT / "params"
RECORDS = ROOT / "outputs" / "records"
LEDGER = PARAMS / "claims.yaml"
PYPROJECT = ROOT / "pyproject.toml"


def published() -> str:
    """https://github.com/OWNER/NAME, or "" where it is published nowhere yet: links to it are left out then.

    Raises InputError where the field of pyproject.toml has another form.
    """
    place = tomllib.loads(PYPROJECT.read_text())["tool"]["looped-lm"]["repository"]
    if place and not re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]*[\w-]", place):
        wanted = "https://github.com/OWNER/NAME"
        raise InputError(f"repository: {place!r} is no {wanted}, mend it in pyproject.toml or empty it")
    return str(place)
