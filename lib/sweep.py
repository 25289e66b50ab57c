"""Many runs: what is missing is trained, one process per core and the longest first; the rest is read."""

import concurrent.futures
import contextlib
import dataclasses
import math
import os
import signal
import time
from collections.abc import MutableSequence, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lib import workers
from lib.cluster import Cluster, connected, gpus_of, slots, train_all
from lib.config import Label, ModelConfig, RunConfig
from lib.data import token_store, validation_batch
from lib.errors import InputError
from lib.evaluate import depth_sweep
from lib.flops import count
from lib.model import Draw, LoopedLM, load_weights
from lib.optim import Optimizer, clip_gradients
from lib.progress import Bar, passing
from lib.provenance import device_name
from lib.ranks import STATE, here
from lib.store import WEIGHTS, RunResult, RunStore, curves, frame
from lib.train import load_data, train
from lib.workers import one_thread_on_cpu

if TYPE_CHECKING:
    import pandas as pd

STOPPED = "stopped"  # what became of a run that a limit stopped
CHECKPOINT_SECONDS = 10.0  # what a limit may cost each process
PROBE_FLOPS = 2e10  # a training step above this is timed on a smaller model


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a sweep would have to do: runs in all, those missing, their FLOPs and the time they would take here."""

    runs: int
    missing: list[RunConfig]
    flops: float
    hours: float
    jobs: int

    def __str__(self) -> str:
        if not self.missing:
            return f"all {self.runs} runs are in the store"
        return (
            f"{len(self.missing)} of {self.runs} runs are missing: {self.flops:.3g} FLOPs, "
            f"about {_spell(self.hours)} with {self.jobs} process{'es' * (self.jobs > 1)} on {device_name()}"
        )


@dataclasses.dataclass(frozen=True)
class Runs:
    """The results of a sweep, in the order of its configs."""

    results: list[RunResult]

    def frame(self) -> "pd.DataFrame":
        """One row a run: config, status and summary."""
        return frame(self.results)

    def curves(self) -> "pd.DataFrame":
        """One row a run and logged step."""
        return curves(self.results)


def sweep(
    configs: list[RunConfig], store: RunStore, jobs: int | None = None, max_hours: float | None = None,
    cluster: Cluster | None = None,
) -> Runs:  # fmt: skip
    """Every run of configs, trained where the store does not have it.

    jobs: processes, one per core when None (one on a GPU); cluster: where Ray trains them instead. Before anything is
    trained the cost is printed, and when it exceeds max_hours an InputError says so.
    """
    if here().size > 1:
        raise InputError(
            "jobs: torchrun trains one run on all its processes, call lib.train.train for each run instead"
        )
    if cluster and all(store.find(cfg) is not None for cfg in configs):
        cluster = None  # nobody has to be reached
    with connected(cluster) if cluster else contextlib.nullcontext() as ray:
        jobs = slots(ray, cluster, configs) if cluster and ray else jobs
        if jobs != 1 and not cluster and not all((store.path / cfg.key).is_dir() for cfg in configs):
            workers.start()  # they import torch while the cost is measured
        todo = plan(configs, store, jobs)
        if cluster and ray:  # the rate is one GPU's
            todo = dataclasses.replace(todo, hours=todo.hours / max(1, int(gpus_of(ray, cluster))))
        print(todo)
        if max_hours is not None and not todo.hours <= max_hours:  # nan is no limit to keep
            raise InputError(
                f"max_hours: the missing runs need about {_spell(todo.hours)} here, more than max_hours={max_hours:g}; "
                "raise max_hours, or choose a smaller profile"
            )
        if todo.missing:
            for cfg in todo.missing if not cluster else ():  # whose nodes have been asked
                check_size(cfg.model)
            _prepare_texts(todo.missing, store)
            if cluster and ray:
                _train_on(ray, todo.missing, store, cluster)
            else:
                _train_all(todo.missing, store, todo.jobs)
    return Runs([train(cfg, store) for cfg in configs])


def depth_losses(configs: list[RunConfig], store: RunStore, depths: list[int], state_seed: int = 0) -> "pd.DataFrame":
    """Validation loss of runs in the store after each of ``depths`` loops: a frame with one row a run and depth,
    columns key, T and loss in nats per token. All depths of a run take one pass over its loops
    (``evaluate.depth_sweep``), and what was measured once is noted beside the run. Diverged runs are left out.

    Raises InputError for a record, which has no weights, where it does not hold these depths.
    """
    import pandas as pd

    rows, unique = [], {cfg.key: cfg for cfg in configs}
    for cfg in passing(unique.values(), "losses by depth"):
        result = store.get(cfg)
        if result.status != "finished":
            continue
        noted = store.noted(result, "depth_losses")
        known = noted.setdefault(str(state_seed), {})
        missing = [T for T in sorted(set(depths)) if str(T) not in known]
        if missing:
            if not (result.folder / WEIGHTS).exists():
                raise InputError(
                    f"depths: the record {result.key} has no weights to measure {missing} with, "
                    f"use some of {', '.join(known) or 'none'}"
                )
            losses = depth_sweep(*trained_model(cfg, store), missing, state_seed)
            known.update({str(T): loss for T, loss in losses.items()})
            store.note(result, "depth_losses", noted)
        rows += [{"key": result.key, "T": T, "loss": known[str(T)]} for T in sorted(set(depths))]
    return pd.DataFrame(rows, columns=["key", "T", "loss"])


def run_model(cfg: RunConfig, store: RunStore) -> LoopedLM:
    """The model of a run in the store, in eval mode and on this device.

    Raises InputError for a run that is not there, and for a record, which has no weights."""
    weights = store.weights(store.get(cfg))
    model = load_weights(weights).set_precision(cfg.train.precision)
    if model.cfg != cfg.model:
        raise InputError(f"runs: {weights} holds another model than run {cfg.key}, restore it or remove the run")
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


def trained_model(cfg: RunConfig, store: RunStore) -> tuple[LoopedLM, np.ndarray]:
    """``run_model`` and the run's validation rows [B, S + 1]."""
    return run_model(cfg, store), validation_batch(cfg.data, token_store(cfg.data, store.tokens))


