"""Writes the report: one HTML page of figures, tables, claims with their verdicts, and provenance; it opens from disk.
Beside it lie a page for every claim, the executed notebooks, and verdicts and runs as data.

A file that cannot be read does not hide the others: the page is written without it, and names it at the top.
"""

import base64
import collections
import csv
import dataclasses
import functools
import json
import math
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lib.base import files
from lib.base.errors import InputError
from lib.base.parameters import PROFILES
from lib.base.provenance import provenance
from lib.workbook import audit, claim_pages, claims, data_card, pages, places, power, ran, verdicts
from lib.workbook.claims import OF_PUBLISHED, PUBLISHED
from lib.workbook.ran import Ran

PAPERS = {
    "000": "Iso-depth scaling laws",
    "001": "Parcae: scaling laws for stable looped language models",
    "002": "Residual scaling of looped Transformers",
    "003": "Looped nanochat",
    "004": "Looped mixture of experts with early exit",
    "005": "Other groups, on the runs that they published",
}
BEYOND = "Beyond the papers"
Agreed = Callable[[str, Collection[str]], str]  # profile, keys of runs -> how many of those agreed in its audit


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

    @property
    def figure(self) -> str:
        """The figure of the notebook that shows the claim, empty where none does."""
        return self.claim.published_figure if self.profile == PUBLISHED else self.claim.figure


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
        return claim_pages.in_yaml(json.dumps({name: value for name, value in self.stamp.items() if name != "alt"}))

    @property
    def alt(self) -> str:
        """What a figure shows; its name where it has no words."""
        return self.stamp.get("alt") or f"figure {self.name.replace('_', ' ')}"


@dataclasses.dataclass(frozen=True)
class Section:
    """A notebook and what it made; ``failure`` says why its executed copy did not run to its end."""

    name: str
    title: Markup
    failure: str
    figures: list[Item]
    tables: list[Item]


@dataclasses.dataclass(frozen=True)
class Glance:
    """A paper at a profile, or on published runs: its claims by verdict, and the runs of its notebooks."""

    paper: str
    profile: str
    verdicts: collections.Counter[str]
    scale: str = ""
    hardware: str = ""
    hours: str = ""
    audited: str = ""


@dataclasses.dataclass
class Outputs:
    """Reads a folder of outputs. Each file that cannot be read becomes a line of ``problems``."""

    folder: Path
    problems: list[str] = dataclasses.field(default_factory=list)
    #: profile and notebook -> what ``runs`` has read
    _ran: dict[tuple[str, str], Ran] = dataclasses.field(default_factory=dict)

    def rows(self, ledger: dict[str, claims.Claim], profile: str) -> list[Row]:
        """A row for every claim at this profile, and for those at other profiles, or on published runs, that have a
        finding. smoke judges nothing, and is shown only when it is asked for."""
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
        needs = {
            (id, at): one
            for at in PROFILES
            for id, one in power.needs(readable[at], functools.partial(self.runs, at)).items()
        }
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

    def runs(self, profile: str, notebook: str) -> Ran:
        if (profile, notebook) not in self._ran:
            self._ran[profile, notebook] = self._runs(profile, notebook)
        return self._ran[profile, notebook]

    def _runs(self, profile: str, notebook: str) -> Ran:
        try:
            return ran.ran(self.folder, profile, notebook)
        except InputError as error:
            path = self.folder / "plans" / profile / f"{notebook}.json"
            self._complain(InputError(f"{path}: cannot be read ({error})"), profile, notebook)
            return Ran()

    def audited(self, profile: str) -> str:
        try:
            return audit.last(self.folder, profile)
        except (OSError, ValueError, KeyError, TypeError) as error:
            self.problems.append(f"audits/{profile}.json: cannot be read ({_reason(error)}), run make audit again")
            return ""

    def agreed(self, profile: str, keys: Collection[str]) -> str:
        """How many of these runs agreed when they were trained anew, empty where none was; ``audited`` says what is
        wrong with the file."""
        try:
            said = audit.summary(self.folder, profile)
        except (OSError, ValueError, KeyError, TypeError):
            return ""
        return audit.agreed(said, keys) if said else ""

    def _complain(self, error: InputError, profile: str, notebook: str | None) -> None:
        if notebook:
            again = f"make reproduce-figures PROFILE={profile} ONLY={notebook}"
            remedy = f"run its notebook again: rm -f outputs/notebooks/{profile}/.{notebook}.done; {again}"
        else:
            remedy = "run the notebook that wrote it again"
        self.problems.append(f"{error}, {remedy}")


