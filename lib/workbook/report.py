"""Writes the report: one HTML page of figures, tables, claims with their verdicts, and provenance; it opens from disk.
Beside it lie a page for every claim, the executed notebooks, and verdicts as data.

A page of a claim says what the paper states, by which rule it is judged, what was measured, and how to do it again.
These lie in report/claims/, with one stylesheet, and pictures lie in report/figures/; nothing else is loaded. A file
that cannot be read does not hide the others: the page is written without it, and names it at the top.
"""

import collections
import contextlib
import csv
import dataclasses
import itertools
import json
import math
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pydantic
import yaml
from markupsafe import Markup

from lib.base import files
from lib.base.errors import DiskFull, one_line
from lib.base.machine import provenance
from lib.base.parameters import PROFILES
from lib.config import RunConfig
from lib.flops import run_flops
from lib.store.runs import RunStore
from lib.workbook import audit, claims, documents, pages, parameters, places, plans, verdicts
from lib.workbook.plans import read_plan

PAPERS = {
    "000": "Iso-depth scaling laws",
    "001": "Parcae: scaling laws for stable looped language models",
    "002": "Residual scaling of looped Transformers",
    "003": "Looped nanochat",
    "004": "Looped mixture of experts with early exit",
    "005": "Other groups, on the runs that they published",
    "006": "Ours: the form of the law, and faster generation",
    "007": "Faster generation, in the papers of several groups",
}
BEYOND = "Beyond the papers"
NO_CAUSE = ("jobs", "max_hours", "outputs")  # parameters that no number depends on
RATE = 2.5e10  # FLOP/s of a core: desk's 6.3e15 FLOPs took 70 core-hours


# ---- what is in a folder of outputs ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Row:
    """A claim at a profile. ``finding`` is None where nothing was measured."""

    claim: claims.Claim
    profile: str
    finding: claims.Finding | None = None

    @property
    def outcome(self) -> str:
        """The verdict, that there is no number, or that its notebook was not run."""
        return verdicts.outcome(vars(self.finding)) if self.finding else "not run here"

    @property
    def number(self) -> str:
        """In words; empty where there is none."""
        return verdicts.number(vars(self.finding)) if self.finding else ""

    @property
    def place(self) -> str:
        return verdicts.place({"profile": self.profile, "replicates": self.claim.replicates})

    @property
    def notebook(self) -> str:
        """Which measures it there; empty where none does."""
        return self.claim.published if self.profile == claims.PUBLISHED else self.claim.notebook or ""

    @property
    def figure(self) -> str:
        """The figure of the notebook that shows the claim, empty where none does."""
        return self.claim.published_figure if self.profile == claims.PUBLISHED else self.claim.figure


@dataclasses.dataclass(frozen=True)
class Item:
    """A figure or a table. ``content`` is a PNG, or the table's rows; ``stamp`` its provenance."""

    name: str
    profile: str
    content: Any
    stamp: dict[str, Any]

    @property
    def path(self) -> str:
        """Of the picture, in report/."""
        return f"figures/{self.profile}/{self.name}.png"

    @property
    def size(self) -> list[int]:
        """Width and height of a picture on a screen, where a figure as wide as a page, of 1,400 pixels, has 900."""
        return [round(0.64 * int.from_bytes(self.content[at : at + 4])) for at in (16, 20)]


@dataclasses.dataclass(frozen=True)
class Ran:
    """Of a notebook's last plan: the seed of each run and the seconds that it took, by FLOPs at RATE where it is not
    there; how many are there; and the FLOPs of each measurement that it asked for."""

    runs: list[tuple[int, float]] = dataclasses.field(default_factory=list)
    there: int = 0
    measurements: list[float] = dataclasses.field(default_factory=list)

    def seconds(self, seeds: Collection[int]) -> float:
        """Of one core for one more of ``seeds``: their runs and what was measured, divided by their number. Without
        seeds, for one more grid: everything."""
        own = sum(seconds for seed, seconds in self.runs if not seeds or seed in seeds)
        return (own + sum(self.measurements) / RATE) / max(1, len(seeds))


