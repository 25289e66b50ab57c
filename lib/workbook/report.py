"""Writes the report: one HTML page of figures, tables, claims with their verdicts, and provenance; it opens from disk.
Beside it lie a page for every claim, the executed notebooks, and verdicts as data.

A page of a claim says what the paper states, by which rule it is judged, what was measured, and how to do it again.
These lie in report/claims/, with one stylesheet and pictures beside them in report/; nothing else is loaded. A file
that cannot be read does not hide the others: the page is written without it, and names it at the top.
"""

import base64
import collections
import itertools
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
from lib.workbook import audit, claims, documents, pages, parameters, places, verdicts
from lib.workbook.claims import PUBLISHED, Claim
from lib.workbook.documents import NOTEBOOKS
from lib.workbook.outputs import Item, Outputs, Ran, Row

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
    drawn: dict[tuple[str, str], list[Item]] = collections.defaultdict(list)
    for figure in [item for other in failures for item in found.items("figures", other, papers)]:
        drawn[figure.profile, figure.stamp["notebook"]].append(figure)
        _put(report / figure.path, base64.b64decode(figure.content))
    tables = found.items("tables", profile, papers)
    audited = found.audited(profile)
    told = [(row.claim, row.finding) for row in rows if row.finding and row.profile in (profile, PUBLISHED)]
    runs = {(at, name): found.runs(at, name) for at in failures if at != PUBLISHED for name in papers}
    made_by = [name for at, name in drawn if at == profile] + [table.stamp["notebook"] for table in tables]
    groups: dict[str, list[dict[str, Any]]] = {heading: [] for heading in [*PAPERS, BEYOND]}
    for name in dict.fromkeys([*papers, *failures[profile], *made_by]):
        section = {
            "name": name,
            "title": _title(name),
            "failure": failures[profile].get(name, ""),  # why its executed copy did not run to its end
            "figures": drawn.get((profile, name), []),
            "tables": [table for table in tables if table.stamp["notebook"] == name],
        }
        groups.get(papers.get(name, ""), groups[BEYOND]).append(section)
    said = {
        "profile": profile,
        "published": PUBLISHED,
        "papers": PAPERS,
        "number": _number,
        "finite": math.isfinite,
        "fragile": claims.FRAGILE,
        "data": verdicts.write(outputs, profile, told, audited),
        "executed": {(other, name) for other, names in failures.items() for name in names},
        "needs": {(row.claim.id, row.profile): _need(row, runs) for row in rows},
        "in_yaml": in_yaml,
    }
    _write_claims(report, rows, drawn=drawn, runs=runs, command=command, **said)
    page = pages.TEMPLATES.get_template("report.html.j2").render(
        **said,
        verdicts=claims.VERDICTS,
        rows=rows,
        counts=collections.Counter(row.verdict for row in rows),
        glances=_glances(rows),
        groups=groups,
        binder=places.binder,
        order=[figure.name for sections in groups.values() for section in sections for figure in section["figures"]],
        problems=found.problems,
        audited=audit.told(audited),
        complaints=audited["complaints"] if audited else {},
        provenance="\n".join(f"{name}: {value}" for name, value in provenance().items()),
        disputed=claims.DISPUTED,
    )
    _put(report / "index.html", page.encode())
    return found.problems


def _need(row: Row, runs: Mapping[tuple[str, str], Ran]) -> str:
    """What would settle a claim; empty where nothing is unresolved."""
    if not row.finding or row.profile == PUBLISHED or row.verdict not in (claims.UNRESOLVED, claims.DISPUTED):
        return ""
    seeds = row.finding.seeds if row.claim.replicates == "seeds" else []
    return claims.to_settle(row.claim, row.finding, runs[row.profile, row.notebook].seconds(seeds) / 3600)


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


def _write_claims(report: Path, rows: Sequence[Row], **said: Any) -> None:
    """A page for each claim of ``rows``, in that order, and the stylesheet. ``said``: what else the template names."""
    style = pages.TEMPLATES.get_template("style.css").render() + pages.TEMPLATES.get_template("claim.css").render()
    _put(report / "style.css", style.encode())
    shown = {claim: [*its] for claim, its in itertools.groupby(rows, lambda row: row.claim)}
    order = [claim.id for claim in shown]
    beside = zip(["", *order], [*order[1:], ""], strict=False)
    for (claim, every), (previous, following) in zip(shown.items(), beside, strict=True):
        text = pages.TEMPLATES.get_template("claim.html.j2").render(
            claim=claim,
            rule=rule(claim),
            paper=[documents.source(entry) for entry in documents.cited().get(claim.paper, [])],
            every=every,
            previous=previous,
            next=following,
            **said,
        )
        _put(report / "claims" / f"{claim.id}.html", text.encode())
    for path in (report / "claims").glob("*.html"):
        if path.stem not in order:
            files.remove(path)


def in_yaml(stamp: Mapping[str, Any]) -> str:
    """A provenance as a page shows it: without what a figure shows in words."""
    shown = {name: value for name, value in stamp.items() if name != "alt"}
    return yaml.dump(shown, Dumper=yaml.CSafeDumper, default_flow_style=None, width=100, allow_unicode=True)


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
