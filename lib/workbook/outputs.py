"""Reads a folder of outputs, for the report: findings, figures, tables, and the runs of the notebooks' plans.

A file that cannot be read does not hide the others: each becomes a line of ``Outputs.problems``.
"""

import base64
import contextlib
import csv
import dataclasses
import functools
import json
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, TypeVar

import yaml

from lib.base.errors import InputError
from lib.base.parameters import PROFILES
from lib.config import RunConfig
from lib.flops import run_flops
from lib.store.result import RunResult
from lib.store.runs import RunStore
from lib.workbook import audit, claims, pages
from lib.workbook.claims import PUBLISHED
from lib.workbook.plans import read_plan

T = TypeVar("T")

RATE = 2.5e10  # FLOP/s of a core: desk's 6.3e15 FLOPs took 70 core-hours


@dataclasses.dataclass(frozen=True)
class Row:
    """A claim at a profile. ``finding`` is None where nothing was measured; ``need`` says what would settle it, empty
    where nothing is unresolved."""

    claim: claims.Claim
    profile: str
    finding: claims.Finding | None
    need: str

    @property
    def verdict(self) -> str:
        return self.finding.verdict if self.finding else claims.OPEN

    @property
    def notebook(self) -> str:
        """Which measures it there; empty where none does."""
        return self.claim.published if self.profile == PUBLISHED else self.claim.notebook or ""

    @property
    def figure(self) -> str:
        """The figure of the notebook that shows the claim, empty where none does."""
        return self.claim.published_figure if self.profile == PUBLISHED else self.claim.figure


@dataclasses.dataclass(frozen=True)
class Item:
    """A figure or a table. ``content`` is a PNG in base64, or the table's rows; ``stamp`` is the provenance beside it,
    empty where that is damaged."""

    name: str
    profile: str
    notebook: str
    content: str | list[list[str]]
    stamp: dict[str, Any]

    @property
    def path(self) -> str:
        """Of the picture, in report/."""
        return f"figures/{self.profile}/{self.name}.png"

    @property
    def provenance(self) -> str:
        return in_yaml(json.dumps({name: value for name, value in self.stamp.items() if name != "alt"}))

    @property
    def alt(self) -> str:
        """What a figure shows; its name where it has no words."""
        return self.stamp.get("alt") or f"figure {self.name.replace('_', ' ')}"


@functools.lru_cache(maxsize=4096)
def in_yaml(stamp: str) -> str:
    """A provenance, given as JSON, as a page shows it; what one run of a notebook made has the same."""
    return yaml.safe_dump(json.loads(stamp), default_flow_style=None, width=100, allow_unicode=True)


# ---- what a notebook ran ---------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Ran:
    """Of a notebook's last plan: the runs that are there, by key, those that are not, and the FLOPs of each measurement
    that it asked for."""

    runs: dict[str, RunResult] = dataclasses.field(default_factory=dict)
    missing: list[RunConfig] = dataclasses.field(default_factory=list)
    measurements: list[float] = dataclasses.field(default_factory=list)

    def seconds(self, seeds: Collection[int]) -> float:
        """Of one core for one more of ``seeds``: their runs and what was measured, divided by their number. Without
        seeds, for one more grid: everything. A run that is not there takes its FLOPs at RATE."""
        took = [(run.config.train.seed, run.summary["seconds"]) for run in self.runs.values()]
        took += [(cfg.train.seed, run_flops(cfg) / RATE) for cfg in self.missing]
        own = sum(seconds for seed, seconds in took if not seeds or seed in seeds)
        return (own + sum(self.measurements) / RATE) / max(1, len(seeds))


def ran(outputs: Path, profile: str, notebook: str) -> Ran:
    """From the plan that the notebook noted when it last ran; without one, nothing. Raises InputError for the plan of
    another version."""
    path = outputs / "plans" / profile / f"{notebook}.json"
    plan = read_plan(path)
    store = RunStore(outputs / "runs", [outputs / "records" / profile])
    planned = plan.get("runs", {})
    found = {key: run for key in planned if (run := store.find_key(key))}
    try:
        missing = [RunConfig(**fields) for key, fields in planned.items() if key not in found]
    except InputError as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    return Ran(found, missing, [flops for asked in plan.get("measurements", {}).values() for flops in asked.values()])


