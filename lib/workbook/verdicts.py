"""Verdicts as data: a row a finding of a judged profile and of the papers' own runs, as JSON, which also says of which
version they are, what the last audit of the profile's records came to, and what each column means. Beside that, how a
verdict is told in words, on pages, in documents and at the end of make.

``make report`` writes them beside the report. A copy of them beside desk's records is committed, and is the one source
of what the documents tell.
"""

import collections
import json
import math
import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import lib
from lib.base import files
from lib.base.statistics import Interval
from lib.store.result import Column
from lib.workbook import claims, places

NAME = places.VERDICTS.name
NOT_MEASURED = "not measured"
#: what is told of claims, in order: where there is no number it is no verdict
OUTCOMES = (*claims.VERDICTS[:-1], NOT_MEASURED)
MANY = 40  # claims, of which make prints a line each

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
    Column("by_seed", "object", "comparison -> one number a seed, by its runs alone, of a claim judged by resamples"),
    Column("by_form", "object", "comparison -> the number by the coupled law in place of the additive one"),
    Column("note", "text", "what the notebook says of it"),
    Column("notebook", "text", "which measured it"),
    Column("parameters", "object", "that it was run with"),
    Column("commit", "text", "of this repository, when it was judged"),
    Column("device", "text", "accelerator, or kind of processor, that it was judged on"),
]


def _row(claim: claims.Claim, finding: claims.Finding) -> dict[str, Any]:
    made = {name: finding.provenance.get(name) for name in ("notebook", "parameters", "commit", "device")}
    fields = vars(claim) | vars(finding) | made | {"claim": claim.id}
    if claim.kind != "value":
        fields |= {"value": None, "uncertainty": None}
    return {one.name: fields[one.name] for one in COLUMNS}


def committed(records: Path) -> dict[str, Any]:
    """What ``write`` wrote and was copied beside a profile's records; nothing where there are no verdicts."""
    path = records / NAME
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {"audit": None, "verdicts": []}


def write(
    outputs: Path, profile: str, found: list[tuple[claims.Claim, claims.Finding]], audited: dict[str, Any] | None = None
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
    files.write(path, (json.dumps(said, indent=1) + "\n").encode())
    return True


# ---- in words --------------------------------------------------------------------------------------------------------


def outcome(verdict: str, mean: float | None) -> str:
    """What is told of a verdict on this number: where none could be taken, there was nothing to resolve."""
    return verdict if verdict == claims.UNJUDGED or math.isfinite(math.nan if mean is None else mean) else NOT_MEASURED


def number(row: Mapping[str, Any]) -> str:
    """The number that decided, in words: mean, 95 % interval where there is one and it has a width, unit, whether it is
    fragile; empty where nothing could be measured."""
    mean, low, high = (math.nan if row[name] is None else row[name] for name in ("mean", "low", "high"))
    if not math.isfinite(mean):
        return ""
    interval = f" [{low:.3g}, {high:.3g}]" if math.isfinite(high - low) and low < high else ""
    fragile = ", fragile" if row["again"] is not None and row["again"] < claims.FRAGILE else ""
    return f"{mean:.3g}{interval} {row['unit']}".strip() + fragile


def judgement(judged: tuple[str, Interval]) -> str:
    """A verdict and the interval that decided, in words, by seeds, say."""
    verdict, interval = judged
    return (
        f"{verdict.removesuffix(' at this scale')} {number(interval._asdict() | {'unit': '', 'again': None})}".strip()
    )


def counted(rows: Iterable[Mapping[str, Any]]) -> str:
    """How many of them came to what, in the order of ``OUTCOMES``."""
    of = collections.Counter(outcome(row["verdict"], row["mean"]) for row in rows)
    return ", ".join(f"{of[one]} {one}" for one in OUTCOMES if of[one])


def place(profile: str, replicates: str) -> str:
    """Where a claim was judged: what is counted is told apart from what is trained."""
    return (
        "on published runs" if profile == claims.PUBLISHED else f"at {profile}" + ", counted" * (replicates == "exact")
    )


def main(profile: str, notebooks: Collection[str], outputs: Path = places.ROOT / "outputs") -> None:
    """For the Makefile: prints what these notebooks came to, by the report, a line a claim; of many, one for each paper
    and place."""
    rows = [row for row in committed(outputs / "report")["verdicts"] if row["notebook"] in notebooks]
    groups = collections.defaultdict(list)
    for row in rows:
        groups[f"{row['paper']} {place(row['profile'], row['replicates'])}"].append(row)
    by_group = [f"verdicts   {where}: {counted(some)}" for where, some in sorted(groups.items())]
    who = profile if profile in claims.NOT_JUDGED else "what was run"
    print("\n".join(by_group if len(rows) > MANY else map(line, rows)) or f"verdicts   none: {who} judges nothing")


def line(row: Mapping[str, Any]) -> str:
    """A claim's verdict, its number, and where it was judged, unless that is where its profile trains."""
    where = place(row["profile"], row["replicates"])
    after = "" if where == f"at {row['profile']}" else f" ({where})"
    said = outcome(row["verdict"], row["mean"]).removesuffix(" at this scale")
    return f"{said:<14} {row['claim']}{': ' * bool(number(row))}{number(row)}{after}"
