"""Many runs: what the missing ones cost, and their training, the longest first, here or on Ray, or until a limit of
time; what a limit stops goes on another time."""

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Sequence

import torch
from tqdm import tqdm

from lib.base import distributed, processes
from lib.base.errors import InputError
from lib.base.machine import device_name, device_type
from lib.config import ModelConfig, RunConfig
from lib.flops import count, run_flops
from lib.model.looped import Draw, LoopedLM
from lib.store.runs import RunStore
from lib.sweep.cluster import Cluster, connected
from lib.sweep.finished import Runs
from lib.sweep.jobs import Progress, Show, check_hours, flop_bar, spell, work_through
from lib.sweep.measurements import Asked, name
from lib.train.loop import load_data, train
from lib.train.optimiser import Optimizer

PROBE_FLOPS = 2e10  # a training step above this is timed on a smaller model
STOPPED = "stopped"  # what became of a job that a limit stopped
CHECKPOINT_SECONDS = 10.0  # the work that a limit may cost each process


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
    if distributed.here().size > 1:
        raise InputError(
            "jobs: torchrun trains one run on all its processes, call lib.train.loop.train for each run instead"
        )
    todo, asked = missing(configs, store), len({cfg.key for cfg in configs})
    with connected(cluster) if cluster and todo else contextlib.nullcontext(Here(jobs)) as where:
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


def _train(store: RunStore, cfg: RunConfig, progress: Progress) -> None:
    train(cfg, store, progress=lambda step, loss: progress(step / cfg.train.steps))


def prepare_texts(configs: Sequence[RunConfig], store: RunStore, *, all_fit: bool = True) -> None:
    """Tokenises each text once, with a bar, and checks that it fits its runs; where it need not, these fail alone."""
    planned = [cfg.planned for cfg in configs]
    with tqdm(unit="B", unit_scale=True, leave=False, desc="reading tokens", disable=not configs) as bar:

        def show(what: str, count: int) -> None:
            bar.set_description(what, refresh=False)  # with the next line, once a minute in a log
            bar.update(count)

        for cfg in {(cfg.data, cfg.model.vocab_size): cfg for cfg in planned}.values():
            with contextlib.nullcontext() if all_fit else contextlib.suppress(InputError):
                load_data(cfg, store, show)


# ---- what it costs ---------------------------------------------------------------------------------------------------


def missing(configs: Sequence[RunConfig], store: RunStore) -> list[RunConfig]:
    """What the store does not have, once each, the longest first."""
    unique = {cfg.key: cfg for cfg in configs}
    return sorted((cfg for cfg in unique.values() if store.find(cfg) is None), key=run_flops, reverse=True)


def hours(configs: Sequence[RunConfig], at_once: int) -> float:
    """That these runs, the longest first, take on so many processes. The time is measured, on a step of each shape."""
    shapes = [(cfg.model, cfg.data.context, cfg.train.batch, cfg.train.precision) for cfg in configs]
    longest = dict(zip(reversed(shapes), reversed(configs), strict=True))
    rates = {shape: flops_per_second(cfg) for shape, cfg in longest.items()}
    finish = [0.0] * at_once  # when each process would be done
    for shape, cfg in zip(shapes, configs, strict=True):
        finish[finish.index(min(finish))] += run_flops(cfg) / rates[shape]
    return max(finish) / 3600


