"""Writes the report: one HTML page of figures, tables, claims with their verdicts, and provenance; it opens from disk.

A file that cannot be read does not hide the others: the page is written without it, and names it at the top.
"""

import base64
import collections
import csv
import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup

from lib.base import files
from lib.base.errors import InputError, in_one_line
from lib.base.parameters import PROFILES
from lib.base.provenance import provenance
from lib.workbook import audit, claims, pages, places, power, verdicts
from lib.workbook.claims import OF_PUBLISHED, PUBLISHED

PAPERS = {
    "000": "Iso-depth scaling laws",
    "001": "Parcae: scaling laws for stable looped language models",
    "002": "Residual scaling of looped Transformers",
    "003": "Looped nanochat",
    "004": "Looped mixture of experts with early exit",
    "005": "Other groups, on the runs that they published",
}
BEYOND = "Beyond the papers"


@dataclasses.dataclass(frozen=True)
class Row:
    """A claim at a profile. ``finding`` is None where nothing was measured, ``need`` where nothing is unresolved."""

    claim: claims.Claim
    profile: str
    finding: claims.Finding | None
    need: power.Need | None

    @property
    def verdict(self) -> str:
        return self.finding.verdict if self.finding else claims.OPEN

    @property
    def notebook(self) -> str | None:
        return OF_PUBLISHED if self.profile == PUBLISHED else self.claim.notebook


@dataclasses.dataclass(frozen=True)
class Item:
    """A figure or a table. ``content`` is a PNG in base64, or the table's rows; ``stamp`` is the provenance beside it,
    empty where that is damaged."""

    name: str
    notebook: str
    content: str | list[list[str]]
    stamp: dict[str, Any]

    @property
    def provenance(self) -> str:
        stamp = {name: value for name, value in self.stamp.items() if name != "alt"}
        return yaml.safe_dump(stamp, default_flow_style=None, width=100, allow_unicode=True)

    @property
    def alt(self) -> str:
        """What a figure shows; its name where it was made by an earlier version, or has no words."""
        return self.stamp.get("alt") or f"figure {self.name.replace('_', ' ')}"


@dataclasses.dataclass(frozen=True)
class Section:
    """A notebook and what it made; ``failure`` says why its executed copy did not run to its end."""

    name: str
    title: Markup
    failure: str
    figures: list[Item]
    tables: list[Item]


