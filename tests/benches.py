"""What the benches share: steps that are timed in turn, bounds that are judged, our training step and a plain one."""

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lib.config import ModelConfig, OptimConfig, RunConfig
from lib.model.looped import Draw, LoopedLM
from lib.store.runs import RunStore
from lib.sweep.training import sweep
from lib.train.optimiser import Optimizer


def clock() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def in_turn(steps: dict[str, Callable[[int], object]], rounds: int, clock=clock, warmup: int = 3) -> dict[str, list]:
    """Seconds of each step in every round: some to warm up, then each in turn, so that a drift of the machine
    cancels."""
    seconds = {name: [] for name in steps}
    for round_ in range(-warmup, rounds):
        for name, step in steps.items():
            begin = clock()
            step(max(0, round_))
            if round_ >= 0:
                seconds[name].append(clock() - begin)
    return seconds


def over(reference: list[float], seconds: list[float]) -> float:
    """How much faster than the reference: the median over pairs of neighbours in time."""
    return statistics.median(r / s for r, s in zip(reference, seconds, strict=True))


def sweep_speed_up(run: RunConfig, runs: int, jobs: int, rounds: int = 1) -> float:
    """Wall time of sweeps of equal runs in one process over that in ``jobs``, starting the processes included."""
    with tempfile.TemporaryDirectory() as folder:

        def train(round_: int, jobs: int) -> None:
            seeds = range(round_ * runs, (round_ + 1) * runs)
            configs = [run.replace(train=run.train.replace(seed=seed)) for seed in seeds]
            sweep(configs, RunStore(Path(folder) / str(jobs) / "runs"), jobs=jobs)

        seconds = in_turn({n: partial(train, jobs=n) for n in (1, jobs)}, rounds, warmup=0)
    return sum(seconds[1]) / sum(seconds[jobs])


class Bounds:
    """Prints each measured number with its bound, and counts those that are missed."""

    missed = 0

    def at_least(self, name: str, measured: float, least: float) -> None:
        self.judge(f"{name}: {measured:.3g}, at least {least:.3g} wanted", measured >= least)

    def at_most(self, name: str, measured: float, most: float) -> None:
        self.judge(f"{name}: {measured:.3g}, at most {most:.3g} wanted", measured <= most)

    def judge(self, said: str, fine: bool) -> None:
        print(f"{said}: {'ok' if fine else 'MISSED'}", flush=True)
        self.missed += not fine

    def end(self) -> None:
        """Ends the command that measured."""
        raise SystemExit(self.missed > 0)


class Ours:
    """One training step on random tokens: forward, backward, clip, update."""

    def __init__(self, cfg: ModelConfig, rows: int, precision: str, compiled=False, optim="adamw", device="cpu"):
        self.model = LoopedLM(cfg).set_precision(precision).to(device)
        if compiled:
            self.model.compile_blocks()
        self.optimizer = Optimizer(self.model, OptimConfig(name=optim, lr=1e-3), steps=1000)
        self.tokens = torch.randint(cfg.vocab_size, (rows, cfg.context + 1), device=device)

    def __call__(self, step: int) -> None:
        draw = Draw(0, step, range(len(self.tokens)))
        loss, _ = self.model.loss(self.tokens[:, :-1], self.tokens[:, 1:], draw=draw)
        loss.backward()
        self.optimizer.clip_gradients()
        self.optimizer.step(step)
        self.optimizer.zero_grad()


class Plain:
    """The same of what one writes first: nanochat's block under autocast, PyTorch's cross-entropy over all logits,
    fused AdamW, in eager mode or compiled as a whole."""

    def __init__(self, cfg: ModelConfig, rows: int, precision: str, compiled=False, device="cpu"):
        self.model = PlainModel(cfg).to(device)
        self.loss = torch.compile(self.model) if compiled else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3, fused=True)
        self.half = contextlib.nullcontext() if precision == "fp32" else torch.autocast(device, torch.bfloat16)
        self.tokens = torch.randint(cfg.vocab_size, (rows, cfg.context + 1), device=device)

    def __call__(self, step: int) -> None:
        with self.half:
            loss = self.loss(self.tokens[:, :-1], self.tokens[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class PlainModel(nn.Module):
    """The shape of a looped model without injection."""

    def __init__(self, cfg: ModelConfig):
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab_size, cfg.width)
        self.blocks = nn.ModuleList(PlainBlock(cfg) for _ in range(cfg.layers))
        self.head = nn.Linear(cfg.width, cfg.vocab_size, bias=False)
        looped = list(range(cfg.prelude, cfg.prelude + cfg.recur))
        self.order = [*range(cfg.prelude), *looped * cfg.mean_loops, *range(cfg.prelude + cfg.recur, cfg.layers)]
        half = cfg.head_dim // 2
        angles = torch.outer(torch.arange(cfg.context), cfg.rope_base ** (-torch.arange(half) / half))
        self.register_buffer("cos", angles.cos()[:, None])
        self.register_buffer("sin", angles.sin()[:, None])

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.embed(tokens)
        for i in self.order:
            x = self.blocks[i](x, self.cos, self.sin)
        logits = self.head(F.rms_norm(x, x.shape[-1:])).float()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class PlainBlock(nn.Module):
    def __init__(self, cfg: ModelConfig):
        super().__init__()
        d, self.heads = cfg.width, cfg.heads
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, cfg.mlp_width, bias=False), nn.Linear(cfg.mlp_width, d, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        B, S, d = x.shape
        q, k, v = self.qkv(F.rms_norm(x, (d,))).view(B, S, 3, self.heads, -1).unbind(2)
        q, k = (F.rms_norm(rotated(t, cos, sin), t.shape[-1:]) for t in (q, k))
        attended = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(B, S, d))
        return x + self.down(F.relu(self.up(F.rms_norm(x, (d,)))).square())


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1).type_as(x)
