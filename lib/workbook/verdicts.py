"""Verdicts as data: a row a finding of a judged profile and of the papers' own runs, as Parquet and as JSON.

Both say of which version they are, what the last audit of the profile's records came to, and what each column means.
"""

import json
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lib
from lib.base import files
from lib.store.columns import Column
from lib.workbook import audit, claims, markdown, places
from lib.workbook.claims import Claim, Finding

NAMES = ("verdicts.parquet", "verdicts.json")
FORM = 2  # of the columns below, raised when one changes its meaning or goes
#: what is nested in JSON, and JSON in a cell of Parquet
NESTED = ("measured", "bounds", "parameters")
#: columns in which two say the same that differ: where and how it was judged, and what is drawn or spelled there
OF_THE_JUDGE = ("again", "note", "parameters", "commit", "device")

COLUMNS = [
    Column("claim", "text", "the claim's id in params/claims.yaml"),
    Column("paper", "text", "whose claim it is: 000 to 004, or 005 for other groups"),
    Column("where", "text", "its place in the paper"),
    Column("statement", "text", "what the paper claims"),
    Column("kind", "text", "ordering, bound, tie or value"),
    Column("estimand", "text", "what is measured, averaged over what"),
    Column("replicates", "text", "what the interval counts: seeds, resamples or exact"),
    Column("effect", "float", "the smallest effect that matters, in the unit; 0 where it is counted"),
    Column("value", "float", "the paper's number; empty but for values"),
    Column("uncertainty", "float", "of the paper's number, as printed; empty but for values"),
    Column("profile", "text", "whose runs were measured: a profile's, or published, the paper's own"),
    Column("verdict", "text", "the outcome: the first opinion, or opinions differ"),
    Column("first", "text", "what the interval says"),
    Column("second", "text", "what a permutation of the seeds says; empty where nothing is judged, or it is counted"),
    Column("mean", "float", "of the comparison that decides; empty where there is no number"),
    Column("low", "float", "lower end of its 95 % interval; empty where there is none"),
    Column("high", "float", "upper end"),
    Column("unit", "text", "of mean, low, high, measured and bounds"),
    Column("again", "float", "share of fresh draws of as many replicates that give the first opinion again"),
    Column("seeds", "ints", "of the replicates; none where they are no seeds"),
    Column("measured", "text", "comparison -> one number a replicate, in the order of seeds; JSON in Parquet"),
    Column("bounds", "text", "comparison -> the ends of its own 95 % interval; JSON in Parquet"),
    Column("note", "text", "what the notebook says of it"),
    Column("notebook", "text", "which measured it"),
    Column("parameters", "text", "that it was run with; JSON in Parquet"),
    Column("commit", "text", "of this repository, when it was judged"),
    Column("device", "text", "accelerator, or kind of processor, that it was judged on"),
]


def rows(found: list[tuple[Claim, Finding]]) -> list[dict[str, Any]]:
    """Of each finding what ``COLUMNS`` names. What is no finite number is None."""
    return [{one.name: _finite(_cell(one.name, *both)) for one in COLUMNS} for both in found]


def _cell(name: str, claim: Claim, finding: Finding) -> Any:
    if name == "claim":
        return claim.id
    if name in ("value", "uncertainty") and claim.kind != "value":
        return None
    if name in ("notebook", "parameters", "commit", "device"):
        return finding.provenance.get(name)
    return getattr(finding if hasattr(finding, name) else claim, name)


def _finite(x: Any) -> Any:
    if isinstance(x, float):
        return x if math.isfinite(x) else None
    if isinstance(x, Mapping):
        return {key: _finite(value) for key, value in x.items()}
    return [_finite(value) for value in x] if isinstance(x, list | tuple) else x


def version() -> str:
    """The workbook's, as in pyproject.toml, and that of its recipe, which is raised when runs' numbers change."""
    project = tomllib.loads((places.ROOT / "pyproject.toml").read_text())["project"]
    return f"{project['version']}, recipe {lib.RECIPE}"


def committed(records: Path) -> list[dict[str, Any]]:
    """The rows beside a profile's records; none where there are no verdicts."""
    path = records / "verdicts.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text())["verdicts"] if path.exists() else []
    return rows