# ---- a folder --------------------------------------------------------------------------------------------------------


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
                row = Row(ledger[path.stem], other, None, "")
                with self._complaining(profile if other == PUBLISHED else other, row.notebook):
                    found[path.stem, other] = claims.read(path)
        return [
            self._row(claim, other, found.get((claim.id, other)))
            for claim in sorted(ledger.values(), key=lambda claim: claim.paper)
            for other in (*PROFILES, PUBLISHED)
            if other == profile or (claim.id, other) in found
        ]

    def _row(self, claim: claims.Claim, profile: str, finding: claims.Finding | None) -> Row:
        need = ""
        if finding and profile != PUBLISHED and finding.verdict in (claims.UNRESOLVED, claims.DISPUTED):
            seeds = finding.seeds if claim.replicates == "seeds" else []
            seconds = self.runs(profile, claim.notebook or "").seconds(seeds)
            need = claims.to_settle(claim, finding, seconds / 3600)
        return Row(claim, profile, finding, need)

    def pages(self, profile: str) -> dict[str, str]:
        """Writes the executed notebooks as HTML; notebook -> why it failed, empty where it did not."""
        failures = {}
        for path in sorted((self.folder / "notebooks" / profile).glob("*.ipynb")):
            with self._complaining(profile, path.stem):
                pages.page(path, self.folder / "report" / "notebooks" / profile / f"{path.stem}.html")
                failures[path.stem] = pages.failure(path)
        return failures

    def items(self, kind: str, profile: str, notebooks: list[str]) -> list[Item]:
        """The figures of a profile, or its tables."""
        suffix, read = KINDS[kind]
        folder = self.folder / kind / profile
        items = []
        for name in sorted({path.stem for path in folder.glob("*") if path.suffix in (suffix, ".json")}):
            prefixes = [notebook for notebook in notebooks if name.startswith(notebook)]
            notebook, stamp = max(prefixes, key=len, default=""), {}
            with self._complaining(profile, notebook):
                stamp = _readable(folder / f"{name}.json", _stamp)
                notebook = stamp["notebook"]
            with self._complaining(profile, notebook):
                content = _readable(folder / f"{name}{suffix}", read)
                items.append(Item(name, profile, notebook, content, stamp))
        return items

    def runs(self, profile: str, notebook: str) -> Ran:
        """What a notebook ran, which is read once."""
        if (profile, notebook) not in self._ran:
            self._ran[profile, notebook] = Ran()
            with self._complaining(profile, notebook):
                self._ran[profile, notebook] = ran(self.folder, profile, notebook)
            left_out = RunStore(self.folder, [self.folder / "records" / profile]).problems
            self.problems += [line for line in left_out if line not in self.problems]
        return self._ran[profile, notebook]

    def audited(self, profile: str) -> dict[str, Any] | None:
        """What the last audit came to; None where there was none."""
        try:
            return audit.last(self.folder, profile)
        except (OSError, ValueError) as error:
            self.problems.append(f"audits/{profile}.json: cannot be read ({_reason(error)}), run make audit again")
            return None

    @contextlib.contextmanager
    def _complaining(self, profile: str, notebook: str) -> Iterator[None]:
        """An InputError of the block becomes a problem, with how to make again what it names."""
        remedy = "run the notebook that wrote it again"
        if notebook:
            again = f"make reproduce-figures PROFILE={profile} ONLY={notebook}"
            remedy = f"run its notebook again: rm -f outputs/notebooks/{profile}/.{notebook}.done; {again}"
        try:
            yield
        except InputError as error:
            self.problems.append(f"{error}, {remedy}")


def _readable(path: Path, read: Callable[[Path], T]) -> T:
    """What ``read`` makes of a file. Raises InputError where it cannot."""
    try:
        return read(path)
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read ({_reason(error)})") from None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _stamp(path: Path) -> dict[str, Any]:
    stamp = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(stamp, dict) or not {"notebook", "parameters", "commit", "device"} <= {*stamp}:
        raise ValueError("it is no provenance")
    return stamp


def _png(path: Path) -> str:
    image = path.read_bytes()
    if not (image.startswith(b"\x89PNG") and image.endswith(b"IEND\xaeB`\x82")):
        raise ValueError("it is damaged")
    return base64.b64encode(image).decode()


def _csv(path: Path) -> list[list[str]]:
    rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    if not rows:
        raise ValueError("it is empty")
    return [[re.sub(r"^'(?=[=+@-])", "", cell) for cell in row] for row in rows]  # which a spreadsheet needs


#: folder -> what ends the names of its files, and what reads one
KINDS: dict[str, tuple[str, Callable[[Path], Any]]] = {"figures": (".png", _png), "tables": (".csv", _csv)}
