"""What the columns of records are, as outputs/records/README.md has it: every profile's have the same."""

import typing
from typing import Any

from lib.config import RunConfig
from lib.store.columns import CURVES, ENDS, FAMILIES, MADE, MADE_BY, MEASURED, SUMMARY, WHO, Column, row_types
from lib.workbook import markdown

KEY = Column("key", "text", "the run's key, a hash of all that decides its numbers")
STATUS = Column("status", "text", "finished, or diverged: the state's rms passed max_state_rms, or it was no number")


def columns() -> dict[str, list[Column]]:
    """Table -> its columns."""
    fields = [Column(name, kind, _says(name)) for name, kind in row_types().items()]
    ends, made_by = _under(SUMMARY, ENDS), _under(MADE, MADE_BY)
    families = [Column(f"{family}...", "float", says) for family, says in FAMILIES.items()]
    return {
        "runs": [KEY, *fields, STATUS, *ends, *made_by],
        "curves": [KEY, *CURVES, *families],
        "measured": [*MEASURED, *(one for one in made_by if one.name.removeprefix(MADE) in WHO)],
    }


def _under(prefix: str, some: list[Column]) -> list[Column]:
    return [one._replace(name=prefix + one.name) for one in some]


def _says(name: str) -> str:
    """What a field's own description says; else that lib/config.py has it."""
    part, _, field = name.partition(".")
    config = typing.cast(Any, RunConfig.model_fields[part].annotation)
    return config.model_fields[field].description or f"{field.replace('_', ' ')}, as in lib/config.py"


def parts() -> dict[str, str]:
    """Table -> a line a column, in Markdown."""
    return {
        name: markdown.table([{"column": f"`{one.name}`", "type": one.kind, "says": one.says} for one in listed])
        for name, listed in columns().items()
    }
