"""``make audit``: runs drawn at random from a profile's committed records, trained anew on this machine, and compared.

On a machine of the class that trained a run (``machine.CLASS``) every number is the same to the last digit. On another
the first logged losses agree to 1e-4, and the last one to within twice the spread of the run's seeds. Random states are
drawn on the device that trains: the Makefile hides a GPU from what was recorded on CPUs.
"""

import concurrent.futures
import dataclasses
import itertools
import math
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lib.base import files, processes
from lib.base.errors import InputError
from lib.base.machine import CLASS
from lib.base.provenance import provenance
from lib.config import RunConfig
from lib.store.result import RunResult
from lib.store.runs import RunStore
from lib.sweep.time_limit import STOPPED, Job, train_until
from lib.workbook import places

FIRST = 3  # logged losses that are compared across classes of machines
CLOSE = 1e-4  # relative
CLOCKS = ("seconds", "tokens_per_s")  # what is measured by the clock


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A run that was trained anew. ``complaint`` is empty where it agrees with its record. ``first`` and ``last`` say
    how far it is from that: the largest relative difference of the first logged losses, and the last validation loss's
    difference in standard deviations of the cell's seeds; None where there are no such numbers."""

    key: str
    same_class: bool
    complaint: str
    first: float | None = None
    last: float | None = None

    @property
    def text(self) -> str:
        if self.complaint or self.same_class:
            return self.complaint or "the same to the last digit"
        parts = [f"its first losses to {self.first:.1g}"] if self.first is not None else []
        parts += [f"its end to {self.last:.2g} of the seeds' spread"] if self.last is not None else []
        return ", ".join(["agrees, on a machine of another class", *parts])


def audit(profile: str, minutes: float, seed: int, jobs: int, outputs: Path = places.ROOT / "outputs") -> list[Outcome]:
    """Trains runs of a profile's records anew, drawn by ``seed``, as many as fit into so many minutes; keeps what came
    of it for the report. Raises InputError where there is nothing to audit, or no run was finished in time."""
    if not 0 < minutes < math.inf:
        raise InputError(f"MINUTES: {minutes:g} is no time to audit in, use a positive number")
    begin = time.monotonic()
    recorded = RunStore(outputs / "none", [outputs / "records" / profile]).runs()
    if not recorded:
        raise InputError(f"PROFILE: {profile} has no records of this version to audit, use one of outputs/records/")
    jobs, known = processes.processes(jobs or None), spreads(recorded)
    drawn = draw(recorded, 60 * minutes * jobs, 60 * minutes, seed)
    print(f"{len(drawn)} of {len(recorded)} runs are trained anew", flush=True)
    again = RunStore(outputs / f".audit-{profile}")
    files.remove(again.path)  # of one that was killed
    try:
        outcomes = train_until(begin + 60 * minutes, [Job(run.config) for run in drawn], again, min(jobs, len(drawn)))
        compared = []
        for run in drawn:
            why = outcomes[f"run {run.key}"]
            if why == STOPPED:
                continue
            if why:
                compared.append(Outcome(run.key, False, f"could not be trained: {why}"))
                continue
            now, of_seeds = again.get(run.config), spread(run.config, known)
            same_class = _class(run.provenance) == _class(now.provenance)
            complaint = difference(run, now, same_class, of_seeds)
            compared.append(Outcome(run.key, same_class, complaint, *how_far(run, now, of_seeds)))
    finally:
        files.remove(again.path)
    if not compared:
        raise InputError(f"MINUTES: {minutes:g} were too few to train one of {len(drawn)} drawn runs, give more")
    said = {"seed": seed, "minutes": minutes, "runs": len(recorded), "drawn": len(drawn), "provenance": provenance()}
    files.write_checked(
        outputs / "audits" / f"{profile}.json", {**said, "compared": [dataclasses.asdict(one) for one in compared]}
    )
    return compared


def draw(recorded: Sequence[RunResult], seconds: float, most: float, seed: int) -> list[RunResult]:
    """Runs in an order drawn by ``seed``, those that take no more than what is left of ``seconds``, and no more than
    ``most`` each, as they took when they were recorded; at least the first."""
    by_key = sorted(recorded, key=lambda run: run.key)
    chosen: list[RunResult] = []
    for place in np.random.default_rng(seed).permutation(len(by_key)):
        run = by_key[place]
        if not chosen or run.summary["seconds"] <= min(seconds, most):
            chosen.append(run)
            seconds -= run.summary["seconds"]
    return chosen


