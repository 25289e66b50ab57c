"""Many runs: what is missing is trained, the longest first, on this machine or on Ray; the rest is read."""

import contextlib
import dataclasses
import functools
from collections.abc import Sequence

from lib.base import processes
from lib.base.distributed import here
from lib.base.errors import InputError
from lib.base.machine import device_name
from lib.config import RunConfig
from lib.flops import run_flops
from lib.store.runs import RunStore
from lib.sweep.cluster import Cluster, Nodes, connected
from lib.sweep.cost import check_size, hours, missing
from lib.sweep.finished import Runs
from lib.sweep.jobs import Progress, Show, check_hours, flop_bar, spell, work_through
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
    todo, asked = missing(configs, store), len({cfg.key for cfg in configs})
    engine: Engine = connected(cluster) if cluster and todo else contextlib.nullcontext(Here(jobs))
    with engine as where:
        if todo:
            at_once, flops = where.at_once(todo), sum(map(run_flops, todo))
            needed = hours(todo, at_once)
            print(
                f"{len(todo)} of {asked} runs are missing: {flops:.3g} FLOPs, about {spell(needed)} with {at_once} "
                f"process{'es' * (at_once > 1)} on {device_name()}"
            )
            check_hours("the missing runs", needed, max_hours)
            prepare_texts(todo, store)
            with flop_bar([run_flops(cfg) for cfg in todo], "runs") as show:
                where.train(todo, store, show)
        else:
            print(f"all {asked} runs are in the store")
    # one that was lost or damaged since is trained here
    return Runs([store.find(cfg) or train(cfg, store) for cfg in configs])


@dataclasses.dataclass(frozen=True)
class Here:
    """This machine, with ``jobs`` processes: one a core when None, or one on a GPU. A cluster has the same members."""

    jobs: int | None

    def at_once(self, configs: Sequence[RunConfig]) -> int:
        """How many of these runs are trained together. Raises InputError for one that has no room."""
        for cfg in configs:
            check_size(cfg.model)
        count = min(processes.processes(self.jobs), len(configs))
        if count > 1:
            processes.start()  # they import torch while the cost is measured
        return count

    def train(self, configs: Sequence[RunConfig], store: RunStore, show: Show) -> None:
        """Trains every run, begun in this order; ``show`` is told how much of each is done."""
        work_through(functools.partial(_train, store), configs, self.at_once(configs), show)


Engine = contextlib.AbstractContextManager[Here | Nodes]


def _train(store: RunStore, cfg: RunConfig, progress: Progress) -> None:
    train(cfg, store, progress=lambda step, loss: progress(step / cfg.train.steps))
