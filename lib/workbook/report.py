"""Writes the report: one HTML page of figures, tables, claims with their verdicts, and provenance; it opens from disk.
Beside it lie a page for every claim, the executed notebooks, and verdicts as data.

A page of a claim says what the paper states, by which rule it is judged, what was measured, and how to do it again.
These lie in report/claims/, with one stylesheet and pictures beside them in report/; nothing else is loaded. A file
that cannot be read does not hide the others: the page is written without it, and names it at the top.
"""

import base64
import collections
import dataclasses
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup

from lib.base import files
from lib.base.provenance import provenance
from lib.workbook import audit, claims, findings, pages, parameters, places, verdicts
from lib.workbook.claims import PUBLISHED, Claim, Finding
from lib.workbook.costs import NOTEBOOKS
from lib.workbook.outputs import Item, Outputs, Ran, Row, in_yaml

PAPERS = {
    "000": "Iso-depth scaling laws",
    "001": "Parcae: scaling laws for stable looped language models",
    "002": "Residual scaling of looped Transformers",
    "003": "Looped nanochat",
    "004": "Looped mixture of experts with early exit",
    "005": "Other groups, on the runs that they published",
}
BEYOND = "Beyond the papers"
PER_MACHINE = ("jobs", "max_hours", "outputs")  # parameters that change no number


@dataclasses.dataclass(frozen=True)
class Section:
    """A notebook and what it made; ``failure`` says why its executed copy did not run to its end."""

    name: str
    title: Markup
    failure: str
    figures: list[Item]
    tables: list[Item]


def build(outputs: Path, profile: str) -> list[str]:
    """Writes outputs/report/index.html from what a profile made, and beside it the pages of claims and of executed
    notebooks, and verdicts as data.

    Returns a line for each file that could not be read; the page begins with these lines too. Raises InputError for a
    damaged ledger, and leaves the page that is there."""
    ledger = claims.ledger(places.LEDGER)
    papers = {name: paper for paper, names in NOTEBOOKS.items() for name in names}
    found, report = Outputs(outputs), outputs / "report"
    rows = found.rows(ledger, profile)
    failures = {other: found.pages(other) for other in dict.fromkeys([profile, *(row.profile for row in rows)])}
    every_figure = [item for other in failures for item in found.items("figures", other, [*papers])]
    figures = [item for item in every_figure if item.profile == profile]
    tables = found.items("tables", profile, [*papers])
    made_by = {name: None for name in [*papers, *failures[profile], *(item.notebook for item in figures + tables)]}
    audited = found.audited(profile)
    data = verdicts.write(outputs, profile, judged(rows, profile), audited)
    groups: dict[str, list[Section]] = {heading: [] for heading in [*PAPERS, BEYOND]}
    for name in made_by:
        ours = [[item for item in items if item.notebook == name] for items in (figures, tables)]
        section = Section(name, _title(name), failures[profile].get(name, ""), *ours)
        groups.get(papers.get(name, ""), groups[BEYOND]).append(section)
    runs = {(at, name): found.runs(at, name) for at in failures if at != PUBLISHED for name in papers}
    executed = {(other, name) for other, names in failures.items() for name in names}
    said = {
        "published": PUBLISHED,
        "papers": PAPERS,
        "number": _number,
        "finite": math.isfinite,
        "fragile": claims.FRAGILE,
        "data": data,
    }
    for item in every_figure:
        _put(report / item.path, base64.b64decode(str(item.content)))
    _write_claims(report, _shown(rows, profile, every_figure, runs, executed), ledger, said)
    page = pages.TEMPLATES.get_template("report.html.j2").render(
        **said,
        profile=profile,
        verdicts=claims.VERDICTS,
        rows=rows,
        counts=collections.Counter(row.verdict for row in rows),
        glances=_glances(rows),
        groups=groups,
        binder=places.binder,
        order=[figure.name for sections in groups.values() for section in sections for figure in section.figures],
        executed=executed,
        problems=found.problems,
        audited=audit.told(audited),
        complaints=audited["complaints"] if audited else {},
        provenance="\n".join(f"{name}: {value}" for name, value in provenance().items()),
        disputed=claims.DISPUTED,
    )
    with files.replacing(report / "index.html") as draft:
        draft.write_text(page, encoding="utf-8")
    return found.problems


def judged(rows: list[Row], profile: str) -> list[tuple[Claim, Finding]]:
    """The findings of a profile, and those on the papers' own runs."""
    return [(row.claim, row.finding) for row in rows if row.finding and row.profile in (profile, PUBLISHED)]


def _glances(rows: list[Row]) -> dict[tuple[str, str], collections.Counter[str]]:
    """(paper, profile or published runs) -> its claims by verdict; without a profile at which none of its claims can be
    measured."""
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row.claim.paper, row.profile].append(row)
    return {
        place: collections.Counter(row.verdict for row in ours)
        for place, ours in groups.items()
        if any(row.notebook for row in ours)
    }


