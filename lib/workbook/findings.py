"""What was found, in Markdown: the papers and the most telling findings for README.md, every claim for docs/claims.md.

Verdicts are those beside desk's records, so that nothing has to be run to write them. ``lib/workbook/tables.py`` puts
the parts into the documents.
"""

import collections
import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from lib.workbook import claims, places, verdicts
from lib.workbook.claims import CONTRADICTED, OPEN, REPRODUCED, Claim
from lib.workbook.markdown import escaped, table

CITATION = places.ROOT / "CITATION.cff"
PROFILE = "desk"  # whose verdicts are told
RECORDS = places.RECORDS / PROFILE
ON_RUNS = "on published runs"
LINES = 12  # of README's findings, at most


@dataclasses.dataclass(frozen=True)
class Judged:
    """A claim and its verdicts: on our runs at a profile, and on published runs; empty where it has none. The number
    that decided each (``Finding.number``)."""

    claim: Claim
    profile: str
    ours: str
    published: str
    our_number: str = ""
    published_number: str = ""


def judged(records: Path = RECORDS) -> list[Judged]:
    """All claims with the verdicts beside desk's records, paper by paper, in the ledger's order."""
    rows = {(row["claim"], row["profile"]): row for row in verdicts.committed(records)}
    found = []
    for claim in sorted(claims.ledger(places.LEDGER).values(), key=lambda claim: claim.paper):
        ours, on_runs = (rows.get((claim.id, of), {}) for of in (PROFILE, claims.PUBLISHED))
        of_both = ours.get("verdict", ""), on_runs.get("verdict", "")
        found.append(Judged(claim, PROFILE, *of_both, _number(ours), _number(on_runs)))
    return found


def _number(row: dict[str, Any]) -> str:
    """``claims.number`` of a row, which has None for what is not finite."""
    if row.get("mean") is None:
        return ""
    low, high = (math.inf if row[end] is None else row[end] for end in ("low", "high"))
    return claims.number(row["mean"], low, high, row["unit"], row["again"])


def counted(verdicts: Iterable[str]) -> str:
    """How many there are of which verdict, in the order of ``claims.VERDICTS``."""
    of = collections.Counter(verdicts)
    return ", ".join(f"{of[verdict]} {verdict}" for verdict in claims.VERDICTS if of[verdict])


# ---- the papers ------------------------------------------------------------------------------------------------------


@functools.cache
def cited() -> dict[str, list[dict[str, Any]]]:
    """A paper's number here -> its entries in CITATION.cff; other groups' papers share one."""
    papers: dict[str, list[dict[str, Any]]] = {}
    for entry in yaml.safe_load(CITATION.read_text())["references"]:
        papers.setdefault(entry["notes"][:3], []).append(entry)
    return papers


def papers() -> str:
    """One row a paper: its number here, its authors, title and number on arXiv."""
    rows = []
    for number, entries in cited().items():
        for entry in entries:
            names = [author.get("family-names") or author["name"] for author in entry["authors"]]
            url = entry.get("url")
            on_arxiv = f"[arXiv {url.rpartition('/')[2]}]({url})" if url else "not on arXiv"
            rows.append({"here": number, "paper": f"{listed(names)}: *{entry['title']}*, {on_arxiv}"})
    return table(rows)


