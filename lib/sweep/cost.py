"""What the missing runs of a sweep cost: their FLOPs, and the time that they take on this device."""

import os
import time
from collections.abc import Sequence
from typing import Any

import torch

from lib.base.distributed import STATE
from lib.base.errors import InputError
from lib.base.machine import device_name, device_type
from lib.base.processes import one_thread_on_cpu
from lib.config import ModelConfig, RunConfig
from lib.flops import count, run_flops
from lib.model.looped import Draw, LoopedLM
from lib.store.runs import RunStore
from lib.train.optimiser import Optimizer

PROBE_FLOPS = 2e10  # a training step above this is timed on a smaller model


def missing(configs: Sequence[RunConfig], store: RunStore) -> list[RunConfig]:
    """What the store does not have, once each, the longest first."""
    unique = {cfg.key: cfg for cfg in configs}
    return sorted((cfg for cfg in unique.values() if store.find(cfg) is None), key=run_flops, reverse=True)


def hours(configs: Sequence[RunConfig], at_once: int) -> float:
    """That these runs, the longest first, take on so many processes. The time is measured, on a step of each shape."""
    rates = {shape: flops_per_second(cfg) for shape, cfg in {_shape(cfg): cfg for cfg in reversed(configs)}.items()}
    finish = [0.0] * at_once  # when each process would be done
    for cfg in configs:
        finish[finish.index(min(finish))] += run_flops(cfg) / rates[_shape(cfg)]
    return max(finish) / 3600


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
    with one_thread_on_cpu():
        device = device_type()
        model = LoopedLM(model_cfg).set_precision(cfg.train.precision).to(device)
        optimizer = Optimizer(model, cfg.optim, 3, cfg.tokens_per_step)
        tokens = torch.randint(model_cfg.vocab_size, (rows, context + 1), device=device)
        seconds = []
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
