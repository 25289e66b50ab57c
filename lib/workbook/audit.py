"""``make audit``: runs drawn at random from a profile's committed records, trained anew on this machine, and compared.

On a machine of the class that trained a run (``machine.CLASS``) every number is the same to the last digit. On another
those losses of the first ten steps that the record has agree to ``TOLERANCE``, and the end, the last validation loss,
lies where a further seed of its cell would: in the prediction interval

    mean +- t s sqrt(1 + 1/n),    s^2 = (2 s_0^2 + (n - 1) s_c^2) / (2 + n - 1)

of the cell's n seeds, whose variance is s_c^2. Most cells have four, too few to tell a spread: s_0^2, the mean variance
of the neighbours (the cells with their optimiser, width, text and, to a factor of two, steps), counts as two degrees of
freedom more (Smyth 2004, doi:10.2202/1544-6115.1027), as many as the cells' variances scatter by. t is Student's with
n + 1 degrees of freedom, at 1 % for all runs that were drawn together. Random states are drawn on the device that
trains: the Makefile hides a GPU from what was recorded on CPUs.
"""

import dataclasses
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.special

from lib.base import files, processes
from lib.base.errors import InputError, in_one_line
from lib.base.machine import CLASS, provenance
from lib.config import RunConfig
from lib.store.result import RunResult
from lib.store.runs import RunStore
from lib.sweep.training import STOPPED, Job, train_until
from lib.workbook import places, verdicts

