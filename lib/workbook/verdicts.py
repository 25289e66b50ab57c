"""Verdicts as data: a row a finding of a judged profile and of the papers' own runs, as JSON, which also says of which
version they are, what the last audit of the profile's records came to, and what each column means.

``make report`` writes them beside the report. A copy of them beside desk's records is committed, and is the one source
of what the documents tell.
"""

import json
import tomllib
from pathlib import Path
from typing import Any

import lib
from lib.base import files
from lib.store.result import Column
from lib.workbook import claims, places
from lib.workbook.claims import Claim, Finding

NAME = "verdicts.json"

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
    Column("measured", "object", "comparison -> one number a replicate, in the order of seeds"),
    Column("bounds", "object", "comparison -> the ends of its own 95 % interval"),
    Column("note", "text", "what the notebook says of it"),
    Column("notebook", "text", "which measured it"),
    Column("parameters", "object", "that it was run with"),
    Column("commit", "text", "of this repository, when it was judged"),
    Column("device", "text", "accelerator, or kind of processor, that it was judged on"),
]


def _row(claim: Claim, finding: Finding) -> dict[str, Any]:
    made = {name: finding.provenance.get(name) for name in ("notebook", "parameters", "commit", "device")}
    fields = vars(claim) | vars(finding) | made | {"claim": claim.id}
    if claim.kind != "value":
        fields |= {"value": None, "uncertainty": None}
    return {one.name: fields[one.name] for one in COLUMNS}


def committed(records: Path) -> dict[str, Any]:
    """What ``write`` wrote and was copied beside a profile's records; nothing where there are no verdicts."""
    path = records / NAME
    said: dict[str, Any] = (
        json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"audit": None, "verdicts": []}
    )
    return said


def write(
    outputs: Path, profile: str, found: list[tuple[Claim, Finding]], audited: dict[str, Any] | None = None
) -> bool:
    """Writes them beside the report; ``found``: the findings of the profile and on the papers' own runs, by paper;
    ``audited``: what the last audit came to. Returns whether there are some: of a profile that is not judged nothing is
    written, and what an earlier report left goes."""
    path = outputs / "report" / NAME
    if profile in claims.NOT_JUDGED or not found:
        files.remove(path)
        return False
    project = tomllib.loads((places.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    rows = json.dumps([_row(*both) for both in found])
    said = {
        "form": 2,  # of the columns, raised when one changes its meaning or goes
        # the workbook's, and that of its recipe, which is raised when runs' numbers change
        "version": f"{project['version']}, recipe {lib.RECIPE}",
        "profile": profile,
        "audit": audited,
        "columns": {one.name: one.says for one in COLUMNS},
        "verdicts": json.loads(rows, parse_constant=lambda _: None),  # what is no finite number is null
    }
    with files.replacing(path) as draft:
        draft.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    return True
