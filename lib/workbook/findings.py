"""What README.md and docs/ tell: the papers, the notebooks, the most telling findings, every claim, a picture a paper.

Verdicts are those beside desk's records, so that nothing has to be run to write them. The prose is written by hand.
``.venv/bin/python -c 'from lib.workbook.findings import write; write()'`` puts the tables between their marks, and a
test sees that they are up to date.
"""

import collections
import dataclasses
import functools
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import nbformat
import yaml

from lib.workbook import audit, claims, costs, data_card, places, verdicts
from lib.workbook.claims import CONTRADICTED, OPEN, REPRODUCED, Claim
from lib.workbook.costs import NOTEBOOKS
from lib.workbook.markdown import escaped, filled, table

README = places.ROOT / "README.md"
SCALE, CLAIMS, VERDICTS = (places.ROOT / "docs" / f"{name}.md" for name in ("scale", "claims", "verdicts"))
CARD = places.RECORDS / "README.md"
CITATION = places.ROOT / "CITATION.cff"
PROFILE = "desk"  # whose verdicts are told
RECORDS = places.RECORDS / PROFILE
PAGES = "../outputs/report/claims"  # from docs/, once make report has written them
AT_DESK, ON_RUNS = f"at {PROFILE}", "on published runs"
PLACE = re.compile(r"(Sec\.|App\.|Figs?\.|Tables?|the figure|the table|Alg\.|Eq\.).*")  # in a paper
GALLERY = places.ROOT / "docs" / "gallery"
#: paper -> the figure of desk that README.md shows
PICTURES = {
    "000": "published_phi",
    "001": "instability_rates",
    "002": "residual_init_growth",
    "003": "usage_weighted_ratio",
    "004": "moe_isoflop_combined",
    "005": "published_others_savings",
}
LINES = 12  # of README's findings, at most


def write() -> None:
    """Puts the parts into their documents."""
    for path, parts in documents().items():
        path.write_text(filled(path.read_text(encoding="utf-8"), parts))


def documents() -> dict[Path, dict[str, str]]:
    """Document -> the name of a part of it -> the part."""
    every = judged()
    return {
        README: {
            "found": found(every),
            "numbers": in_numbers(every),
            "audit": audit.told(verdicts.committed(RECORDS)["audit"]),
            "notebooks": overview(every),
        },
        CLAIMS: {"claims": entries(every)},
        SCALE: costs.parts(),
        VERDICTS: {"columns": verdicts.schema()},
        CARD: data_card.parts(),
    }


@dataclasses.dataclass(frozen=True)
class Judged:
    """A claim and what the verdicts say of it (a row as ``verdicts.COLUMNS`` has it): on our runs at desk, and on
    published runs; {} where they say nothing."""

    claim: Claim
    ours: dict[str, Any]
    published: dict[str, Any]


def judged() -> list[Judged]:
    """All claims with the verdicts beside desk's records, paper by paper, in the ledger's order."""
    rows = {(row["claim"], row["profile"]): row for row in verdicts.committed(RECORDS)["verdicts"]}
    return [
        Judged(claim, *(rows.get((claim.id, of), {}) for of in (PROFILE, claims.PUBLISHED)))
        for claim in sorted(claims.ledger(places.LEDGER).values(), key=lambda claim: claim.paper)
    ]


def number(row: dict[str, Any]) -> str:
    """The number that decided, in words: mean, 95 % interval where there is one and it has a width, unit, whether it is
    fragile; empty where nothing could be measured."""
    if row.get("mean") is None:
        return ""
    low, high = row["low"], row["high"]
    interval = f" [{low:.3g}, {high:.3g}]" if None not in (low, high) and low < high else ""
    fragile = ", fragile" if row["again"] is not None and row["again"] < claims.FRAGILE else ""
    return f"{row['mean']:.3g}{interval} {row['unit']}".strip() + fragile


def counted(rows: Iterable[dict[str, Any]]) -> str:
    """How many of them have which verdict, in the order of ``claims.VERDICTS``."""
    of = collections.Counter(row.get("verdict") for row in rows)
    return ", ".join(f"{of[verdict]} {verdict}" for verdict in claims.VERDICTS if of[verdict])


# ---- the papers ------------------------------------------------------------------------------------------------------


@functools.cache
def cited() -> dict[str, list[dict[str, Any]]]:
    """A paper's number here -> its entries in CITATION.cff; other groups' papers share one."""
    papers: dict[str, list[dict[str, Any]]] = {}
    for entry in yaml.safe_load(CITATION.read_text(encoding="utf-8"))["references"]:
        papers.setdefault(entry["notes"][:3], []).append(entry)
    return papers


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
    named = [entry for entry in entries if entry.get("url", "").rpartition("/")[2] in claim.where]
    (entry,) = named or entries
    return f"{_short(entry)}, {claim.where}"


# ---- README's findings -----------------------------------------------------------------------------------------------


