"""The runs of the notebooks' plans that are there: how large, on what, how long; and as a table for other tools."""

import csv
import dataclasses
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lib.config import RunConfig
from lib.figures.style import short
from lib.flops import count
from lib.store.result import RunResult
from lib.store.runs import RunStore
from lib.workbook.notebook import read_plan

ENDS = ("val_loss", "tokens", "train_flops", "seconds")
MADE_BY = ("device", "cpu", "commit")


@dataclasses.dataclass(frozen=True)
class Ran:
    """Of a notebook's last plan: the runs that are there, by key, those that are not, and the FLOPs of each measurement
    that it asked for."""

    runs: dict[str, RunResult] = dataclasses.field(default_factory=dict)
    missing: list[RunConfig] = dataclasses.field(default_factory=list)
    measurements: list[float] = dataclasses.field(default_factory=list)

    @property
    def planned(self) -> int:
        """How many runs it asked for."""
        return len(self.runs) + len(self.missing)


def ran(outputs: Path, profile: str, notebook: str) -> Ran:
    """From the plan that the notebook noted when it last ran; without one, nothing. Raises InputError for the plan of
    another version."""
    plan = read_plan(outputs / "plans" / profile / f"{notebook}.json")
    store = RunStore(outputs / "runs", [outputs / "records" / profile])
    planned = plan.get("runs", {})
    found = {key: run for key in planned if (run := store.find_key(key))}
    missing = [RunConfig(**fields) for key, fields in planned.items() if key not in found]
    return Ran(found, missing, [flops for asked in plan.get("measurements", {}).values() for flops in asked.values()])


def scale(runs: Iterable[RunResult]) -> str:
    """From the smallest model and the shortest training to the largest and longest."""
    every = [*runs]
    if not every:
        return ""
    sizes = [count(run.config.model).n_params for run in every]
    return f"{len(every)} runs: {_range(sizes)} parameters, {_range([run.config.tokens for run in every])} tokens"


def _range(values: list[int]) -> str:
    low, high = short(min(values)), short(max(values))
    return low if low == high else f"{low} to {high}"


def hardware(runs: Iterable[RunResult]) -> str:
    """The accelerators, or the processors where there was none, that trained them."""
    return ", ".join(sorted({_machine(run.provenance) for run in runs}))


def _machine(made_by: dict[str, Any]) -> str:
    return str(made_by.get("cpu") or made_by["device"]) if _by_processor(made_by) else str(made_by["device"])


def _by_processor(made_by: dict[str, Any]) -> bool:
    return str(made_by.get("device", "")).startswith("cpu")


def hours(runs: Iterable[RunResult]) -> str:
    """What they took in all: core-hours of what processors trained, GPU-hours of the rest."""
    spent = {"core-hours": 0.0, "GPU-hours": 0.0}
    for run in runs:
        at_once = (run.provenance.get("processes") or 1) if not _by_processor(run.provenance) else 1
        spent["core-hours" if _by_processor(run.provenance) else "GPU-hours"] += run.summary["seconds"] * at_once / 3600
    return ", ".join(f"{took:.2g} {unit}" for unit, took in spent.items() if took)


def table(runs: Iterable[RunResult]) -> str:
    """CSV, a row a run: its key, the fields of its config in which the runs differ, and how it ended on what."""
    every = [*runs]
    configs = [_flat(run.config) for run in every]
    names = dict.fromkeys(name for config in configs for name in config)
    differ = [name for name in names if len({repr(config.get(name)) for config in configs}) > 1]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["key", *differ, "status", *ENDS, *MADE_BY])
    for run, config in zip(every, configs, strict=True):
        end = [run.summary.get(name) for name in ENDS]
        made_by = [run.provenance.get(name) for name in MADE_BY]
        writer.writerow([run.key, *(config.get(name) for name in differ), run.status, *end, *made_by])
    return text.getvalue()


def _flat(config: RunConfig) -> dict[str, Any]:
    dumped = config.model_dump(mode="json")  # a store has no paths
    return {f"{part}.{field}": value for part, fields in dumped.items() for field, value in fields.items()}
