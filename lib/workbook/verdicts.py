"""Verdicts as data: a row a finding of a judged profile and of the papers' own runs, as JSON, which also says of which
version they are, what the last audit of the profile's records came to, and what each column means. Beside that, how
verdicts are told in words and in sums, on pages, in documents and at the end of make.

``make report`` writes them beside the report. A copy of them beside desk's records is committed, and is the one source
of what the documents tell.
"""

import collections
import itertools
import json
import math
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats

import lib
from lib.base import files
from lib.base.statistics import Interval
from lib.store.result import Column
from lib.workbook import claims, places

NAME = places.VERDICTS.name
NOT_MEASURED = "not measured"
#: what is told of claims, in order: where there is no number it is no verdict
OUTCOMES = (*claims.VERDICTS[:-1], NOT_MEASURED)
DECIDED = {claims.REPRODUCED, claims.CONTRADICTED, claims.ABSENT}
FALSE, CHANGED = "false on each side, at most", "expected to change in fresh draws"  # of verdicts, as sums tell it
MANY = 40  # claims, of which make prints a line each

Row = Mapping[str, Any]

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


def row_of(claim: claims.Claim, finding: claims.Finding) -> dict[str, Any]:
    """What is told of a claim that was measured, by ``COLUMNS``."""
    made = {name: finding.provenance.get(name) for name in ("notebook", "parameters", "commit", "device")}
    fields = vars(claim) | vars(finding) | made | {"claim": claim.id}
    if claim.kind != "value":
        fields |= {"value": None, "uncertainty": None}
    return {one.name: fields[one.name] for one in COLUMNS}


def committed(records: Path) -> dict[str, Any]:
    """What ``write`` wrote and was copied beside a profile's records; nothing where there are no verdicts."""
    path = records / NAME
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {"audit": None, "verdicts": []}


