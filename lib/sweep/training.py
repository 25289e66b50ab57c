"""Many runs: what is missing is trained, one process per core and the longest first; the rest is read."""

import concurrent.futures
import contextlib
import dataclasses
from collections.abc import MutableSequence, Sequence
from types import ModuleType

from lib.base import processes
from lib.base.distributed import here
from lib.base.errors import InputError
from lib.base.progress import Bar
from lib.config import RunConfig
from lib.flops import run_flops
from lib.store.runs import RunStore
from lib.sweep.cluster import Cluster, connected, gpus_of, slots, train_all
from lib.sweep.cost import check_size, missing, spell
from lib.sweep.finished import Runs
from lib.sweep.texts import prepare_texts
from lib.train.loop import train


def sweep(
    configs: list[RunConfig],
    store: RunStore,
    jobs: int | None = None,
    max_hours: float | None = None,
    cluster: Cluster | None = None,
) -> Runs:
    """Every run of configs; those that the store does not have are trained.

    jobs: processes, one a core when None (one on a GPU); cluster: where Ray trains them instead. The cost is printed
    before anything is trained; an InputError says so if it exceeds max_hours.
    """
    if here().size > 1:
        raise InputError(
            "jobs: torchrun trains one run on all its processes, call lib.train.loop.train for each run instead"
        )
    if cluster and all(store.find(cfg) is not None for cfg in configs):
        cluster = None  # nobody has to be reached
    with connected(cluster) if cluster else contextlib.nullcontext() as ray:
        jobs = slots(ray, cluster, configs) if cluster and ray else jobs
        if jobs != 1 and not cluster and not all(map(store.has, configs)):
            processes.start()  # they import torch while the cost is measured
        todo = missing(configs, store, jobs)
        if cluster and ray:  # the rate is one GPU's
            todo = dataclasses.replace(todo, hours=todo.hours / max(1, int(gpus_of(ray, cluster))))
        print(todo)
        if max_hours is not None and not todo.hours <= max_hours:  # nan is no limit to keep
            raise InputError(
                f"max_hours: the missing runs need about {spell(todo.hours)} here, more than max_hours={max_hours:g}; "
                "raise max_hours, or choose a smaller profile"
            )
        if todo.configs:
            if not cluster:  # whose nodes have been asked
                for cfg in todo.configs:
                    check_size(cfg.model)
            prepare_texts(todo.configs, store)
            if cluster and ray:
                _train_on(ray, todo.configs, store, cluster)
            else:
                _train_all(todo.configs, store, todo.jobs)
    return Runs([store.find(cfg) or train(cfg, store) for cfg in configs])


def _bar(flops: list[float]) -> Bar:
    return Bar(total=sum(flops), unit="FLOP", unit_scale=True, desc=f"{len(flops)} runs")


def _advance(bar: Bar, shares: Sequence[float], flops: list[float]) -> None:
    """Moves the bar to where these shares of the runs are done."""
    bar.update(sum(share * cost for share, cost in zip(shares, flops, strict=True)) - bar.n)


def _train_on(ray: ModuleType, configs: list[RunConfig], store: RunStore, cluster: Cluster) -> None:
    flops = [run_flops(cfg) for cfg in configs]
    with _bar(flops) as bar:
        train_all(ray, configs, store, cluster, lambda shares: _advance(bar, shares, flops))


def _train_all(configs: list[RunConfig], store: RunStore, jobs: int) -> None:
    flops = [run_flops(cfg) for cfg in configs]
    with _bar(flops) as bar:
        if jobs == 1:
            done = 0.0
            for cfg, cost in zip(configs, flops, strict=True):

                def show(
                    step: int, loss: float, before: float = done, cfg: RunConfig = cfg, cost: float = cost
                ) -> None:
                    bar.update(before + cost * step / cfg.train.steps - bar.n)

                train(cfg, store, progress=show)
                done += cost
                bar.update(done - bar.n)
            return
        progress = processes.start().Array("d", len(configs), lock=False)  # share of each run that is done
        with processes.pool(jobs, _worker_starts, progress) as pool:  # what an error stops goes on from its checkpoint
            pending = {pool.submit(_worker_trains, i, cfg, store) for i, cfg in enumerate(configs)}
            while pending:
                finished, pending = concurrent.futures.wait(pending, 0.5, concurrent.futures.FIRST_COMPLETED)
                for future in finished:
                    future.result()
                _advance(bar, progress, flops)


_progress: MutableSequence[float]  # in a process that trains: the share of each run that is done


def _worker_starts(progress: MutableSequence[float]) -> None:
    global _progress
    _progress = progress


def _worker_trains(index: int, cfg: RunConfig, store: RunStore) -> None:
    def show(step: int, loss: float) -> None:
        _progress[index] = step / cfg.train.steps

    train(cfg, store, progress=show)
    _progress[index] = 1.0
