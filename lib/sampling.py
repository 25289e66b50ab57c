"""What the way of sampling depths does to a run: 001, App. "Per-sequence Sampling" and "Sampling of Truncated
Recurrence"."""

import time

import numpy as np
import pandas as pd
import torch

from lib.config import ModelConfig
from lib.depth import DepthRule
from lib.model import Draw, LoopedLM
from lib.train import one_thread_on_cpu

WINDOW = 25  # logged steps whose median a spike stands out from


def distributions(configs: dict[str, ModelConfig]) -> pd.DataFrame:
    """One row a rule: mean, standard deviation and the 5th and 95th percentile of the total loops T, and the mean loops
    with gradient."""
    rows = {}
    for name, cfg in configs.items():
        rule = DepthRule(cfg)
        p = rule.distribution()
        T = np.arange(len(p))
        mean, below = float(p @ T), np.cumsum(p)
        rows[name] = {
            "mean_loops": cfg.mean_loops, "mean T": mean, "sd T": float(np.sqrt(p @ (T - mean) ** 2)),
            "5 %": int(np.searchsorted(below, 0.05)), "95 %": int(np.searchsorted(below, 0.95)),
            "mean k": rule.expected()[1],
        }  # fmt: skip
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("rule")


def highest_spike(losses) -> float:
    """The most that a training loss stands above the median of the steps around it, in nats, over the second half of a
    run."""
    losses = pd.Series(np.asarray(losses, dtype=float))
    above = losses - losses.rolling(WINDOW, center=True, min_periods=WINDOW // 2).median()
    return float(above.iloc[len(losses) // 2 :].max())


def seconds_per_step(configs: dict[str, ModelConfig], batch: int, context: int, rounds: int = 20) -> dict[str, list]:
    """Seconds of forward and backward passes under each rule, one a round, taken in turns so that a machine that slows
    down does so for all. Random tokens; depths are drawn as in training."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    times = {name: [] for name in configs}
    with one_thread_on_cpu():
        models = {name: LoopedLM(cfg).to(device).train() for name, cfg in configs.items()}
        tokens = torch.randint(min(cfg.vocab_size for cfg in configs.values()), (batch, context + 1), device=device)
        for step in range(rounds + 2):
            for name, model in models.items():
                begin = time.perf_counter()
                draw = Draw(0, step, range(step * batch, (step + 1) * batch))
                loss, _ = model.loss(tokens[:, :-1], tokens[:, 1:], draw=draw)
                loss.backward()
                model.zero_grad(set_to_none=True)
                loss.item()
                if step >= 2:  # the first ones warm up
                    times[name].append(time.perf_counter() - begin)
    return times