def listed(names: Sequence[str]) -> str:
    """ "a, b and c"."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def authors(number: str) -> str:
    """Who wrote a paper, in short: "Chen et al.", "Capps"; those of several papers in a row; the title where the paper
    names nobody."""
    return ", ".join(map(_short, cited().get(number, [])))


def _short(entry: dict[str, Any]) -> str:
    first, *others = entry["authors"]
    if "family-names" not in first:
        return str(entry["title"])
    return f"{first['family-names']} et al." if others else str(first["family-names"])


def source(entry: dict[str, Any]) -> str:
    """Authors in short, title, and number on arXiv where there is one."""
    on_arxiv = entry.get("url", "").replace("https://arxiv.org/abs/", "arXiv ")
    names = dict.fromkeys((_short(entry), entry["title"], on_arxiv))  # where nobody is named the title is both
    return ", ".join(filter(None, names))


def place(claim: Claim) -> str:
    """Where a claim stands: authors, and the place in their paper. Of several papers that share a number, ``where``
    begins with the one on arXiv."""
    entries = cited()[claim.paper]
    if len(entries) == 1:
        return f"{_short(entries[0])}, {claim.where}"
    (entry,) = (entry for entry in entries if entry["url"].rpartition("/")[2] in claim.where)
    return f"{_short(entry)}, {claim.where}"


# ---- README's findings -----------------------------------------------------------------------------------------------


def found(every: Sequence[Judged]) -> str:
    """The most telling verdicts, contradictions first: all that published runs contradict, then what claims marked with
    a ``short`` statement came to."""
    lines: dict[str, dict[str, str]] = {}
    for verdict in (CONTRADICTED, REPRODUCED):
        for one in every:
            if one.published == verdict and (one.claim.short or verdict == CONTRADICTED):
                lines.setdefault(one.claim.id, _line(one.claim, f"{verdict}, {ON_RUNS}", one.published_number))
        for one in every:
            if one.ours == verdict and one.claim.short:
                at = "counted" if one.claim.replicates == "exact" else f"at {one.profile}"
                lines.setdefault(one.claim.id, _line(one.claim, f"{verdict}, {at}", one.our_number))
    return table(list(lines.values())[:LINES])


def _line(claim: Claim, verdict: str, number: str) -> dict[str, str]:
    text = escaped(claim.short or claim.statement.removesuffix("."))
    return {
        "what a paper says": f"[{text}]({link(claim.id)})",
        "place": escaped(place(claim)),
        "verdict": verdict,
        "measured": f"{escaped(number)}<br>{escaped(claim.estimand)}; {says(claim)}",
    }


def says(claim: Claim) -> str:
    """What the number of a claim is where the paper is right."""
    if claim.kind in ("ordering", "bound"):
        return "above 0 where the paper is right"
    return f"the paper: {claim.value:g}" + (f" ± {claim.margin:.2g}" if claim.margin else "")


def link(id: str) -> str:
    """To a claim's line in docs/claims.md, from README.md."""
    return f"docs/claims.md#{anchor(id)}"


def anchor(id: str) -> str:
    return id.replace(".", "")


def in_numbers(every: Sequence[Judged]) -> str:
    """How many claims have which verdict: a row for our runs and one for published ones, and how many have both."""
    judged_by = {f"at {every[0].profile}": [one.ours for one in every], ON_RUNS: [one.published for one in every]}
    given = [verdict for verdict in claims.VERDICTS if any(verdict in judged for judged in judged_by.values())]
    rows = [
        {"claims judged": by}
        | {verdict: f"{judged.count(verdict)}" for verdict in given}
        | {"all": f"{sum(map(bool, judged))}"}
        for by, judged in judged_by.items()
    ]
    both = sum(bool(one.ours and one.published) for one in every)
    neither = sum(not (one.ours or one.published) for one in every)
    said = f"There are {len(every)} claims: {both} are judged by both, {neither} by neither yet."
    return f"{table(rows)}\n\n{said}"


# ---- docs/claims.md --------------------------------------------------------------------------------------------------


def entries(every: Sequence[Judged]) -> str:
    """A heading for every paper, below it a line for every claim: what it says, and its verdicts."""
    parts = []
    for paper in dict.fromkeys(one.claim.paper for one in every):
        rows = [
            {
                "claim": f'<a id="{anchor(one.claim.id)}"></a>{one.claim.id}',
                "what the paper says": f"{escaped(one.claim.statement)} ({escaped(place(one.claim))})",
                "verdict": escaped(verdict(one)),
            }
            for one in every
            if one.claim.paper == paper
        ]
        parts.append(f"## {paper}: {authors(paper)}\n\n{table(rows)}")
    return "\n\n".join(parts)


def verdict(one: Judged) -> str:
    """Both verdicts of a claim with their numbers; "open" where nothing has judged it."""
    said = [(one.ours, f"at {one.profile}", one.our_number), (one.published, ON_RUNS, one.published_number)]
    told = [f"{what} {where}" + (f": {number}" if number else "") for what, where, number in said if what]
    return "; ".join(told) or OPEN