@dataclasses.dataclass
class Outputs:
    """Reads a folder of outputs. Each file that cannot be read becomes a line of ``problems``."""

    folder: Path
    problems: list[str] = dataclasses.field(default_factory=list)

    def rows(self, ledger: dict[str, claims.Claim], profile: str) -> list[Row]:
        """A row for every claim at this profile, and for those at other profiles, or on published runs, that have a
        finding. smoke judges nothing, and is shown only when it is asked for."""
        found = {}
        for other in [name for name in (*PROFILES, claims.PUBLISHED) if name == profile or name != "smoke"]:
            for path in sorted((self.folder / "claims" / other).glob("*.json")):
                if path.stem not in ledger:
                    self.problems.append(f"{path}: is of no claim in params/claims.yaml, remove it or add the claim")
                    continue
                row = Row(ledger[path.stem], other)
                with self._reading(path, profile if other == claims.PUBLISHED else other, row.notebook):
                    found[path.stem, other] = dataclasses.replace(row, finding=claims.read(path))
        return [
            found.get((claim.id, other), Row(claim, other))
            for claim in sorted(ledger.values(), key=lambda claim: claim.paper)
            for other in (*PROFILES, claims.PUBLISHED)
            if other == profile or (claim.id, other) in found
        ]

    def pages(self, profile: str) -> dict[str, str]:
        """Writes the executed notebooks as HTML; notebook -> why it failed, empty where it did not."""
        failures = {}
        for path in sorted((self.folder / "notebooks" / profile).glob("*.ipynb")):
            with self._reading(path, profile, path.stem):
                pages.page(path, self.folder / "report" / "notebooks" / profile / f"{path.stem}.html")
                failures[path.stem] = pages.failure(path)
        return failures

    def items(self, kind: str, profile: str, notebooks: Collection[str]) -> list[Item]:
        """The ``figures`` of a profile, or its ``tables``."""
        suffix = {"figures": ".png", "tables": ".csv"}[kind]
        folder, items = self.folder / kind / profile, []
        for name in sorted({path.stem for path in folder.glob("*") if path.suffix in (suffix, ".json")}):
            path = folder / f"{name}.json"
            with self._reading(path, profile, max(filter(name.startswith, notebooks), key=len, default="")):
                stamp = json.loads(path.read_text(encoding="utf-8"))
                if not isinstance(stamp, dict) or not {"notebook", "parameters", "commit", "device"} <= {*stamp}:
                    raise ValueError("it is no provenance")
                with self._reading(path.with_suffix(suffix), profile, stamp["notebook"]):
                    items.append(Item(name, profile, _content(path.with_suffix(suffix)), stamp))
        return items

    def runs(self, profile: str, notebook: str) -> Ran:
        """From the plan that the notebook noted when it last ran; without one, nothing."""
        store, ran = RunStore(self.folder / "runs", [self.folder / "records" / profile]), Ran()
        path = self.folder / "plans" / profile / f"{notebook}.json"
        with self._reading(path, profile, notebook):
            plan = read_plan(path)
            found = {key: store.find_key(key) for key in plan.get("runs", {})}
            runs = [(run.config.train.seed, run.summary["seconds"]) for run in found.values() if run]
            missing = [RunConfig(**plan["runs"][key]) for key, run in found.items() if not run]
            measured = [flops for asked in plan.get("measurements", {}).values() for flops in asked.values()]
            ran = Ran([*runs, *((cfg.train.seed, run_flops(cfg) / RATE) for cfg in missing)], len(runs), measured)
        self.problems += [line for line in store.problems if line not in self.problems]
        return ran

    def audited(self, profile: str) -> dict[str, Any] | None:
        """What the last audit came to; None where there was none."""
        with self._reading(Path("audits") / f"{profile}.json", remedy="run make audit again"):
            return audit.last(self.folder, profile)
        return None

    @contextlib.contextmanager
    def _reading(
        self, path: Path, profile: str = "", notebook: str = "", remedy: str = "run the notebook that wrote it again"
    ) -> Iterator[None]:
        """That a file cannot be read becomes a problem, with how to make it again."""
        if notebook:
            again = f"make reproduce-figures PROFILE={profile} ONLY={notebook}"
            remedy = f"run its notebook again: rm -f outputs/notebooks/{profile}/.{notebook}.done; {again}"
        try:
            yield
        except DiskFull:
            raise
        except (OSError, ValueError, csv.Error) as error:
            reason = getattr(error, "strerror", None) or str(error)
            if isinstance(error, pydantic.ValidationError):
                reason = one_line(error)
            self.problems.append(f"{path}: cannot be read ({reason}), {remedy}")