def _class(made_by: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(made_by.get(name) for name in (*CLASS, "attention", "compiled", "processes"))


def spreads(recorded: Sequence[RunResult]) -> dict[str, float]:
    """Cell -> the standard deviation of the last validation loss over its seeds, of those that have several."""
    cells: dict[str, list[float]] = {}
    for run in recorded:
        if run.status == "finished":
            cells.setdefault(_cell(run.config), []).append(run.summary["val_loss"])
    return {cell: statistics.stdev(losses) for cell, losses in cells.items() if len(losses) > 1}


def spread(cfg: RunConfig, known: dict[str, float]) -> float:
    """Of a run's cell; where that has one seed, the median of all cells; nan where none has two."""
    return known.get(_cell(cfg), statistics.median(known.values()) if known else math.nan)


def _cell(cfg: RunConfig) -> str:
    return cfg.replace(train=cfg.train.replace(seed=0)).key


def difference(record: RunResult, again: RunResult, same_class: bool, spread: float) -> str:
    """What of a run differs from its record by more than it may; empty where nothing does."""
    if record.status != again.status:
        return f"it {again.status}, and {record.status} when it was recorded"
    return _any_digit(record, again) if same_class else _beyond(record, again, spread)


def _any_digit(record: RunResult, again: RunResult) -> str:
    for name, value in record.summary.items():
        if name not in CLOCKS and not _same(value, again.summary.get(name)):
            return f"{name} is {again.summary.get(name)!r}, and was {value!r}"
    at = {step: i for i, step in enumerate(again.metrics.get("step", []))}
    for name, column in record.metrics.items():
        for step, value in zip(record.metrics["step"], column, strict=True):
            now = again.metrics[name][at[step]] if step in at and name in again.metrics else None
            if name not in CLOCKS and not (now is not None and _same(np.float32(value), np.float32(now))):
                return f"{name} of step {step} is {now!r}, and was {value!r}"
    return ""


def _same(a: Any, b: Any) -> bool:
    return bool(a == b or (a != a and b is not None and b != b))


def how_far(record: RunResult, again: RunResult, spread: float) -> tuple[float | None, float | None]:
    """``first`` and ``last`` of an Outcome."""
    first = float(np.max([abs(now / was - 1) for _, was, now in _first_losses(record, again)] or math.nan))
    apart = abs(again.summary["val_loss"] - record.summary["val_loss"]) / (spread or math.nan)
    return first if math.isfinite(first) else None, apart if math.isfinite(apart) else None


def _first_losses(record: RunResult, again: RunResult) -> list[tuple[float, float, float]]:
    """(step, loss as recorded, loss now) of the first logged steps; nan for a step that is missing."""
    now = dict(zip(again.metrics["step"], again.metrics["loss"], strict=True))
    recorded = zip(record.metrics["step"], record.metrics["loss"], strict=True)
    return [(step, was, now.get(step, math.nan)) for step, was in itertools.islice(recorded, FIRST)]


def _beyond(record: RunResult, again: RunResult, spread: float) -> str:
    for step, was, now in _first_losses(record, again):
        if not (_same(was, now) or abs(now / was - 1) <= CLOSE):
            return f"the loss of step {step} is {now!r}, and was {was!r}"
    was, last = record.summary["val_loss"], again.summary["val_loss"]
    if record.status == "finished" and abs(last - was) > 2 * spread:  # which is nan where no cell has two seeds
        return f"val_loss is {last:.6f}, and was {was:.6f}, where seeds differ by {spread:.6f}"
    return ""


def last(outputs: Path, profile: str) -> str:
    """A line on the last audit of a profile; empty where there was none."""
    said = summary(outputs, profile)
    if said is None:
        return ""
    line = (
        f"Last audit: of {said['runs']} recorded runs {said['drawn']} were drawn (seed {said['seed']}), and "
        f"{said['compared']} trained anew in time on {said['device']}, {said['cpu']}, "
        f"{said['same_class']} of them on a machine of the recording's class; {said['agree']} agree."
    )
    if said["first"] is not None:
        line += f" Across classes first losses differ by up to {said['first']:.1g}."
    if said["last"] is not None:
        line += f" Across classes ends differ by {said['last']:.2g} of the seeds' spread in the median."
    return line + "".join(f" Run {key} does not: {complaint}." for key, complaint in said["complaints"].items())


def summary(outputs: Path, profile: str) -> dict[str, Any] | None:
    """What the last audit of a profile came to, in numbers: ``compared`` runs were trained anew in time, ``keys`` are
    theirs, ``complaints`` says by key what differs; of the runs that another class of machine had recorded, ``first``
    is the largest of their ``first`` and ``last`` the median of their ``last``. None where there was no audit."""
    path = outputs / "audits" / f"{profile}.json"
    if not path.exists():
        return None
    said = files.read_checked(path)
    compared = [Outcome(**one) for one in said["compared"]]
    wrong = {one.key: one.complaint for one in compared if one.complaint}
    across = [one for one in compared if not one.same_class]
    firsts = [one.first for one in across if one.first is not None]
    lasts = [one.last for one in across if one.last is not None]
    return {
        **{name: said[name] for name in ("runs", "drawn", "seed")},
        "compared": len(compared),
        "same_class": sum(one.same_class for one in compared),
        "agree": len(compared) - len(wrong),
        "first": max(firsts, default=None),
        "last": statistics.median(lasts) if lasts else None,
        "complaints": wrong,
        "keys": [one.key for one in compared],
        **{name: said["provenance"][name] for name in ("commit", "device", "cpu")},
    }


def main(profile: str, minutes: str, seed: str, jobs: int) -> None:
    """``audit`` for the Makefile: a line a run; it fails where one does not agree."""
    try:
        compared = audit(profile, float(minutes or 10), int(seed or 0), jobs)
    except (InputError, OSError, concurrent.futures.BrokenExecutor) as error:
        raise SystemExit(str(error)) from None
    for one in compared:
        print(f"run {one.key}  {one.text}")
    wrong = sum(bool(one.complaint) for one in compared)
    print(f"audit      {len(compared) - wrong} of {len(compared)} runs agree with their records")
    raise SystemExit(bool(wrong))