@dataclasses.dataclass
class Outputs:
    """Reads a folder of outputs. Each file that cannot be read becomes a line of ``problems``."""

    folder: Path
    problems: list[str] = dataclasses.field(default_factory=list)

    def rows(self, ledger: dict[str, claims.Claim], profile: str) -> list[Row]:
        """A row for every claim at this profile, and for those at other profiles, or on the paper's own runs, that have
        a finding. smoke judges nothing, and is shown only when it is asked for."""
        found = {}
        for other in [name for name in (*PROFILES, PUBLISHED) if name == profile or name != "smoke"]:
            for path in sorted((self.folder / "claims" / other).glob("*.json")):
                if path.stem not in ledger:
                    self.problems.append(f"{path}: is of no claim in params/claims.yaml, remove it or add the claim")
                    continue
                try:
                    found[path.stem, other] = claims.read(path)
                except InputError as error:
                    row = Row(ledger[path.stem], other, None, None)
                    self._complain(error, profile if other == PUBLISHED else other, row.notebook)
        readable = {other: {id: one for (id, at), one in found.items() if at == other} for other in PROFILES}
        needs = {(id, at): one for at in PROFILES for id, one in power.needs(self.folder, at, readable[at]).items()}
        return [
            Row(claim, other, found.get((claim.id, other)), needs.get((claim.id, other)))
            for claim in sorted(ledger.values(), key=lambda claim: claim.paper)
            for other in (*PROFILES, PUBLISHED)
            if other == profile or (claim.id, other) in found
        ]

    def pages(self, profile: str) -> dict[str, str]:
        """Writes the executed notebooks as HTML; notebook -> why it failed, empty where it did not."""
        failures = {}
        for path in sorted((self.folder / "notebooks" / profile).glob("*.ipynb")):
            try:
                pages.page(path, self.folder / "report" / "notebooks" / profile / f"{path.stem}.html")
                failures[path.stem] = pages.failure(path)
            except InputError as error:
                self._complain(error, profile, path.stem)
        return failures

    def figures(self, profile: str, notebooks: list[str]) -> list[Item]:
        return self._items("figures", ".png", _png, profile, notebooks)

    def tables(self, profile: str, notebooks: list[str]) -> list[Item]:
        return self._items("tables", ".csv", _csv, profile, notebooks)

    def _items(
        self, kind: str, suffix: str, read: Callable[[Path], Any], profile: str, notebooks: list[str]
    ) -> list[Item]:
        folder = self.folder / kind / profile
        items = []
        for name in sorted({path.stem for path in folder.glob("*") if path.suffix in (suffix, ".json")}):
            prefixes = [notebook for notebook in notebooks if name.startswith(notebook)]
            notebook, stamp = max(prefixes, key=len, default=""), {}
            try:
                stamp = _stamp(folder / f"{name}.json")
                notebook = stamp["notebook"]
            except InputError as error:
                self._complain(error, profile, notebook)
            try:
                items.append(Item(name, notebook, read(folder / f"{name}{suffix}"), stamp))
            except InputError as error:
                self._complain(error, profile, notebook)
        return items

    def audited(self, profile: str) -> str:
        try:
            return audit.last(self.folder, profile)
        except (OSError, ValueError, KeyError, TypeError) as error:
            self.problems.append(f"audits/{profile}.json: cannot be read ({_reason(error)}), run make audit again")
            return ""

    def _complain(self, error: InputError, profile: str, notebook: str | None) -> None:
        if notebook:
            again = f"make reproduce-figures PROFILE={profile} ONLY={notebook}"
            remedy = f"run its notebook again: rm -f outputs/notebooks/{profile}/.{notebook}.done; {again}"
        else:
            remedy = "run the notebook that wrote it again"
        self.problems.append(f"{error}, {remedy}")


def build(outputs: Path, profile: str) -> list[str]:
    """Writes outputs/report/index.html from what a profile made, and the executed notebooks as pages beside it.

    Returns a line for each file that could not be read; the page begins with these lines too. Raises InputError for a
    damaged ledger, and leaves the page that is there."""
    ledger = claims.ledger(places.LEDGER)
    papers = _papers(ledger)
    found = Outputs(outputs)
    rows = found.rows(ledger, profile)
    failures = {other: found.pages(other) for other in dict.fromkeys([profile, *(row.profile for row in rows)])}
    figures, tables = found.figures(profile, [*papers]), found.tables(profile, [*papers])
    made_by = {name: None for name in [*papers, *failures[profile], *(item.notebook for item in figures + tables)]}
    print(verdicts.write(outputs, profile))
    groups: dict[str, list[Section]] = {heading: [] for heading in [*PAPERS, BEYOND]}
    for name in made_by:
        ours = [[item for item in items if item.notebook == name] for items in (figures, tables)]
        section = Section(name, _title(name), failures[profile].get(name, ""), *ours)
        groups[papers.get(name, BEYOND)].append(section)
    page = pages.template("report.html.j2").render(
        profile=profile,
        published=PUBLISHED,
        papers=PAPERS,
        verdicts=claims.VERDICTS,
        rows=rows,
        side_by_side=(beside := _side_by_side(rows)),
        judged_at=[name for name in (*PROFILES, PUBLISHED) if any(name in found for found in beside.values())],
        counts=collections.Counter(row.verdict for row in rows),
        summary=collections.Counter((row.claim.paper, row.verdict) for row in rows if row.profile == profile),
        groups=groups,
        order=[figure.name for sections in groups.values() for section in sections for figure in section.figures],
        executed={(other, name) for other, names in failures.items() for name in names},
        problems=found.problems,
        audited=found.audited(profile),
        mixed=_mixed([*(item.stamp for item in figures + tables), *_provenances(rows, profile)]),
        provenance="\n".join(f"{name}: {value}" for name, value in provenance().items()),
        number=_number,
        finite=math.isfinite,
        fragile=claims.FRAGILE,
        disputed=claims.DISPUTED,
    )
    with files.replacing(outputs / "report" / "index.html") as draft:
        draft.write_text(page, encoding="utf-8")
    return found.problems