def _title(name: str) -> Markup:
    path = places.NOTEBOOKS / f"{name}.ipynb"
    return pages.title(path) if path.exists() else Markup.escape(name or "Of a notebook that is not known")


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1e4 or not math.isfinite(value) else f"{value:.3e}".replace("e+", "e")


# ---- the pages of claims ---------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Shown:
    """What a page shows of a claim at one profile, or on published runs."""

    row: Row
    #: of the notebook that measured it, the one that the ledger names, None where that is not there, and the others
    figure: Item | None
    others: list[Item]
    #: of the notebook's executed copy; empty where there is none
    notebook: str
    ran: Ran
    command: str

    @property
    def provenance(self) -> str:
        return in_yaml(json.dumps(self.row.finding.provenance)) if self.row.finding else ""


def _shown(
    rows: list[Row], profile: str, figures: list[Item], runs: dict[tuple[str, str], Ran], executed: set[tuple[str, str]]
) -> dict[str, list[Shown]]:
    """Claim -> what its page shows."""
    shown: dict[str, list[Shown]] = {}
    for row in rows:
        made = row.finding.provenance if row.finding else {}
        at, name = made.get("profile", profile if row.profile == PUBLISHED else row.profile), row.notebook
        ours = [one for one in figures if (one.profile, one.notebook) == (at, name)]
        one = Shown(
            row,
            next((one for one in ours if one.name == row.figure), None),
            [one for one in ours if one.name != row.figure],
            f"notebooks/{at}/{name}.html" if (at, name) in executed else "",
            runs.get((at, name), Ran()),
            command(name, at, made) if name else "",
        )
        shown.setdefault(row.claim.id, []).append(one)
    return shown


def _write_claims(report: Path, shown: Mapping[str, Sequence[Shown]], ledger: Mapping[str, Claim], said: Any) -> None:
    """A page for each claim of ``shown``, in that order, and the stylesheet. ``said``: what else the template names."""
    style = pages.TEMPLATES.get_template("style.css").render() + pages.TEMPLATES.get_template("claim.css").render()
    _put(report / "style.css", style.encode())
    order, template, papers = [*shown], pages.TEMPLATES.get_template("claim.html.j2"), findings.cited()
    for at, id in enumerate(order):
        text = template.render(
            claim=ledger[id],
            rule=rule(ledger[id]),
            paper=[findings.source(entry) for entry in papers.get(ledger[id].paper, [])],
            every=shown[id],
            previous=order[at - 1] if at else "",
            next=order[at + 1] if at + 1 < len(order) else "",
            **said,
        )
        _put(report / "claims" / f"{id}.html", text.encode())
    for path in (report / "claims").glob("*.html"):
        if path.stem not in shown:
            files.remove(path)


def _put(path: Path, content: bytes) -> None:
    """Writes a file unless it is there."""
    if not path.exists() or path.read_bytes() != content:
        with files.replacing(path) as draft:
            draft.write_bytes(content)


def rule(claim: Claim) -> str:
    """What decides, in a sentence (docs/verdicts.md)."""
    if claim.kind == "value":
        where = "whatever the size" if claim.scale_free else "at the paper's scale alone"
        of = f"within {claim.margin:.3g} of {claim.value:.4g}"
        return f"reproduced where the interval lies {of}, contradicted where it is disjoint from that; judged {where}"
    if claim.kind == "tie":
        return f"reproduced where the interval lies within {claim.margin:.3g} of 0, contradicted where it is disjoint"
    absent = f", absent here where it lies within {claim.effect:.3g} of 0" if claim.kind == "ordering" else ""
    return f"reproduced where the interval lies above 0, contradicted where it lies below{absent}"


def command(notebook: str, profile: str, made: Mapping[str, Any]) -> str:
    """What makes a finding again, by its provenance: make, or papermill where somebody asked for other parameters than
    the profile's. What a notebook that trains nothing cut by itself, it cuts again."""
    known = _as_kept(parameters.at_profile(parameters.kind_of(notebook), profile).model_dump())
    given = _as_kept(made.get("parameters", {}) | made.get("cut_from", {}))
    changed = {
        name: value
        for name, value in given.items()
        if name in known and known[name] != value and name not in PER_MACHINE
    }
    if not changed:
        return f"make reproduce-figures PROFILE={profile} ONLY={notebook}"
    other = shlex.quote(yaml.safe_dump(changed, default_flow_style=True, width=1000).strip())
    return f"papermill notebooks/{notebook}.ipynb out.ipynb -p profile {profile} -y {other}"


def _as_kept(given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as a finding's file has them: in JSON a width, say, that is a key is text."""
    kept: dict[str, Any] = json.loads(json.dumps(given))
    return kept