def write(outputs: Path, profile: str, found: list[tuple[Claim, Finding]]) -> str:
    """Writes both files beside the report and, where the profile has records, beside these; returns a line on it.
    ``found``: the findings of the profile and on the papers' own runs, by paper.

    Those beside the records are committed. They stay where they say the same, so that a clone has no change in it, and
    where they speak of more claims, as after one notebook was run alone. Of a profile that is not judged nothing is
    written, and what an earlier report left beside it goes."""
    report, records = outputs / "report", outputs / "records" / profile
    if profile in claims.NOT_JUDGED or not found:
        for name in NAMES:
            files.remove(report / name)
        why = f"the {profile} profile is not judged" if profile in claims.NOT_JUDGED else "there are no findings"
        return f"verdicts   none are written: {why}"
    table, said = rows(found), about(outputs, profile)
    text = json.dumps({**said, "columns": {one.name: one.says for one in COLUMNS}, "verdicts": table}, indent=1)
    renewed = records.is_dir() and _renews(records / "verdicts.json", table, said["audit"])
    for folder in (report, *([records] if renewed else [])):
        parquet, plain = (folder / name for name in NAMES)
        with files.replacing(plain) as draft:
            draft.write_text(text + "\n")
        with files.replacing(parquet) as draft:
            _write_parquet(draft, table, said)
    beside = f" and outputs/records/{profile}/" if renewed else ""
    return f"verdicts   {len(table)} as data in outputs/report/{beside}"


def _renews(path: Path, table: list[dict[str, Any]], audited: Any) -> bool:
    """Whether ``table`` has all rows of the file at ``path``, and one that is new or says something else, or was
    ``audited`` since."""
    try:
        known = json.loads(path.read_text())
        before = {(row["claim"], row["profile"]): row for row in known["verdicts"]}
    except (OSError, ValueError, KeyError, TypeError):  # none, or a damaged one
        return True
    now = {(row["claim"], row["profile"]): row for row in table}
    if not before.keys() <= now.keys():
        return False
    if audited is not None and audited != known.get("audit"):
        return True
    return before.keys() != now.keys() or any(not _same(before[key], row) for key, row in now.items())


def _same(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether two rows of a claim say the same. Numbers that are not compared with the paper's decide nothing, and one
    of them is timed."""
    if before["verdict"] == now["verdict"] == claims.INCOMPARABLE:
        return True
    return _alike(before, now)


def _alike(x: Any, y: Any) -> bool:
    """Whether two rows, or two of their cells, are the same, whoever judged; numbers to a thousandth, since processors
    differ in the last digits."""
    if isinstance(x, float | int) and isinstance(y, float | int):
        return math.isclose(x, y, rel_tol=1e-3, abs_tol=1e-6)
    if isinstance(x, Mapping) and isinstance(y, Mapping):
        return x.keys() == y.keys() and all(_alike(x[name], y[name]) for name in x if name not in OF_THE_JUDGE)
    if isinstance(x, list | tuple) and isinstance(y, list | tuple):
        return len(x) == len(y) and all(map(_alike, x, y))
    return bool(x == y)


def about(outputs: Path, profile: str) -> dict[str, Any]:
    """What both files say of themselves: of an audit, the one made here, or that of the committed verdicts."""
    try:
        audited = audit.summary(outputs, profile)
    except (OSError, ValueError, KeyError, TypeError):  # the report names it
        audited = audit.committed(outputs / "records" / profile)
    return {"form": FORM, "version": version(), "profile": profile, "audit": audited}


def _write_parquet(path: Path, table: list[dict[str, Any]], said: dict[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    kinds = {"text": pa.string(), "float": pa.float64(), "bool": pa.bool_(), "ints": pa.list_(pa.int64())}
    fields = [pa.field(one.name, kinds[one.kind], metadata={"says": one.says}) for one in COLUMNS]
    flat = [{name: json.dumps(x) if name in NESTED else x for name, x in row.items()} for row in table]
    schema = pa.schema(fields, metadata={name: json.dumps(value) for name, value in said.items()})
    pyarrow.parquet.write_table(pa.Table.from_pylist(flat, schema), path, compression="zstd")


def schema() -> str:
    """The columns as a table in Markdown, which docs/verdicts.md has."""
    return markdown.table([{"column": f"`{one.name}`", "type": one.kind, "says": one.says} for one in COLUMNS])