#: Optimiser -> by which a loss of the first ten steps may differ, relative: ten times the largest difference that was
#: measured at the step or before it, to 1, 2 or 5. It was measured on 60 to 220 of desk's runs by optimiser, with
#: experts and without, between AVX-512 and AVX2, with the kernels and without them.
TOLERANCE = {
    "adamw": (2e-6, 2e-6, 5e-6, 5e-6, 5e-6, 1e-5, 1e-5, 2e-5, 2e-5, 1e-4),
    "muon": (2e-6, 5e-6, 5e-6, 1e-5, 2e-5, 5e-5, 5e-5, 5e-5, 2e-4, 5e-3),
    "muonh": (2e-6, 5e-6, 2e-5, 5e-5, 2e-4, 2e-3, 2e-3, 2e-3, 2e-3, 2e-3),
}
ERROR = 0.01  # the chance that one of the runs drawn together ends outside though each is as good as a further seed
NEIGHBOURS = 2  # degrees of freedom that the neighbours' spread counts as
RULE = "second rule: the first ten steps to a tolerance by step and optimiser, ends in a prediction interval"
#: that of audits which name none
FORMER = "first rule: the first three logged losses to 1e-4, ends within twice the spread of the cell's seeds"
CLOCKS = ("seconds", "tokens_per_s")  # what is measured by the clock


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A run that was trained anew. ``complaint`` is empty where it agrees with its record."""

    key: str
    same_class: bool
    complaint: str


def audit(profile: str, minutes: float, seed: int, jobs: int, outputs: Path = places.ROOT / "outputs") -> list[Outcome]:
    """Trains runs of a profile's records anew, drawn by ``seed``, as many as fit into so many minutes; keeps what came
    of it for the report. Raises InputError where there is nothing to audit, or no run was finished in time."""
    begin = time.monotonic()
    recorded = RunStore(outputs / "none", [outputs / "records" / profile]).runs()
    if not recorded:
        raise InputError(f"PROFILE: {profile} has no records of this version to audit, use one of outputs/records/")
    jobs, known = processes.processes(jobs), seeds(recorded)
    drawn = draw(recorded, 60 * minutes * jobs, 60 * minutes, seed)
    print(f"{len(drawn)} of {len(recorded)} runs are trained anew", flush=True)
    again = RunStore(outputs / f".audit-{profile}")
    files.remove(again.path)  # of one that was killed
    try:
        outcomes = train_until(begin + 60 * minutes, [Job(run.config) for run in drawn], again, min(jobs, len(drawn)))
        ended = [run for run in drawn if outcomes[f"run {run.key}"] != STOPPED]
        compared = [_outcome(run, outcomes[f"run {run.key}"], again, known, len(drawn)) for run in ended]
    finally:
        files.remove(again.path)
    if not compared:
        raise InputError(f"MINUTES: {minutes:g} were too few to train one of {len(drawn)} drawn runs, give more")
    wrong = {one.key: one.complaint for one in compared if one.complaint}
    said = {
        "rule": RULE,
        "seed": seed,
        "minutes": minutes,
        "runs": len(recorded),
        "drawn": len(drawn),
        # those that were trained anew in time
        "compared": len(compared),
        "agree": len(compared) - len(wrong),
        "complaints": wrong,
        "keys": [one.key for one in compared],
        # those that were recorded by a machine of this class
        "on_class": [one.key for one in compared if one.same_class],
        **{name: value for name, value in provenance().items() if name in ("commit", "device", "cpu")},
    }
    files.write_checked(outputs / "audits" / f"{profile}.json", said)
    return compared


def _outcome(run: RunResult, why: str, again: RunStore, known: "Mapping[str, Seeds]", runs: int) -> Outcome:
    """Of a run, one of ``runs`` drawn together; ``why`` it could not be trained anew, empty where it was."""
    if why:
        return Outcome(run.key, False, f"could not be trained: {why}")
    now = again.get(run.config)
    same_class = _class(run.provenance) == _class(now.provenance)
    return Outcome(run.key, same_class, difference(run, now, same_class, known.get(_cell(run.config)), runs))


def draw(recorded: Sequence[RunResult], seconds: float, most: float, seed: int) -> list[RunResult]:
    """Runs in an order drawn by ``seed``, those that take no more than what is left of ``seconds``, and no more than
    ``most`` each, as they took when they were recorded; at least the first."""
    by_key = sorted(recorded, key=lambda run: run.key)
    chosen: list[RunResult] = []
    for run in (by_key[place] for place in np.random.default_rng(seed).permutation(len(by_key))):
        if not chosen or run.summary["seconds"] <= min(seconds, most):
            chosen.append(run)
            seconds -= run.summary["seconds"]
    return chosen


def _class(made_by: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(made_by.get(name) for name in (*CLASS, "attention", "compiled", "processes"))


class Seeds(NamedTuple):
    """Of a cell's seeds the last validation loss: how many there are, their mean, and their standard deviation with
    that of the neighbours in it, nan where no cell has two seeds."""

    n: int
    mean: float
    spread: float

    def reach(self, runs: int) -> float:
        """How far from the mean another seed lies, with an error of ``ERROR`` for so many runs together."""
        return float(
            -scipy.special.stdtrit(NEIGHBOURS + self.n - 1, ERROR / runs / 2) * self.spread * math.sqrt(1 + 1 / self.n)
        )


def seeds(recorded: Sequence[RunResult]) -> dict[str, Seeds]:
    """Cell -> its seeds that finished."""
    finished = [(run.config, run.summary["val_loss"]) for run in recorded if run.status == "finished"]
    rows = [
        (f"{cfg.optim.name} {cfg.model.width} {cfg.data.source} {cfg.train.steps.bit_length()}", _cell(cfg), end)
        for cfg, end in finished
    ]
    ends = pd.DataFrame(rows, columns=["near", "cell", "end"]).groupby(["near", "cell"], sort=False)["end"]
    variances = ends.var().dropna()
    near = {str(of): some.tolist() for of, some in variances.groupby("near")}
    return {str(cell): of_seeds(some.tolist(), near.get(str(of), variances.tolist())) for (of, cell), some in ends}


def of_seeds(ends: Sequence[float], variances: Sequence[float]) -> Seeds:
    """Of last validation losses, and the neighbours' ``variances``."""
    mean, around = statistics.fmean(ends), NEIGHBOURS * (statistics.fmean(variances) if variances else math.nan)
    around += sum((end - mean) ** 2 for end in ends)
    return Seeds(len(ends), mean, math.sqrt(around / (NEIGHBOURS + len(ends) - 1)))