def found(every: Sequence[Judged]) -> str:
    """The most telling verdicts, contradictions first: all that published runs contradict, then what claims marked with
    a ``short`` statement came to."""
    lines: dict[str, dict[str, str]] = {}
    for verdict in (CONTRADICTED, REPRODUCED):
        for one in every:
            if one.published.get("verdict") == verdict and (one.claim.short or verdict == CONTRADICTED):
                lines.setdefault(one.claim.id, _line(one.claim, one.published, ON_RUNS))
        for one in every:
            if one.ours.get("verdict") == verdict and one.claim.short:
                at = "counted" if one.claim.replicates == "exact" else AT_DESK
                lines.setdefault(one.claim.id, _line(one.claim, one.ours, at))
    return table(list(lines.values())[:LINES])


def _line(claim: Claim, row: dict[str, Any], where: str) -> dict[str, str]:
    text = escaped(claim.short or claim.statement.removesuffix("."))
    return {
        "what a paper says": f"[{text}](docs/claims.md#{anchor(claim.id)})",
        "place": escaped(place(claim)),
        "verdict": f"{row['verdict']}, {where}",
        "measured": f"{escaped(number(row))}<br>{escaped(claim.estimand)}; {says(claim)}",
    }


def says(claim: Claim) -> str:
    """What the number of a claim is where the paper is right."""
    if claim.kind in ("ordering", "bound"):
        return "above 0 where the paper is right"
    return f"the paper: {claim.value:g}" + (f" ± {claim.margin:.2g}" if claim.margin else "")


def anchor(id: str) -> str:
    """Of a claim's line in docs/claims.md."""
    return id.replace(".", "")


def in_numbers(every: Sequence[Judged]) -> str:
    """How many claims have which verdict: a row for our runs and one for published ones, and how many have both."""
    judged_by = {
        AT_DESK: [one.ours for one in every if one.ours],
        ON_RUNS: [one.published for one in every if one.published],
    }
    counts = {by: collections.Counter(row["verdict"] for row in rows) for by, rows in judged_by.items()}
    given = [verdict for verdict in claims.VERDICTS if any(count[verdict] for count in counts.values())]
    rows = [
        {"claims judged": by, **{verdict: f"{count[verdict]}" for verdict in given}, "all": f"{count.total()}"}
        for by, count in counts.items()
    ]
    both = sum(bool(one.ours and one.published) for one in every)
    neither = sum(not (one.ours or one.published) for one in every)
    said = f"There are {len(every)} claims: {both} are judged by both, {neither} by neither yet."
    return f"{table(rows)}\n\n{said}"


# ---- README's notebooks ----------------------------------------------------------------------------------------------


def overview(every: Sequence[Judged]) -> str:
    """One row a notebook: its file, what it asks and where in which paper the claim stands, and the verdicts of its
    claims on our runs, and on published ones, in the row of the notebook that reads these."""
    return table([_of_notebook(paper, name, every) for paper, names in NOTEBOOKS.items() for name in names])


def _of_notebook(paper: str, name: str, every: Sequence[Judged]) -> dict[str, str]:
    title, where = heading(name)
    own = [one for one in every if one.claim.notebook == name]
    on_runs = [one for one in every if name in (one.claim.published, one.claim.notebook)]
    papers = sorted({one.claim.paper for one in own or on_runs}) or [paper]
    place = ", ".join([*map(authors, papers), where]).removesuffix(", ")
    said = {AT_DESK: counted(one.ours for one in own), ON_RUNS: counted(one.published for one in on_runs)}
    return {
        "notebook": _links(name),
        "question": f"{title} ({place})".removesuffix(" ()"),
        "verdicts": "; ".join(f"{at}: {what}" for at, what in said.items() if what) or "no claims",
    }


def _links(name: str) -> str:
    """To a notebook's file, and to where Binder opens it, if it does."""
    binder = places.binder(name)
    return f"[{name}](notebooks/{name}.ipynb)" + (f", [open in Binder]({binder})" if binder else "")


def heading(name: str) -> tuple[str, str]:
    """(a notebook's title, where in its paper the claim stands, empty where none does), from its first cell."""
    text = nbformat.read(places.NOTEBOOKS / f"{name}.ipynb", as_version=4).cells[0].source
    title = text.partition("\n")[0].removeprefix("# ")
    claim = re.search(r"\*\*Claim\*\* \((.*?)\)[.:]\s", " ".join(text.split()))
    where = PLACE.search(claim.group(1)) if claim else None
    return title, where.group() if where else ""


# ---- docs/claims.md --------------------------------------------------------------------------------------------------


def entries(every: Sequence[Judged]) -> str:
    """A heading for every paper, below it a line for every claim: what it says, and its verdicts."""
    parts = []
    for paper in dict.fromkeys(one.claim.paper for one in every):
        rows = [
            {
                "claim": f'<a id="{anchor(one.claim.id)}"></a>[{one.claim.id}]({PAGES}/{one.claim.id}.html)',
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
    said = [(one.ours, AT_DESK), (one.published, ON_RUNS)]
    told = [": ".join(filter(None, [f"{row['verdict']} {where}", number(row)])) for row, where in said if row]
    return "; ".join(told) or OPEN


# ---- README's pictures -----------------------------------------------------------------------------------------------


def write_pictures() -> None:
    """Renews the pictures from the figures that desk's notebooks have drawn, which hold their provenance."""
    for paper, name in PICTURES.items():
        shutil.copyfile(places.ROOT / "outputs" / "figures" / PROFILE / f"{name}.png", GALLERY / f"{paper}.png")
