"""Records: what a profile asks for, trained and measured within a limit of time, the most telling first, and packed to
be committed (``lib/store/records.py``).

A run is packed once all that any notebook measures on it has been measured: a record has no weights to do so with.
"""

import collections
import contextlib
import itertools
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from lib.base import processes
from lib.base.errors import InputError, in_one_line
from lib.config import RunConfig
from lib.flops import run_flops
from lib.store import records
from lib.store.runs import RunStore
from lib.sweep import measurements
from lib.sweep.training import STOPPED, Job, train_until
from lib.workbook import places, plans

# ---- the order -------------------------------------------------------------------------------------------------------


class Grid(NamedTuple):
    """The runs that a notebook, or a part of it, is drawn from, and its lists of seeds."""

    runs: Sequence[RunConfig]
    seeds: Sequence[Sequence[int]] = ()


def by_value(grids: Sequence[Grid]) -> list[RunConfig]:
    """The distinct runs of several notebooks and of parts of them, the most telling first: every cell of all grids with
    its first seed before any second seed, so that a half-finished grid is still a grid. Within a seed the cheapest grid
    comes first: so most notebooks can soon be drawn. Within a grid it is the cheapest run, so that a small budget is
    complete for all models before the next begins. A run's seed is first, second, ... among the runs that differ in
    nothing else, as the plans list them, or where it stands in a list of seeds: tuning or noise may have their own."""
    unique = list({cfg.key: cfg for grid in grids for cfg in grid.runs}.values())
    cells = pd.Series({cfg.key: cfg.replace(train=cfg.train.replace(seed=0)).key for cfg in unique}, dtype=object)
    rank = cells.groupby(cells).cumcount().to_dict()
    for grid in grids:
        for seeds, cfg in itertools.product(grid.seeds, grid.runs):
            if cfg.train.seed in seeds:
                rank[cfg.key] = min(rank[cfg.key], seeds.index(cfg.train.seed))

    def first_seeds(grid: Grid) -> float:
        return sum(run_flops(cfg) for cfg in grid.runs if rank[cfg.key] == 0)

    cheapest_last = reversed([*enumerate(sorted(grids, key=first_seeds))])  # it counts where several have a run
    place = {cfg.key: i for i, grid in cheapest_last for cfg in grid.runs}
    return sorted(unique, key=lambda cfg: (rank[cfg.key], place[cfg.key], run_flops(cfg)))


# ---- make records ----------------------------------------------------------------------------------------------------


def make(
    names: Sequence[str],
    profile: str,
    minutes: float | None,
    jobs: int,
    shard: tuple[int, int] = (1, 1),
    outputs: Path = places.ROOT / "outputs",
) -> int:
    """Trains what these notebooks plan and neither the store nor a record has, makes their measurements, for so many
    minutes (all of it when None), then packs what is finished. Returns an exit status: 0, also where the limit stopped
    it, and 1 where a run failed.

    Notebooks are served in the order given, and all of them together where none is named; jobs: processes, 0 for
    one a core (one on a GPU); shard: (i, n), the i-th of n machines, of which each takes the runs whose keys fall to
    it. Raises InputError for what it cannot work with."""
    if shard[0] > shard[1]:
        raise InputError(f"SHARD: {shard[0]}/{shard[1]} is no share of the runs, {shard[1]}/{shard[1]} is the last")
    until = math.inf if minutes is None else time.monotonic() + 60 * minutes
    folders = places.records(profile, outputs / "records")
    folder, store = folders[0], RunStore(outputs / "runs", folders)
    every = {name: plans.plan(name, profile, outputs=str(outputs)) for name in names or plans.names(profile)}
    every |= _of_others(set(plans.names(profile)) - every.keys(), profile, outputs)
    chosen = [every[name] for name in names or every]
    grids = [_grids(name, every[name], profile) for name in names or every]
    in_turn = grids if names else [list(itertools.chain.from_iterable(grids))]
    configs = list({cfg.key: cfg for some in in_turn for cfg in by_value(some)}.values())
    asked = _asked(every, names, {cfg.key for cfg in configs})
    todo = [job for job in _jobs(configs, asked, store) if _is_ours(job, shard, store)]
    missing = [job.cfg for job in todo if job.cfg is not None and store.find(job.cfg) is None]
    print(
        f"{len(missing)} of {len(configs)} runs are missing: {sum(map(run_flops, missing)):.3g} FLOPs, and "
        f"{sum(len(job.asked) for job in todo)} measurements",
        flush=True,
    )
    at_once = min(processes.processes(jobs), len(todo) or 1)
    try:
        outcomes = train_until(until, todo, RunStore(store.path), at_once)
    finally:
        packed, measured = pack(configs, asked, [plan.measurements for plan in chosen], store, folder)
        opened = set().union(*(plan.opened for plan in every.values()))
        here = RunStore(store.path)
        for run in filter(None, (here.find(cfg) for cfg in configs if cfg.key in opened)):
            records.keep_weights(folder, run.key, here.weights(run))
    failed = {name: why for name, why in outcomes.items() if why not in ("", STOPPED)}
    for name, why in failed.items():
        print(f"{name} failed: {why}")
    came_to = [outcomes[f"run {cfg.key}"] for cfg in missing]
    ended = f"{came_to.count('')} runs finished, {came_to.count(STOPPED)} are left, {len(failed)} failed"
    print(f"{ended}; the same command goes on where this one stopped" if todo else "nothing to train")
    print(f"records    {packed} runs and {measured} measurements were packed into outputs/records/{profile}/")
    print(f"{_how_far(configs, store)}; {len(_missing(asked, configs, store))} measurements are missing")
    return bool(failed)


