"""Two sets of outputs side by side, on a page in the report: of every notebook that the second has, which of its
parameters differ, and the verdicts and figures of both."""

from pathlib import Path
from typing import Any

from lib.base import files
from lib.base.errors import InputError
from lib.workbook import claims, pages, places, report


def write(outputs: Path, other: Path, profile: str) -> list[str]:
    """Writes report/beside.html from ``outputs`` and the folder ``other``, as they are at a profile.

    Returns a line for each file that could not be read. Raises InputError, before anything is written, where ``other``
    has nothing of the profile."""
    if not any(path for kind in ("figures", "claims", "tables") for path in (other / kind / profile).glob("*.json")):
        raise InputError(
            f"BESIDE: {other} has no outputs at {profile}, name what papermill's -p outputs wrote, or its PROFILE"
        )
    found = [report.Outputs(outputs), report.Outputs(other)]
    ours, theirs = (_of(one, profile) for one in found)
    pictures = outputs / "report" / "beside"
    files.remove(pictures)
    for figure in theirs["figures"].values():
        report.put(pictures / f"{figure.name}.png", figure.content)
    text = pages.TEMPLATES.get_template("beside.html.j2").render(
        names=(outputs, other),
        profile=profile,
        ours=ours,
        theirs=theirs,
        no_cause=report.NO_CAUSE,
        title=lambda name: pages.title(path) if (path := places.NOTEBOOKS / f"{name}.ipynb").exists() else name,
    )
    report.put(outputs / "report" / "beside.html", text.encode())
    return [problem for one in found for problem in one.problems]


def _of(found: report.Outputs, profile: str) -> dict[str, dict[Any, Any]]:
    """What there is at a profile: figures by name, rows with a finding by claim and profile, each notebook's
    parameters."""
    figures, tables = (found.items(kind, profile, ()) for kind in ("figures", "tables"))
    rows = [row for row in found.rows(claims.ledger(places.LEDGER), profile) if row.finding]
    stamps = [item.stamp for item in [*figures, *tables]] + [row.finding.provenance for row in rows if row.finding]
    return {
        "figures": {figure.name: figure for figure in figures},
        "rows": {(row.claim.id, row.profile): row for row in rows},
        "parameters": {stamp["notebook"]: stamp["parameters"] for stamp in stamps},
    }