def main(profile: str) -> None:
    """``build`` for the Makefile. It fails, with a line for each, where files could not be read."""
    in_one_line(_build_or_complain, profile)


def _build_or_complain(profile: str) -> None:
    if problems := build(Path("outputs"), profile):
        raise SystemExit("\n".join(problems))


def _side_by_side(rows: list[Row]) -> dict[str, dict[str, str]]:
    """Claim -> profile -> verdict, of those that were judged somewhere."""
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        if row.finding:
            found.setdefault(row.claim.id, {})[row.profile] = row.verdict
    return found


def _provenances(rows: list[Row], profile: str) -> list[dict[str, Any]]:
    return [row.finding.provenance for row in rows if row.finding and row.profile == profile]


def _mixed(stamps: list[dict[str, Any]]) -> list[str]:
    """A line for each notebook whose figures, tables and claims were not all made with the same parameters."""
    used: dict[str, set[str]] = {}
    for stamp in filter(None, stamps):
        used.setdefault(stamp["notebook"], set()).add(json.dumps(stamp["parameters"], sort_keys=True))
    return [
        f"What is shown of {name} comes from runs of the notebook with {len(sets)} different sets of parameters "
        "(each figure and table names its own): run it once more to have all from one."
        for name, sets in used.items()
        if len(sets) > 1
    ]


def _papers(ledger: dict[str, claims.Claim]) -> dict[str, str]:
    """Notebook -> the paper that most of its claims are from, by paper, then as in the ledger; and BEYOND for those
    without a claim."""
    votes: dict[str, collections.Counter[str]] = {}
    for claim in ledger.values():
        for notebook in filter(None, [claim.notebook, OF_PUBLISHED if claim.published else None]):
            votes.setdefault(notebook, collections.Counter())[claim.paper] += 1
    papers = {notebook: count.most_common(1)[0][0] for notebook, count in votes.items()}
    others = [path.stem for path in sorted(places.NOTEBOOKS.glob("*.ipynb")) if path.stem not in papers]
    return {name: papers[name] for name in sorted(papers, key=lambda name: papers[name])} | dict.fromkeys(
        others, BEYOND
    )


def _title(name: str) -> Markup:
    path = places.NOTEBOOKS / f"{name}.ipynb"
    return pages.title(path) if path.exists() else Markup.escape(name or "Of a notebook that is not known")


def _stamp(path: Path) -> dict[str, Any]:
    try:
        stamp = json.loads(path.read_text())
        if isinstance(stamp, dict) and {"notebook", "parameters", "commit", "device"} <= {*stamp}:
            return stamp
        reason = "it is no provenance"
    except (OSError, ValueError) as error:
        reason = _reason(error)
    raise InputError(f"{path}: cannot be read ({reason})")


def _png(path: Path) -> str:
    image = path.read_bytes() if path.exists() else b""
    if not (image.startswith(b"\x89PNG") and image.endswith(b"IEND\xaeB`\x82")):
        raise InputError(f"{path}: {'is damaged' if image else 'is missing'}")
    return base64.b64encode(image).decode()


def _csv(path: Path) -> list[list[str]]:
    try:
        rows = list(csv.reader(path.read_text().splitlines()))
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read ({_reason(error)})") from None
    if not rows:
        raise InputError(f"{path}: is empty")
    return rows


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1e4 or not math.isfinite(value) else f"{value:.3e}".replace("e+", "e")
