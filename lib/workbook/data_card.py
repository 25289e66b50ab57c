"""The data card of a profile's records, and the same as Croissant metadata, which catalogues and loaders read.

Both say what the columns are, and nothing that a further part would change, so that they are merged without conflict.
Once the profile is judged they have its verdicts too.
"""

import json
import typing
from pathlib import Path
from typing import Any

from lib.base import files
from lib.config import RunConfig
from lib.store.columns import CURVES, ENDS, FAMILIES, MADE, MADE_BY, MEASURED, SUMMARY, TABLES, WHO, Column, row_types
from lib.workbook import audit, findings, pages, verdicts

CONTEXT = Path(__file__).parent / "templates" / "croissant_context.json"  # the format's own
PUBLISHED = "2026-11-25"
LICENCE = "https://opensource.org/license/mit"
TYPES = {"int": "sc:Integer", "float": "sc:Float", "bool": "sc:Boolean", "text": "sc:Text"}
LISTS = {"floats": "sc:Float", "ints": "sc:Integer"}

KEY = Column("key", "text", "the run's key, a hash of all that decides its numbers")
STATUS = Column("status", "text", "finished, or diverged: the state's rms passed max_state_rms, or it was no number")


def columns(folder: Path) -> dict[str, list[Column]]:
    """Table -> its columns; the verdicts where the folder has them."""
    fields = [Column(name, kind, _says(name)) for name, kind in row_types().items()]
    ends, made_by = _under(SUMMARY, ENDS), _under(MADE, MADE_BY)
    who = [one for one in made_by if one.name.removeprefix(MADE) in WHO]
    in_parts = {
        "runs": [KEY, *fields, STATUS, *ends, *made_by],
        "curves": [KEY, *CURVES],
        "measured": [*MEASURED, *who],
    }
    return in_parts | ({"verdicts": verdicts.COLUMNS} if (folder / "verdicts.parquet").exists() else {})


def _under(prefix: str, some: list[Column]) -> list[Column]:
    return [one._replace(name=prefix + one.name) for one in some]


def _says(name: str) -> str:
    """What a field's own description says; else that lib/config.py has it."""
    part, _, field = name.partition(".")
    config = typing.cast(Any, RunConfig.model_fields[part].annotation)
    return config.model_fields[field].description or f"{field.replace('_', ' ')}, as in lib/config.py"


def write(folder: Path, profile: str) -> None:
    """README.md and croissant.json of a profile's records."""
    tables = columns(folder)
    metadata = json.dumps(croissant(profile, tables), indent=1) + "\n"
    page = card(profile, tables, counted(folder, profile), audit.told(folder))
    texts = {"README.md": page, "croissant.json": metadata}
    for name, text in texts.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            with files.replacing(path) as draft:
                draft.write_text(text)


ABOUT = "Training runs of small looped (depth-recurrent) language models, their curves and what was measured on them"


def counted(folder: Path, profile: str) -> str:
    """How many claims the profile's runs came to which verdict; empty before it is judged."""
    path = folder / "verdicts.json"
    rows = json.loads(path.read_text())["verdicts"] if path.exists() else []
    return findings.counted(row["verdict"] for row in rows if row["profile"] == profile)


def card(profile: str, tables: dict[str, list[Column]], said: str, audited: str) -> str:
    """The card as Markdown; ``said``: its verdicts, counted; ``audited``: its audit in sentences."""
    page = pages.template("data_card.md.j2")
    about = {"about": ABOUT, "made": MADE, "families": FAMILIES}
    return page.render(profile=profile, columns=tables, said=said, audited=audited, **about)


def croissant(profile: str, tables: dict[str, list[Column]]) -> dict[str, Any]:
    """The metadata as JSON-LD, after the Croissant format 1.0."""
    return {
        "@context": json.loads(CONTEXT.read_text()),
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": f"looped-lm-{profile}",
        "description": f"{ABOUT} ({profile} profile).",
        "license": LICENCE,
        "version": "1.0.0",
        "datePublished": PUBLISHED,
        "citeAs": "The authors of the looped-LM workbook. Looped language models: a reproducibility workbook.",
        "distribution": [
            *(_files(_id(name), f"parts of the table {name}", f"{name}.parquet/*.parquet") for name in sorted(TABLES)),
            *(_files(name, "the verdicts, a row a finding", name) for name in verdicts.NAMES if "verdicts" in tables),
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": table,
                "name": table,
                "description": f"the table {table}",
                "field": [_field(table, one) for one in tables[table]],
            }
            for table in sorted(tables)
        ],
    }


def _id(table: str) -> str:
    """Of a table's files: its parts, or the one that the verdicts are."""
    return f"{table}-parts" if table in TABLES else f"{table}.parquet"


def _files(id: str, description: str, includes: str) -> dict[str, str]:
    """Without hashes, which a further part, or another verdict, would change."""
    form = "application/json" if includes.endswith(".json") else "application/x-parquet"
    named = {"@type": "cr:FileSet", "@id": id, "description": description}
    return {**named, "encodingFormat": form, "includes": includes}


def _field(table: str, one: Column) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"{table}/{one.name}",
        "name": one.name,
        "description": one.says,
        "dataType": (TYPES | LISTS)[one.kind],
        **({"repeated": True} if one.kind in LISTS else {}),
        "source": {"fileSet": {"@id": _id(table)}, "extract": {"column": one.name}},
    }
