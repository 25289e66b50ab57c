"""A page for every claim: what the paper states, by which rule it is judged, what was measured, and how to do it again.

They lie in report/claims/, with one stylesheet, pictures and tables of runs beside them in report/; nothing else is
loaded.
"""

import dataclasses
import functools
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from lib.base import files
from lib.workbook import findings, pages, parameters
from lib.workbook.claims import Claim
from lib.workbook.ran import Ran

PER_MACHINE = ("jobs", "max_hours", "outputs")  # parameters that change no number


@dataclasses.dataclass(frozen=True)
class Figure:
    """A picture that stands in report/, and what it shows."""

    name: str
    path: str
    alt: str


@dataclasses.dataclass(frozen=True)
class Shown:
    """What a page shows of a claim at one profile, or on published runs. ``row`` is one of the report's."""

    row: Any
    #: of the notebook that measured it, the one that the ledger names, None where that is not there, and the others
    figure: Figure | None
    others: Sequence[Figure]
    #: of the notebook's executed copy, and of the table of its runs; empty where there is none
    notebook: str
    table: str
    ran: Ran | None
    command: str

    @property
    def provenance(self) -> str:
        return in_yaml(json.dumps(self.row.finding.provenance))


@functools.lru_cache(maxsize=4096)
def in_yaml(stamp: str) -> str:
    """A provenance, given as JSON, as a page shows it; what one run of a notebook made has the same."""
    return yaml.safe_dump(json.loads(stamp), default_flow_style=None, width=100, allow_unicode=True)


def write(report: Path, shown: Mapping[str, Sequence[Shown]], ledger: Mapping[str, Claim], **said: Any) -> None:
    """A page for each claim of ``shown``, in that order, and the stylesheet. ``said``: what else the template names."""
    style = pages.template("style.css").render() + pages.template("claim.css").render()
    put(report / "style.css", style.encode())
    order, template, papers = [*shown], pages.template("claim.html.j2"), findings.cited()
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
        put(report / "claims" / f"{id}.html", text.encode())
    for path in (report / "claims").glob("*.html"):
        if path.stem not in shown:
            files.remove(path)


def put(path: Path, content: bytes) -> None:
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
    known = _as_kept(parameters.of_profile(profile, notebook))
    given = _as_kept(made.get("parameters", {}) | made.get("cut_from", {}))
    changed = {
        name: value
        for name, value in given.items()
        if name in known and known[name] != value and name not in PER_MACHINE
    }
    if not changed:
        return f"make reproduce-figures PROFILE={profile} ONLY={notebook}"
    other = shlex.quote(yaml.safe_dump(changed, default_flow_style=True, width=1000).strip())
    return f"papermill notebooks/{notebook}.ipynb out.ipynb -f params/{profile}/{notebook}.yaml -y {other}"


def _as_kept(given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as a finding's file has them: in JSON a width, say, that is a key is text."""
    kept: dict[str, Any] = json.loads(json.dumps(given))
    return kept