def _how_far(configs: Sequence[RunConfig], store: RunStore) -> str:
    """How much of a plan is done, and what the rest takes at the rate of what is done."""
    done = [run for cfg in configs if (run := store.find(cfg)) is not None]
    whole, flops = sum(map(run_flops, configs)), sum(run_flops(run.config) for run in done)
    share = flops / whole if whole else 1.0
    line = f"plan       {len(done)} of {len(configs)} runs, {100 * share:.1f} % of its FLOPs"
    if not 0 < share < 1:
        return line
    hours = sum(run.summary["seconds"] for run in done) / 3600 * (1 - share) / share
    return f"{line}; about {hours:.1f} core-hours are left"


def _grids(name: str, whole: plans.Plan, profile: str) -> list[Grid]:
    """What a notebook is drawn from: the smallest part, a larger one, ..., all of it."""
    found = []
    for changes in whole.parts:
        with contextlib.suppress(InputError):  # there are too few values in it
            found.append(Grid(plans.plan(name, profile, **changes).runs, whole.seeds))
    return [*found, Grid(whole.runs, whole.seeds)]


def _of_others(names: Iterable[str], profile: str, outputs: Path) -> dict[str, plans.Plan]:
    """The plans of notebooks that were not asked for, but may measure on the same runs. One that fails is named, and is
    no reason to train nothing."""
    found = {}
    for name in sorted(names):
        try:
            found[name] = plans.plan(name, profile, outputs=str(outputs))
        except Exception as error:
            print(f"{name}: has no plan ({' '.join(str(error).split())}), what it measures is not made")
    return found


def _asked(every: Mapping[str, plans.Plan], names: Sequence[str], keys: set[str]) -> list[measurements.Asked]:
    """What any notebook measures on the runs of these keys, and what the named ones measure without a run; once."""
    return list(
        {
            (measurements.name(one.function), one.key): one
            for name, plan in every.items()
            for one in plan.asked
            if one.run in keys or (not one.run and (not names or name in names))
        }.values()
    )


def _is_ours(job: Job, shard: tuple[int, int], store: RunStore) -> bool:
    """Whether a job falls to the i-th of n machines: by its key, or since it was begun here or has its weights here."""
    here = (store.path / job.key).is_dir() or store.partial(job.key).exists()
    return here or int(job.key, 16) % shard[1] == shard[0] - 1


def _missing(
    asked: Sequence[measurements.Asked], configs: Sequence[RunConfig], store: RunStore
) -> list[measurements.Asked]:
    """What has yet to be measured."""
    ended = [found for cfg in configs if (found := store.find(cfg)) is not None]
    diverged = {run.key for run in ended if run.status != "finished"}
    return [one for one in asked if not (one.of_finished and one.run in diverged) and one.found(store) is None]


def _jobs(configs: Sequence[RunConfig], asked: Sequence[measurements.Asked], store: RunStore) -> list[Job]:
    """What is to be done, in order: measurements that need no run, then runs, each with what is measured on it. A
    record has no weights to measure with: where something is missing, its run is trained once more."""
    of_run = collections.defaultdict(list)
    for one in _missing(asked, configs, store):
        of_run[one.run].append(one)
    alone = [Job(None, (one,)) for one in sorted(of_run.pop("", []), key=lambda one: one.case.flops)]
    todo = [cfg for cfg in configs if of_run[cfg.key] or store.find(cfg) is None]
    return [*alone, *(Job(cfg, tuple(of_run[cfg.key])) for cfg in todo)]


def pack(
    configs: Sequence[RunConfig],
    asked: Sequence[measurements.Asked],
    planned: Sequence[Mapping[str, Iterable[str]]],
    store: RunStore,
    folder: Path,
) -> tuple[int, int]:
    """Adds to the records of ``folder`` what ``store`` itself has: of these runs those on which all that is ``asked``
    has been measured, and the measurements that are ``planned``, name -> keys. Returns how many of each there were."""
    own = RunStore(store.path)
    unmeasured = {one.run for one in _missing(asked, configs, store)}
    runs = [found for cfg in configs if cfg.key not in unmeasured and (found := own.find(cfg)) is not None]
    keys = dict.fromkeys((name, key) for names in planned for name in names for key in names[name])
    keys |= dict.fromkeys((measurements.name(one.function), one.key) for one in asked)
    measured = [kept for name, key in keys if (kept := measurements.kept_under(name, key, own)) is not None]
    return records.add(folder, runs, [kept for kept in measured if records.run_of(kept.case) not in unmeasured])


def main(names: Sequence[str], profile: str, minutes: str, jobs: int, shard: str) -> None:
    """``make`` for the Makefile: complaints are one line, and an interrupt is none."""
    i, n = map(int, (shard or "1/1").split("/"))
    stopped = "interrupted: what was begun goes on from its checkpoints, and what is finished is packed, another time"
    raise SystemExit(
        in_one_line(make, names, profile, float(minutes) if minutes else None, jobs, (i, n), stopped=stopped)
    )