def build(outputs: Path, profile: str) -> list[str]:
    """Writes outputs/report/index.html from what a profile made, and beside it the pages of claims and of executed
    notebooks, and verdicts and runs as data.

    Returns a line for each file that could not be read; the page begins with these lines too. Raises InputError for a
    damaged ledger, and leaves the page that is there."""
    ledger = claims.ledger(places.LEDGER)
    papers = _papers(ledger)
    found = Outputs(outputs)
    rows = found.rows(ledger, profile)
    failures = {other: found.pages(other) for other in dict.fromkeys([profile, *(row.profile for row in rows)])}
    figures_at = {other: found.figures(other, [*papers]) for other in failures}
    figures, tables = figures_at[profile], found.tables(profile, [*papers])
    made_by = {name: None for name in [*papers, *failures[profile], *(item.notebook for item in figures + tables)]}
    print(verdicts.write(outputs, profile, judged(rows, profile)))
    if (outputs / "records" / profile / verdicts.NAMES[0]).exists():
        data_card.write(outputs / "records" / profile, profile)
    groups: dict[str, list[Section]] = {heading: [] for heading in [*PAPERS, BEYOND]}
    for name in made_by:
        ours = [[item for item in items if item.notebook == name] for items in (figures, tables)]
        section = Section(name, _title(name), failures[profile].get(name, ""), *ours)
        groups[papers.get(name, BEYOND)].append(section)
    runs = {(at, name): found.runs(at, name) for at in failures if at != PUBLISHED for name in papers}
    executed = {(other, name) for other, names in failures.items() for name in names}
    said = {
        "published": PUBLISHED,
        "papers": PAPERS,
        "number": _number,
        "finite": math.isfinite,
        "fragile": claims.FRAGILE,
        "data": (outputs / "report" / verdicts.NAMES[0]).exists(),
    }
    shown = _shown(outputs / "report", rows, profile, figures_at, runs, executed)
    claim_pages.write(outputs / "report", shown, ledger, **said)
    page = pages.template("report.html.j2").render(
        **said,
        profile=profile,
        verdicts=claims.VERDICTS,
        rows=rows,
        side_by_side=(beside := _side_by_side(rows)),
        judged_at=[name for name in (*PROFILES, PUBLISHED) if any(name in found for found in beside.values())],
        counts=collections.Counter(row.verdict for row in rows),
        glances=_glances(rows, profile, papers, runs, found.agreed),
        groups=groups,
        binder=places.binder,
        order=[figure.name for sections in groups.values() for section in sections for figure in section.figures],
        executed=executed,
        problems=found.problems,
        audited=found.audited(profile),
        mixed=_mixed([*(item.stamp for item in figures + tables), *_provenances(rows, profile)]),
        provenance="\n".join(f"{name}: {value}" for name, value in provenance().items()),
        disputed=claims.DISPUTED,
    )
    with files.replacing(outputs / "report" / "index.html") as draft:
        draft.write_text(page, encoding="utf-8")
    return found.problems


def judged(rows: list[Row], profile: str) -> list[verdicts.Judged]:
    """The findings of a profile, and those on the papers' own runs."""
    ours = (row for row in rows if row.profile in (profile, PUBLISHED))
    return [verdicts.Judged(row.claim, row.finding) for row in ours if row.finding]


def _shown(
    report: Path,
    rows: list[Row],
    profile: str,
    figures_at: dict[str, list[Item]],
    runs: dict[tuple[str, str], Ran],
    executed: set[tuple[str, str]],
) -> dict[str, list[claim_pages.Shown]]:
    """Claim -> what its page shows, with pictures and tables of runs that are written on the way."""
    shown: dict[str, list[claim_pages.Shown]] = {}
    pictures: dict[tuple[str, str], list[claim_pages.Figure]] = {}
    for at, items in figures_at.items():
        for item in items:
            pictures.setdefault((at, item.notebook), []).append(_picture(report, at, item))
    tables = {one: _table_of_runs(report, *one, own) for one, own in runs.items() if own.runs}
    for row in rows:
        made = row.finding.provenance if row.finding else {}
        at, name = made.get("profile", profile if row.profile == PUBLISHED else row.profile), row.notebook or ""
        figures = pictures.get((at, name), [])
        shown.setdefault(row.claim.id, []).append(
            claim_pages.Shown(
                row,
                next((one for one in figures if one.name == row.figure), None),
                [one for one in figures if one.name != row.figure],
                f"notebooks/{at}/{name}.html" if (at, name) in executed else "",
                tables.get((at, name), ""),
                runs.get((at, name)),
                claim_pages.command(name, at, made) if name else "",
            )
        )
    return shown


def _picture(report: Path, profile: str, item: Item) -> claim_pages.Figure:
    path = f"figures/{profile}/{item.name}.png"
    claim_pages.put(report / path, base64.b64decode(str(item.content)))
    return claim_pages.Figure(item.name, path, item.alt)


def _table_of_runs(report: Path, profile: str, notebook: str, own: Ran) -> str:
    path = f"runs/{profile}/{notebook}.csv"
    claim_pages.put(report / path, ran.table(own.runs.values()).encode())
    return path


def _glances(
    rows: list[Row], profile: str, papers: dict[str, str], runs: dict[tuple[str, str], Ran], agreed: Agreed
) -> list[Glance]:
    """By paper: the asked profile, then others that have findings; without a profile at which none can be measured."""
    glances = []
    for paper in PAPERS:
        for at in (profile, *(name for name in (*PROFILES, PUBLISHED) if name != profile)):
            ours = [row for row in rows if row.claim.paper == paper and row.profile == at]
            if not any(row.notebook for row in ours):
                continue
            counts = collections.Counter(row.verdict for row in ours)
            if at == PUBLISHED:
                glances.append(Glance(paper, at, counts, "as published"))
                continue
            some = [own.runs for (where, name), own in runs.items() if where == at and papers[name] == paper]
            own = {key: run for found in some for key, run in found.items()}
            every = own.values()
            said = ran.scale(every), ran.hardware(every), ran.hours(every), agreed(at, own)
            glances.append(Glance(paper, at, counts, *said))
    return glances


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