def _content(path: Path) -> Any:
    """Of a picture, its bytes; of a table, its rows. Raises ValueError where it is damaged."""
    if path.suffix == ".csv":
        rows = [*csv.reader(path.read_text(encoding="utf-8").splitlines())]
        if not rows:
            raise ValueError("it is empty")
        return [[re.sub(r"^'(?=[=+@-])", "", cell) for cell in row] for row in rows]  # which a spreadsheet needs
    image = path.read_bytes()
    if not (image.startswith(b"\x89PNG") and image.endswith(b"IEND\xaeB`\x82")):
        raise ValueError("it is damaged")
    return image


# ---- the report ------------------------------------------------------------------------------------------------------


def build(outputs: Path, profile: str) -> list[str]:
    """Writes outputs/report/index.html from what a profile made, and beside it the pages of claims and of executed
    notebooks, and verdicts as data.

    Returns a line for each file that could not be read; the page begins with these lines too. Raises InputError for a
    damaged ledger, and leaves the page that is there."""
    ledger = claims.ledger(places.LEDGER)
    papers = {name: paper for paper, names in plans.NOTEBOOKS.items() for name in names}
    found, report = Outputs(outputs), outputs / "report"
    rows = found.rows(ledger, profile)
    failures = {other: found.pages(other) for other in dict.fromkeys([profile, *(row.profile for row in rows)])}
    drawn: dict[tuple[str, str], list[Item]] = collections.defaultdict(list)
    for figure in [item for other in failures for item in found.items("figures", other, papers)]:
        drawn[figure.profile, figure.stamp["notebook"]].append(figure)
        put(report / figure.path, figure.content)
    tables = found.items("tables", profile, papers)
    audited = found.audited(profile)
    told = [
        verdicts.row_of(row.claim, row.finding)
        for row in rows
        if row.finding and row.profile in (profile, claims.PUBLISHED)
    ]
    runs = {(at, name): found.runs(at, name) for at in failures if at != claims.PUBLISHED for name in papers}
    made_by = [name for at, name in drawn if at == profile] + [table.stamp["notebook"] for table in tables]
    groups: dict[str, list[dict[str, Any]]] = {heading: [] for heading in [*PAPERS, BEYOND]}
    for name in dict.fromkeys([*papers, *failures[profile], *made_by]):
        path = places.NOTEBOOKS / f"{name}.ipynb"
        section = {
            "name": name,
            "title": pages.title(path) if path.exists() else name,
            "failure": failures[profile].get(name, ""),  # why its executed copy did not run to its end
            "figures": drawn.get((profile, name), []),
            "tables": [table for table in tables if table.stamp["notebook"] == name],
        }
        groups.get(papers.get(name, ""), groups[BEYOND]).append(section)
    said = {
        "profile": profile,
        "published": claims.PUBLISHED,
        "papers": PAPERS,
        "number": _number,
        "finite": math.isfinite,
        "fragile": claims.FRAGILE,
        "data": verdicts.write(outputs, profile, told, audited),
        "planned": plans.names(profile),
        "executed": {(other, name) for other, names in failures.items() for name in names},
        "by_seeds": lambda claim, finding: claims.by_seeds(claim, vars(finding)),
        "judgement": verdicts.judgement,
        "needs": {(row.claim.id, row.profile): _need(row, runs) for row in rows},
        "in_yaml": in_yaml,
        "drawn": drawn,
        "committed": {claim.id: documents.verdict(said) for claim, said in documents.judged().items() if said},
    }
    _write_claims(report, rows, runs=runs, command=command, **said)
    page = pages.TEMPLATES.get_template("report.html.j2").render(
        **said,
        claims=len(ledger),
        verdicts=verdicts,
        told=told,
        judges=profile not in claims.NOT_JUDGED,
        findings=[] if profile in claims.NOT_JUDGED else _findings(rows, profile),
        rows=[row for row in rows if row.finding],
        open=[row for row in rows if row.claim.id not in {row.claim.id for row in rows if row.finding}],
        says=documents.says,
        source=documents.place,
        groups=groups,
        binder=places.binder,
        beside=(report / "beside.html").exists(),
        problems=found.problems,
        audited=audit.told(audited),
        complaints=audited["complaints"] if audited else {},
        provenance="\n".join(f"{name}: {value}" for name, value in provenance().items()),
        disputed=claims.DISPUTED,
    )
    put(report / "index.html", page.encode())
    return found.problems


