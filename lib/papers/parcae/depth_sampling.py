"""What sampling a depth for every sequence costs: 001, App. "Per-sequence Sampling"."""

import time

import pandas as pd
import torch

from lib.base.machine import device_type
from lib.base.processes import one_thread_on_cpu
from lib.config import ModelConfig
from lib.model.looped import Draw, LoopedLM


def seconds_per_step(
    configs: dict[str, ModelConfig], rows: int, context: int, rounds: int, precision: str
) -> pd.DataFrame:
    """Seconds of a forward and backward pass [round, rule]. The rules take turns, so that a machine that slows down
    does so for all. Tokens are random; depths are drawn as in training."""
    device = device_type()
    seconds = []
    with one_thread_on_cpu():
        models = {name: LoopedLM(cfg).set_precision(precision).to(device).train() for name, cfg in configs.items()}
        tokens = torch.randint(min(cfg.vocab_size for cfg in configs.values()), (rows, context + 1), device=device)
        for step in range(rounds + 2):
            draw, taken = Draw(0, step, range(step * rows, (step + 1) * rows)), {}
            for name, model in models.items():
                begin = time.perf_counter()
                loss, _ = model.loss(tokens[:, :-1], tokens[:, 1:], draw=draw)
                loss.backward()
                loss.item()
                taken[name] = time.perf_counter() - begin
                model.zero_grad(set_to_none=True)
            seconds.append(taken)
    return pd.DataFrame(seconds[2:])  # the first ones warm up