def plan(configs: list[RunConfig], store: RunStore, jobs: int | None = None) -> Plan:
    """What is missing and what it costs. The time is measured: a step of each missing shape is run."""
    jobs = workers.processes(jobs)
    unique = {cfg.key: cfg for cfg in configs}
    missing = [cfg for cfg in unique.values() if store.find(cfg) is None]
    missing.sort(key=run_flops, reverse=True)
    rates: dict[Label, float] = {}
    for cfg in missing:
        if _shape(cfg) not in rates:
            rates[_shape(cfg)] = flops_per_second(cfg)
    jobs = min(jobs, len(missing) or 1)
    finish = [0.0] * jobs  # when each process would be done, the longest run first
    for cfg in missing:
        finish[finish.index(min(finish))] += run_flops(cfg) / rates[_shape(cfg)]
    return Plan(len(unique), missing, sum(map(run_flops, missing)), max(finish) / 3600, jobs)


def check_size(cfg: ModelConfig) -> None:
    """Raises InputError for a model whose weights, gradients and moments this device cannot hold."""
    if torch.cuda.is_available():
        room = torch.cuda.mem_get_info()[1]
    else:
        room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    n = count(cfg).n_params
    if STATE * n > room:
        raise InputError(
            f"model: its {n:.3g} parameters need {STATE * n / 2**30:.3g} GiB to train, {device_name()} has "
            f"{room / 2**30:.3g}, use a smaller width, fewer layers or a smaller vocab_size"
        )


def run_flops(cfg: RunConfig) -> float:
    """FLOPs of a run's training, by the honest count."""
    return cfg.tokens * count(cfg.model, cfg.data.context).flops_per_token


def _shape(cfg: RunConfig) -> tuple[Any, ...]:
    return cfg.model, cfg.data.context, cfg.train.batch, cfg.train.precision


