"""Records: runs of a profile trained within a limit of time, the most telling first, and packed to be committed.

    outputs/records/<profile>/<key>/       config, result (status, summary, who made it), metrics at reduced resolution,
                                           what was noted beside the run, and checksums of these; no weights
    outputs/records/<profile>/measured/    what notebooks measured without training, each with its checksum

A record is a directory, or a file, named by what it holds: two people's records are merged by copying what the other
does not have, and where both have a key the first is kept.
"""

import collections
import concurrent.futures
import contextlib
import hashlib
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lib.base import files, processes
from lib.base.errors import InputError
from lib.config import RunConfig
from lib.store.runs import CHECKSUMS, UNREADABLE, RunResult, RunStore, read_run
from lib.sweep import measurements
from lib.sweep.cost import run_flops
from lib.sweep.time_limit import STOPPED, train_until
from lib.workbook import plans
from lib.workbook.places import ROOT

POINTS = 125  # of a packed curve; spectra, logged about a hundred times, fit into it in runs of 400 steps and more
DIGITS = 7  # of a packed curve's numbers, which are means of fp32 numbers
BESIDE = ("config.json", "result.json", "metrics.json", CHECKSUMS)  # what is no note


# ---- the order -------------------------------------------------------------------------------------------------------


def by_value(configs: Sequence[RunConfig]) -> list[RunConfig]:
    """Distinct runs, the most telling first: every cell of a grid with its first seed before any second seed, so that a
    half-finished grid is still a grid; within a seed the cheap before the expensive, so that a small budget is complete
    for all models before the next begins. A run's seed is first, second, ... among the runs that differ in
    nothing else, as the plan lists them."""
    unique = list({cfg.key: cfg for cfg in configs}.values())
    seeds_before: collections.Counter[str] = collections.Counter()
    rank = {}
    for cfg in unique:
        cell = cfg.replace(train=cfg.train.replace(seed=0)).key
        rank[cfg.key] = seeds_before[cell]
        seeds_before[cell] += 1
    return sorted(unique, key=lambda cfg: (rank[cfg.key], run_flops(cfg)))


# ---- packing ---------------------------------------------------------------------------------------------------------


def reduced(metrics: dict[str, list[Any]], points: int = POINTS) -> dict[str, list[Any]]:
    """At most ``points`` rows of a curve, their numbers to seven digits.

    The first and the last row stay; then the rows in which most columns were measured, which are those of validations
    and traces, then those of spectra, then the others. Where not all rows of a kind fit, evenly spaced ones do.
    """
    rows = len(metrics.get("step", []))
    measured = [sum(not math.isnan(column[i]) for column in metrics.values()) for i in range(rows)]
    kept = {0, rows - 1} if rows else set()
    for much in sorted(set(measured), reverse=True):
        kind = [i for i in range(rows) if measured[i] == much and i not in kept]
        room = max(0, points - len(kept))
        places = range(len(kind)) if len(kind) <= room else np.linspace(0, len(kind) - 1, room).round().astype(int)
        kept |= {kind[place] for place in places}
    return {name: [_rounded(column[i]) for i in sorted(kept)] for name, column in metrics.items()}


def _rounded(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.{DIGITS}g}")


def pack(configs: Sequence[RunConfig], store: RunStore, folder: Path) -> int:
    """Makes a record under ``folder`` of each of these runs that ``store`` itself has; returns how many it wrote.

    What is a record already stays, unless it is damaged, or was made from this very run and something has been noted
    beside the run since then."""
    own = RunStore(store.path)
    return sum(_pack(found, folder / found.key) for cfg in configs if (found := own.find(cfg)) is not None)


def _pack(result: RunResult, place: Path) -> bool:
    contents = _contents(result)
    if place.is_dir():
        with contextlib.suppress(*UNREADABLE):
            read_run(place, with_weights=False)
            same_run = (place / "result.json").read_text() == contents["result.json"]
            unchanged = {path.name for path in place.glob("*.json")} == contents.keys() and all(
                (place / name).read_text() == text for name, text in contents.items()
            )
            if unchanged or not same_run:
                return False
    with files.replacing(place) as draft:
        draft.mkdir()
        for name, text in contents.items():
            (draft / name).write_text(text)
        files.remove(place)  # a directory takes no other's place; what it was made from is still in the store
    return True


