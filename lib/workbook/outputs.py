"""Reads a folder of outputs, for the report: findings, figures, tables, and the runs of the notebooks' plans.

A file that cannot be read does not hide the others: each becomes a line of ``Outputs.problems``.
"""

import base64
import contextlib
import csv
import dataclasses
import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pydantic

from lib.base.errors import one_line
from lib.base.parameters import PROFILES
from lib.config import RunConfig
from lib.flops import run_flops
from lib.store.runs import RunStore
from lib.workbook import audit, claims, pages
from lib.workbook.claims import PUBLISHED
from lib.workbook.plans import read_plan

RATE = 2.5e10  # FLOP/s of a core: desk's 6.3e15 FLOPs took 70 core-hours


@dataclasses.dataclass(frozen=True)
class Row:
    """A claim at a profile. ``finding`` is None where nothing was measured."""

    claim: claims.Claim
    profile: str
    finding: claims.Finding | None = None

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
    """A figure or a table. ``content`` is a PNG in base64, or the table's rows; ``stamp`` its provenance."""

    name: str
    profile: str
    content: Any
    stamp: dict[str, Any]

    @property
    def path(self) -> str:
        """Of the picture, in report/."""
        return f"figures/{self.profile}/{self.name}.png"

    @property
    def alt(self) -> str:
        """What a figure shows; its name where it has no words."""
        return self.stamp.get("alt") or f"figure {self.name.replace('_', ' ')}"


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
        for other in [name for name in (*PROFILES, PUBLISHED) if name == profile or name != "smoke"]:
            for path in sorted((self.folder / "claims" / other).glob("*.json")):
                if path.stem not in ledger:
                    self.problems.append(f"{path}: is of no claim in params/claims.yaml, remove it or add the claim")
                    continue
                row = Row(ledger[path.stem], other)
                with self._reading(path, profile if other == PUBLISHED else other, row.notebook):
                    found[path.stem, other] = dataclasses.replace(row, finding=claims.read(path))
        return [
            found.get((claim.id, other), Row(claim, other))
            for claim in sorted(ledger.values(), key=lambda claim: claim.paper)
            for other in (*PROFILES, PUBLISHED)
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
        store = RunStore(self.folder / "runs", [self.folder / "records" / profile])
        self.problems += [line for line in store.problems if line not in self.problems]
        path = self.folder / "plans" / profile / f"{notebook}.json"
        with self._reading(path, profile, notebook):
            plan = read_plan(path)
            found = {key: store.find_key(key) for key in plan.get("runs", {})}
            runs = [(run.config.train.seed, run.summary["seconds"]) for run in found.values() if run]
            missing = [RunConfig(**plan["runs"][key]) for key, run in found.items() if not run]
            measured = [flops for asked in plan.get("measurements", {}).values() for flops in asked.values()]
            return Ran([*runs, *((cfg.train.seed, run_flops(cfg) / RATE) for cfg in missing)], len(runs), measured)
        return Ran()

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
        except (OSError, ValueError, csv.Error) as error:
            reason = getattr(error, "strerror", None) or str(error)
            if isinstance(error, pydantic.ValidationError):
                reason = one_line(error)
            self.problems.append(f"{path}: cannot be read ({reason}), {remedy}")


def _content(path: Path) -> Any:
    """Of a picture, in base64; of a table, its rows. Raises ValueError where it is damaged."""
    if path.suffix == ".csv":
        rows = [*csv.reader(path.read_text(encoding="utf-8").splitlines())]
        if not rows:
            raise ValueError("it is empty")
        return [[re.sub(r"^'(?=[=+@-])", "", cell) for cell in row] for row in rows]  # which a spreadsheet needs
    image = path.read_bytes()
    if not (image.startswith(b"\x89PNG") and image.endswith(b"IEND\xaeB`\x82")):
        raise ValueError("it is damaged")
    return base64.b64encode(image).decode()