def flops_per_second(cfg: RunConfig) -> float:
    """The rate at which this device trains cfg's model, from a step timed on random tokens.

    A large model is cut down to one layer a stack, one loop and few rows, which keeps its width and so its rate.
    """
    model_cfg, rows, context = cfg.model, cfg.train.batch, cfg.data.context
    if rows * context * count(model_cfg, context).flops_per_token > PROBE_FLOPS:
        context = min(context, 256)
        rows = max(1, 512 // context)
        model_cfg = model_cfg.replace(
            prelude=min(model_cfg.prelude, 1), recur=min(model_cfg.recur, 1), coda=min(model_cfg.coda, 1),
            mean_loops=1, backprop_loops="all", depth="fixed", fill=False, context=context,
            windows="L", short_window=None,
            vocab_size=min(model_cfg.vocab_size, 8192),
        )  # fmt: skip
    check_size(model_cfg)
    with one_thread_on_cpu():
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = LoopedLM(model_cfg).set_precision(cfg.train.precision).to(device)
        optimizer = Optimizer(model, cfg.optim, 3, cfg.tokens_per_step)
        tokens = torch.randint(model_cfg.vocab_size, (rows, context + 1), device=device)
        seconds = []
        for step in range(3):
            begin = time.perf_counter()
            # loops=mean_loops, so that the probe does not depend on a draw
            loss, _ = model.loss(tokens[:, :-1], tokens[:, 1:], model_cfg.mean_loops, Draw(0, step, range(rows)))
            loss.backward()
            clip_gradients(model, cfg.optim.clip)
            optimizer.step(step)
            model.zero_grad(set_to_none=True)
            seconds.append(time.perf_counter() - begin)
    fixed = model_cfg.replace(depth="fixed", fill=False)
    return rows * context * count(fixed, context).flops_per_token / min(seconds)


def _one_of_each_text(configs: Sequence[RunConfig]) -> list[RunConfig]:
    return list({(cfg.data, cfg.model.vocab_size): cfg for cfg in configs}.values())


def _prepare_texts(configs: Sequence[RunConfig], store: RunStore, until: float = math.inf) -> None:
    """Tokenise every text once, with a bar, and see that it fits, before anything is trained. Raises _TimeIsUp at
    ``until``; what is tokenised then is not tokenised again."""
    for cfg in _one_of_each_text(configs):
        with Bar(unit="B", unit_scale=True, leave=False, desc="reading tokens") as bar:

            def show(what: str, count: int, bar: Bar = bar) -> None:
                bar.set_description(what)
                bar.update(count)
                if time.monotonic() >= until:
                    raise _TimeIsUp

            load_data(cfg, store, show)


class _TimeIsUp(Exception):
    """A limit stops what can be gone on with."""


def _bar(flops: list[float]) -> Bar:
    return Bar(total=sum(flops), unit="FLOP", unit_scale=True, desc=f"{len(flops)} runs")


def _advance(bar: Bar, shares: Sequence[float], flops: list[float]) -> None:
    """To where these shares of the runs are done."""
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
        progress = workers.start().Array("d", len(configs), lock=False)  # share of each run that is done
        with workers.pool(jobs, _worker_starts, progress) as pool:  # what an error stops goes on from its checkpoint
            pending = {pool.submit(_worker_trains, i, cfg, store) for i, cfg in enumerate(configs)}
            while pending:
                finished, pending = concurrent.futures.wait(pending, 0.5, concurrent.futures.FIRST_COMPLETED)
                for future in finished:
                    future.result()
                _advance(bar, progress, flops)


_progress: MutableSequence[float]  # of a process that trains: the share of each run that is done


def _worker_starts(progress: MutableSequence[float]) -> None:
    global _progress
    _progress = progress


def _worker_trains(index: int, cfg: RunConfig, store: RunStore) -> None:
    def show(step: int, loss: float) -> None:
        _progress[index] = step / cfg.train.steps

    train(cfg, store, progress=show)
    _progress[index] = 1.0


# ---- until a limit ---------------------------------------------------------------------------------------------------


def train_until(until: float, configs: Sequence[RunConfig], store: RunStore, jobs: int) -> dict[str, str]:
    """Trains runs in their order, ``jobs`` at once, until ``time.monotonic()`` says ``until``.

    Key -> "" for those that are finished, STOPPED for those that the limit stopped or that were not begun, and for
    those that failed one line that says why; they do not keep the others from being trained. What is stopped, or
    interrupted, goes on from its last checkpoint another time; texts are tokenised first. Raises what concerns all
    runs, a full disk or a worker that was killed."""
    outcomes = {}
    try:
        for cfg in _one_of_each_text(configs):
            with contextlib.suppress(InputError):  # the runs of a text that does not fit say so
                _prepare_texts([cfg], store, until)
    except _TimeIsUp:
        return {cfg.key: STOPPED for cfg in configs}
    with Bar(total=len(configs), unit="run", disable=not configs) as bar:
        if jobs == 1:
            for cfg in configs:
                outcomes[cfg.key] = _train_one(cfg, store, until)
                bar.update()
            return outcomes
        with workers.pool(jobs, signal.signal, signal.SIGINT, signal.SIG_IGN) as pool:  # Ctrl-C is the caller's to hear
            futures = {pool.submit(_train_one, cfg, store, until): cfg.key for cfg in configs}
            for future in concurrent.futures.as_completed(futures):
                outcomes[futures[future]] = future.result()
                bar.update()
    return outcomes


def _train_one(cfg: RunConfig, store: RunStore, until: float) -> str:
    def look_at_the_clock(step: int, loss: float) -> None:
        if time.monotonic() >= until and step < cfg.train.steps:  # after its last step a run is only to be written
            raise _TimeIsUp

    try:
        look_at_the_clock(0, 0.0)
        train(cfg, store, checkpoint_seconds=CHECKPOINT_SECONDS, progress=look_at_the_clock)
    except _TimeIsUp:
        return STOPPED
    except (InputError, RuntimeError) as error:  # no memory for this one, say
        return " ".join(str(error).split()) or type(error).__name__
    return ""


def _spell(hours: float) -> str:
    seconds = hours * 3600
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{hours:.1f} h"