def _contents(result: RunResult) -> dict[str, str]:
    """File -> text of a record."""
    fields = {"status": result.status, "summary": result.summary, "provenance": result.provenance}
    contents = {
        "config.json": result.config.without_paths().model_dump_json(indent=1),
        "result.json": json.dumps(fields, indent=1),
        "metrics.json": json.dumps({"columns": reduced(result.metrics)}, separators=(",", ":")),
    }
    notes = [path for path in sorted(result.folder.glob("*.json")) if path.name not in BESIDE]
    contents |= {path.name: path.read_text() for path in notes}
    sums = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in contents.items()}
    return {**contents, CHECKSUMS: files.sealed(sums)}


def pack_measured(asked: dict[str, dict[str, float]], store: RunStore, folder: Path) -> int:
    """The same for measurements: of function -> keys of its cases, those that lie beside the store's runs."""
    written = 0
    for function, keys in asked.items():
        for key in keys:
            source, place = (root / "measured" / function / f"{key}.json" for root in (store.path.parent, folder))
            if _readable(source) and not _readable(place):
                files.write_checked(place, files.read_checked(source))
                written += 1
    return written


def _readable(path: Path) -> bool:
    try:
        measurements.read(path)
    except UNREADABLE:  # there is none, or a damaged one
        return False
    return True


# ---- make records ----------------------------------------------------------------------------------------------------


def make(names: Sequence[str], profile: str, minutes: float | None, jobs: int, outputs: Path = ROOT / "outputs") -> int:
    """Trains what these notebooks plan and neither the store nor a record has, for so many minutes (all of it when
    None), then packs every finished run of theirs and what they measured. Returns an exit status: 0, also where the
    limit stopped it, and 1 where a run failed.

    Notebooks are served in the order given, and all of them as one grid where none is named; jobs: processes, 0 for
    one a core (one on a GPU). Raises InputError for what it cannot work with."""
    if minutes is not None and not 0 < minutes < math.inf:
        raise InputError(f"MINUTES: {minutes:g} is no time to train in, use a positive number")
    until = math.inf if minutes is None else time.monotonic() + 60 * minutes
    folder = outputs / "records" / profile
    store = RunStore(outputs / "runs", records=[folder])
    every = {name: plans.plan(name, profile) for name in names or plans.names()}
    grids = [plan.runs for plan in every.values()]
    grids = grids if names else [[cfg for grid in grids for cfg in grid]]
    configs = list({cfg.key: cfg for grid in grids for cfg in by_value(grid)}.values())
    todo = [cfg for cfg in configs if store.find(cfg) is None]
    print(f"{len(todo)} of {len(configs)} runs are missing: {sum(map(run_flops, todo)):.3g} FLOPs", flush=True)

    outcomes = train_until(until, todo, store, min(processes.processes(jobs or None), len(todo) or 1))
    failed = {key: why for key, why in outcomes.items() if why not in ("", STOPPED)}
    left = sum(why == STOPPED for why in outcomes.values())
    for key, why in failed.items():
        print(f"run {key} failed: {why}")
    packed = pack(configs, store, folder)
    measured = 0
    for name, plan in every.items():
        asked = plans.read(outputs / "plans" / profile / f"{name}.json").measurements  # also what was known only later
        measured += sum(pack_measured(part, store, folder) for part in (plan.measurements, asked))
    begun = sum(store.partial(key).exists() for key, why in outcomes.items() if why == STOPPED)
    print(
        f"{len(todo) - left - len(failed)} runs finished, {left} are left{f' ({begun} begun)' if begun else ''}"
        f"{f', {len(failed)} failed' if failed else ''}; the same command goes on where this one stopped"
        if todo
        else "nothing to train"
    )
    print(f"records    {packed} runs and {measured} measurements were packed into outputs/records/{profile}/")
    return bool(failed)


def main(names: Sequence[str], profile: str, minutes: str, jobs: int) -> None:
    """``make`` for the Makefile: complaints are one line, and an interrupt is none."""
    try:
        status = make(names, profile, float(minutes) if minutes else None, jobs)
    except (InputError, OSError, concurrent.futures.BrokenExecutor) as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        print("interrupted: what was begun goes on from its checkpoints, and what is finished is packed, another time")
        raise SystemExit(130) from None
    raise SystemExit(status)