def _cell(cfg: RunConfig) -> str:
    return cfg.replace(train=cfg.train.replace(seed=0)).key


def difference(record: RunResult, again: RunResult, same_class: bool, cell: Seeds | None, runs: int) -> str:
    """What of a run, one of ``runs`` drawn together, differs from its record by more than it may; empty where nothing
    does. ``cell``: the seeds of its cell, None where none finished."""
    if record.status != again.status:
        return f"it {again.status}, and {record.status} when it was recorded"
    was, now = _numbers(record), _numbers(again)
    of_first = {f"loss of step {step}": by for step, by in enumerate(TOLERANCE[record.config.optim.name], 1)}
    may = pd.Series(0.0, was.index) if same_class else pd.Series(of_first)
    was = was[was.index.isin(may.index)]
    now = now.reindex(was.index)
    wrong = was.index[~np.isclose(now, was, rtol=may[was.index], atol=0.0, equal_nan=True)]
    if len(wrong):
        return f"{wrong[0]} is {now[wrong[0]]}, and was {was[wrong[0]]}"
    before, end = record.summary["val_loss"], again.summary["val_loss"]
    judged = cell if record.status == "finished" and not same_class else None
    if judged and abs(end - judged.mean) > judged.reach(runs):  # nan: no cell has two seeds
        return (
            f"val_loss is {end:.6f}, and was {before:.6f}, where a further seed ends at {judged.mean:.6f} +- "
            f"{judged.reach(runs):.6f}"
        )
    return ""


def _numbers(run: RunResult) -> "pd.Series[float]":
    """By name, but for what the clock says: the numbers of a run's end, and those of its curve as records keep them."""
    end = {name: value for name, value in run.summary.items() if name not in CLOCKS}
    curve = pd.DataFrame({name: column for name, column in run.metrics.items() if name not in CLOCKS}).melt("step")
    names = curve["variable"] + " of step " + curve["step"].astype(str)
    return pd.concat([pd.Series(end, dtype=float), pd.Series(curve["value"].to_numpy("float32"), names)])


def last(outputs: Path, profile: str) -> dict[str, Any] | None:
    """What the last audit of a profile came to. Where there was none here, the one that the verdicts beside the records
    tell; None where they tell none. Raises OSError or ValueError where it cannot be read."""
    path = outputs / "audits" / f"{profile}.json"
    return files.read_checked(path) if path.exists() else verdicts.committed(outputs / "records" / profile)["audit"]


def told(said: dict[str, Any] | None) -> str:
    """An audit in a sentence; empty where there was none."""
    if said is None:
        return ""
    on_class = said.get("on_class", [])
    where = {
        "on the class that recorded them": [key for key in said["keys"] if key in on_class],
        "on another class of machine": [key for key in said["keys"] if key not in on_class],
    }
    agreed = ", ".join(
        f"{sum(key not in said['complaints'] for key in keys)} of {len(keys)} agree {place}"
        for place, keys in where.items()
        if keys
    )
    return f"Trained anew on {said['cpu']}: {agreed},\nby the {said.get('rule', FORMER)}."


def main(profile: str, minutes: str, seed: str, jobs: int) -> None:
    """``audit`` for the Makefile: a line a run; it fails where one does not agree."""
    compared = in_one_line(audit, profile, float(minutes or 10), int(seed or 0), jobs)
    for one in compared:
        agrees = "the same to the last digit" if one.same_class else "agrees, on a machine of another class"
        print(f"run {one.key}  {one.complaint or agrees}")
    wrong = sum(bool(one.complaint) for one in compared)
    print(f"audit      {len(compared) - wrong} of {len(compared)} runs agree with their records")
    raise SystemExit(bool(wrong))