def _findings(rows: Sequence[Row], profile: str) -> list[list[Row]]:
    """Of each claim that README tells, where it was judged; what tells most first, as there."""
    order = [claims.CONTRADICTED, claims.REPRODUCED, *verdicts.OUTCOMES]
    judged = sorted(
        (row for row in rows if row.claim.short and row.finding and row.profile in (profile, claims.PUBLISHED)),
        key=lambda row: (order.index(row.outcome), row.profile != claims.PUBLISHED),
    )
    return [[row for row in judged if row.claim.id == id] for id in dict.fromkeys(row.claim.id for row in judged)]


def _need(row: Row, runs: Mapping[tuple[str, str], Ran]) -> str:
    """What would settle a claim; empty where nothing is unresolved."""
    if (
        not row.finding
        or row.profile == claims.PUBLISHED
        or row.finding.verdict not in (claims.UNRESOLVED, claims.DISPUTED)
    ):
        return ""
    seeds = row.finding.seeds if row.claim.replicates == "seeds" else []
    return claims.to_settle(row.claim, row.finding, runs.get((row.profile, row.notebook), Ran()).seconds(seeds) / 3600)


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1e4 or not math.isfinite(value) else f"{value:.3e}".replace("e+", "e")


# ---- the pages of claims ---------------------------------------------------------------------------------------------


def _write_claims(report: Path, rows: Sequence[Row], **said: Any) -> None:
    """A page for each claim of ``rows``, in that order, and the stylesheet. ``said``: what else the template names."""
    style = pages.TEMPLATES.get_template("style.css").render() + pages.TEMPLATES.get_template("claim.css").render()
    put(report / "style.css", style.encode())
    shown = {claim: [*its] for claim, its in itertools.groupby(rows, lambda row: row.claim)}
    order = [claim.id for claim in shown]
    beside = zip(["", *order], [*order[1:], ""], strict=False)
    explained = documents.explanations()
    # a link leads to another claim's page, for no document lies beside these
    in_html = pages.markdown(lambda url: f"{url.rpartition('#')[2]}.html" if "#" in url and "/" not in url else "")
    for (claim, every), (previous, following) in zip(shown.items(), beside, strict=True):
        text = pages.TEMPLATES.get_template("claim.html.j2").render(
            claim=claim,
            rule=rule(claim),
            says=documents.says(claim),
            explained=Markup(in_html(explained[claim.id])) if claim.id in explained else "",
            paper=[documents.source(entry) for entry in documents.cited().get(claim.paper, [])],
            every=every,
            previous=previous,
            next=following,
            **said,
        )
        put(report / "claims" / f"{claim.id}.html", text.encode())
    for path in (report / "claims").glob("*.html"):
        if path.stem not in order:
            files.remove(path)


def in_yaml(stamp: Mapping[str, Any]) -> str:
    """A provenance as a page shows it: without what is beside a figure in words."""
    shown = {name: value for name, value in stamp.items() if name not in ("alt", "heading", "n")}
    return yaml.dump(shown, Dumper=yaml.CSafeDumper, default_flow_style=None, width=100, allow_unicode=True)


def put(path: Path, content: bytes) -> None:
    """Writes a file unless it is there and the same."""
    if not path.exists() or path.read_bytes() != content:
        files.write(path, content)


def rule(claim: claims.Claim) -> str:
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
    at_profile = parameters.at_profile(parameters.kind_of(notebook), profile).model_dump()
    known = json.loads(json.dumps(at_profile))  # in JSON, as a finding has them, a width, say, that is a key is text
    given = made.get("parameters", {}) | made.get("cut_from", {})
    changed = parameters.changed(given, known, NO_CAUSE)
    if not changed:
        return f"make reproduce-figures PROFILE={profile} ONLY={notebook}"
    other = shlex.quote(yaml.safe_dump(changed, default_flow_style=True, width=1000).strip())
    return f"papermill notebooks/{notebook}.ipynb out.ipynb -p profile {profile} -y {other}"