def check_size(cfg: ModelConfig) -> None:
    """Raises InputError for a model whose weights, gradients and moments this device cannot hold."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    room = torch.cuda.mem_get_info()[1] if torch.cuda.is_available() else memory
    n = count(cfg).n_params
    if distributed.STATE * n > room:
        raise InputError(
            f"model: its {n:.3g} parameters need {distributed.STATE * n / 2**30:.3g} GiB to train, {device_name()} has "
            f"{room / 2**30:.3g}, use a smaller width, fewer layers or a smaller vocab_size"
        )


def flops_per_second(cfg: RunConfig) -> float:
    """The rate at which this device trains cfg's model, from a step timed on random tokens.

    A large model is cut down to one layer a stack, one loop and few rows, which keeps its width and so its rate.
    """
    model_cfg, rows, context = cfg.model, cfg.train.batch, cfg.data.context
    if rows * context * count(model_cfg, context).flops_per_token > PROBE_FLOPS:
        context = min(context, 256)
        rows = max(1, 512 // context)
        model_cfg = model_cfg.replace(
            prelude=min(model_cfg.prelude, 1),
            recur=min(model_cfg.recur, 1),
            coda=min(model_cfg.coda, 1),
            mean_loops=1,
            backprop_loops="all",
            depth="fixed",
            fill=False,
            on_top=False,
            context=context,
            windows="L",
            vocab_size=min(model_cfg.vocab_size, 8192),
        )
    check_size(model_cfg)
    seconds = []
    with processes.one_thread_on_cpu():
        device = device_type()
        model = LoopedLM(model_cfg).set_precision(cfg.train.precision).to(device)
        optimizer = Optimizer(model, cfg.optim, 3, cfg.tokens_per_step)
        tokens = torch.randint(model_cfg.vocab_size, (rows, context + 1), device=device)
        for step in range(3):
            begin = time.perf_counter()
            # mean_loops, so that the time does not depend on a draw
            loss, _ = model.loss(tokens[:, :-1], tokens[:, 1:], model_cfg.mean_loops, Draw(0, step, range(rows)))
            loss.backward()
            optimizer.clip_gradients()
            optimizer.step(step)
            optimizer.zero_grad()
            seconds.append(time.perf_counter() - begin)
    fixed = model_cfg.replace(depth="fixed", fill=False, on_top=False)
    return rows * context * count(fixed, context).flops_per_token / min(seconds)


# ---- until a limit of time -------------------------------------------------------------------------------------------


class TimeIsUp(Exception):
    """The limit of time is reached; what was begun goes on another time."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A run to be trained, if there is one, and what is measured then, by the same process."""

    cfg: RunConfig | None
    asked: tuple[Asked, ...] = ()

    @property
    def key(self) -> str:
        return self.cfg.key if self.cfg else self.asked[0].key

    @property
    def flops(self) -> float:
        return (run_flops(self.cfg) if self.cfg else 0.0) + sum(one.case.flops for one in self.asked)

    def __str__(self) -> str:
        return f"run {self.key}" if self.cfg else f"{name(self.asked[0].function)} {self.key}"


def train_until(until: float, jobs: Sequence[Job], store: RunStore, at_once: int) -> dict[str, str]:
    """Does these jobs in their order, ``at_once`` of them, until ``time.monotonic()`` says ``until``.

    Returns for each, by its name, "" if it is done, STOPPED if the limit stopped it or it was not begun, and one line
    that says why if it failed; the others are done all the same. A run that is stopped, or interrupted, goes on from
    its last checkpoint another time. Texts are tokenised first. Raises what concerns all jobs: a full disk, a worker
    that was killed."""
    prepare_texts([job.cfg for job in jobs if job.cfg], store, all_fit=False)
    with flop_bar([job.flops for job in jobs], "jobs") as show:
        outcomes = work_through(functools.partial(_do, store, until), jobs, at_once, show)
    return dict(zip(map(str, jobs), outcomes, strict=True))


def _do(store: RunStore, until: float, job: Job, progress: Progress) -> str:
    def look_at_the_clock() -> None:
        if time.monotonic() >= until:
            raise TimeIsUp

    def after_step(step: int, loss: float) -> None:
        if job.cfg and step < job.cfg.train.steps:  # after its last step a run has only to be written
            look_at_the_clock()
            progress(run_flops(job.cfg) * step / job.cfg.train.steps / job.flops)

    status = "finished"
    try:
        look_at_the_clock()
        if job.cfg:
            status = train(job.cfg, store, checkpoint_seconds=CHECKPOINT_SECONDS, progress=after_step).status
        for one in job.asked:
            look_at_the_clock()
            if status == "finished" or not one.of_finished:
                one.measure(store)
    except TimeIsUp:
        return STOPPED
    except OSError:
        raise
    except Exception as error:  # no memory for this one, say
        return " ".join(str(error).split()) or type(error).__name__
    return ""