def write(outputs: Path, profile: str, rows: Sequence[Row], audited: dict[str, Any] | None = None) -> bool:
    """Writes them beside the report; ``rows``: those of the profile and on the papers' own runs, by paper; ``audited``:
    what the last audit came to. Returns whether there are some: of a profile that is not judged nothing is written, and
    what an earlier report left goes."""
    path = outputs / "report" / NAME
    if profile in claims.NOT_JUDGED or not rows:
        files.remove(path)
        return False
    project = tomllib.loads((places.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    said = {
        "form": 2,  # of the columns, raised when one changes its meaning or goes
        # the workbook's, and that of its recipe, which is raised when runs' numbers change
        "version": f"{project['version']}, recipe {lib.RECIPE}",
        "profile": profile,
        "audit": audited,
        "columns": {one.name: one.says for one in COLUMNS},
        "verdicts": json.loads(json.dumps(rows), parse_constant=lambda _: None),  # what is no finite number is null
    }
    files.write(path, (json.dumps(said, indent=1) + "\n").encode())
    return True


# ---- in words --------------------------------------------------------------------------------------------------------


def outcome(row: Row) -> str:
    """What is told of a verdict: where no number could be taken, there was nothing to resolve."""
    there = row["mean"] is not None and math.isfinite(row["mean"])
    return row["verdict"] if there or row["verdict"] == claims.UNJUDGED else NOT_MEASURED


def number(row: Row) -> str:
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
    told = number(judged[1]._asdict() | {"unit": "", "again": None})
    return f"{judged[0].removesuffix(' at this scale')} {told}".strip()


def place(row: Row) -> str:
    """Where a claim was judged: what is counted is told apart from what is trained."""
    counted = ", counted" * (row["replicates"] == "exact")
    return "on published runs" if row["profile"] == claims.PUBLISHED else f"at {row['profile']}{counted}"


def line(row: Row) -> str:
    """A claim's verdict, its number, and where it was judged, unless that is where its profile trains."""
    after = "" if place(row) == f"at {row['profile']}" else f" ({place(row)})"
    said = outcome(row).removesuffix(" at this scale")
    return f"{said:<14} {row['claim']}{': ' * bool(number(row))}{number(row)}{after}"


# ---- in sums ---------------------------------------------------------------------------------------------------------


def grouped(every: Iterable[Any], by: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    """By what ``by`` says of each, in its order."""
    return {said: [*some] for said, some in itertools.groupby(sorted(every, key=by), by)}


def tally(groups: Mapping[str, Collection[Row]]) -> dict[str, dict[str, str]]:
    """Group, where it is not empty -> outcome -> how many came to it, of the outcomes that there are in any."""
    counts = {name: collections.Counter(map(outcome, rows)) for name, rows in groups.items() if rows}
    there = [one for one in OUTCOMES if any(one in of for of in counts.values())]
    return {name: {one: f"{of[one]}" for one in there} for name, of in counts.items()}


def counted(rows: Collection[Row]) -> str:
    """How many of them came to what, in the order of ``OUTCOMES``."""
    return ", ".join(f"{n} {one}" for one, n in tally({"": rows}).get("", {}).items())


def main(profile: str, notebooks: Collection[str], outputs: Path = places.ROOT / "outputs") -> None:
    """For the Makefile: prints what these notebooks came to, by the report, a line a claim; of many, one for each paper
    and place, and how many of them are expected to be wrong."""
    rows = [row for row in committed(outputs / "report")["verdicts"] if row["notebook"] in notebooks]
    groups = grouped(rows, lambda row: f"{row['paper']} {place(row)}")
    lines = [f"verdicts   {at}: {counted(some)}" for at, some in groups.items()]
    lines += [
        f"expected   {what}: {', '.join(f'{n} {at}' for at, n in of.items())}"
        for what, of in expected(rows).items()
        if what in (FALSE, CHANGED)
    ]
    who = profile if profile in claims.NOT_JUDGED else "what was run"
    print("\n".join(lines if len(rows) > MANY else map(line, rows)) or f"verdicts   none: {who} judges nothing")


def expected(rows: Iterable[Row]) -> dict[str, dict[str, str]]:
    """Of the verdicts by an interval: what -> place -> how many. How many of them errors may have made, how many fresh
    draws would change, how many say again what another says, and of how many the second opinion says what."""
    told, of = {}, {*DECIDED, claims.UNRESOLVED, claims.DISPUTED}
    by_interval = (row for row in rows if row["replicates"] != "exact" and outcome(row) in of)
    for at, judged in grouped(by_interval, place).items():
        decided = [row for row in judged if row["first"] in DECIDED]
        confirmed = sum(row["first"] == row["second"] for row in decided)
        silent = [row for row in decided if row["second"] == claims.TOO_FEW]
        one_grid = sum(row["profile"] == claims.PUBLISHED or row["replicates"] == "resamples" for row in silent)
        told[at] = {
            "by an interval": f"{len(judged)}",
            FALSE: f"{claims.ERROR * len(judged):.2g}",
            "decided": f"{len(decided)}",
            CHANGED: f"{sum(1 - row['again'] for row in decided if row['again'] is not None):.2g}",
            "by another's number": f"{sum(len(its) - 1 for its in shared(decided))}",
            "confirmed by the second opinion": f"{confirmed}",
            "disputed": f"{len(decided) - confirmed - len(silent)}",
            "silent: too few seeds": f"{len(silent) - one_grid}",
            "silent: one grid of runs": f"{one_grid}",
        }
    return {what: {at: said[what] for at, said in told.items()} for what in next(iter(told.values()), ())}


def shared(rows: Iterable[Row]) -> list[list[Row]]:
    """Each with those after it, of its notebook and place, that share its number: what was measured, the mean of what
    decides, or one less it, as phi above 0 and phi below 1 do."""
    numbered = [
        (
            row,
            {
                (row["profile"], row["notebook"], one)
                for one in (mean, round(1 - mean, 12), json.dumps(row["measured"]))
            },
        )
        for row in rows
        if number(row)
        for mean in [round(row["mean"], 12)]
    ]
    groups = [
        [row for row, its in numbered[at:] if its & numbers]
        for at, (_, numbers) in enumerate(numbered)
        if not any(before & numbers for _, before in numbered[:at])
    ]
    return [group for group in groups if len(group) > 1]


# ---- on two texts ----------------------------------------------------------------------------------------------------


def difference(one: Row, other: Row) -> str:
    """The mean of the other's seeds less that of one's, in the comparison that decides one, with Welch's 95 % interval,
    in their unit, and its name; of what resamples judge, by the numbers of each seed's own runs."""
    decides = min(one["measured"], key=lambda name: abs(np.mean(one["measured"][name]) - one["mean"]))
    seeds = [np.asarray((row["by_seed"] or row["measured"])[decides], dtype=float) for row in (other, one)]
    low, high = scipy.stats.ttest_ind(*seeds, equal_var=False).confidence_interval()
    told = number({"mean": (low + high) / 2, "low": low, "high": high, "unit": "", "again": None})
    return ", ".join(filter(None, [told or "no interval", decides, "by seeds" * bool(one["by_seed"])]))


# ---- on two scales ---------------------------------------------------------------------------------------------------


def both(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Of each claim that our models judge and published runs judge: the row of ours, and theirs."""
    theirs = {row["claim"]: row for row in rows if row["profile"] == claims.PUBLISHED}
    return [
        (row, theirs[row["claim"]]) for row in rows if row["claim"] in theirs and row["profile"] != claims.PUBLISHED
    ]


def across(pairs: Iterable[tuple[Row, Row]]) -> dict[str, dict[str, str]]:
    """Verdict of our models -> that of published runs -> how many pairs."""
    return tally({one: [theirs for own, theirs in pairs if outcome(own) == one] for one in OUTCOMES})


def differing(pairs: Iterable[tuple[Row, Row]]) -> list[tuple[Row, Row]]:
    """Those that both scales decide, one so and one otherwise."""
    return [pair for pair in pairs if len({*map(outcome, pair)} & DECIDED) > 1]


def agreement(pairs: Collection[tuple[Row, Row]]) -> dict[str, str]:
    """Heading -> how many of them both scales decide, how many alike, the rate with the 95 % interval of Clopper and
    Pearson, how many of those that ours reproduce, and how many one guess for all would get right: the most frequent
    verdict of these published runs."""
    decided = [pair for pair in pairs if {*map(outcome, pair)} <= DECIDED]
    n, alike = len(decided), len(decided) - len(differing(decided))
    reproduced = [outcome(theirs) for own, theirs in decided if outcome(own) == claims.REPRODUCED]
    low, high = scipy.stats.binomtest(alike, n).proportion_ci() if n else (0, 1)
    return {
        "judged by both": f"{len(pairs)}",
        "decided by both": f"{n}",
        "alike": f"{alike}",
        "rate": f"{100 * alike / n:.0f} % [{100 * low:.0f}, {100 * high:.0f}]" if n else "",
        "where ours is reproduced": f"{reproduced.count(claims.REPRODUCED)} of {len(reproduced)}",
        "by one guess for all": "".join(
            f"{often} ({verdict})"
            for verdict, often in collections.Counter(outcome(theirs) for _, theirs in decided).most_common(1)
        ),
    }
