"""make bench: speed as ratios, measured interleaved in one run. Exits non-zero where a stated ratio is missed.

The reference shape is d 128, head_dim 64, context 256, 1 + 2 x 4 + 1 layers, bytes, batch 16, on one thread.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

from lib.config import ModelConfig, OptimConfig, RunConfig, TrainConfig
from lib.flops import count
from lib.model import Draw, LoopedLM
from lib.optim import Optimizer, clip_gradients
from lib.store import RunStore
from lib.sweep import sweep
from lib.train import device_name

SHAPE = ModelConfig(
    width=128,
    heads=2,
    mlp_width=512,
    context=256,
    prelude=1,
    recur=2,
    coda=1,
    mean_loops=4,
    backprop_loops="all",
    depth="fixed",
)
BATCH, ROUNDS = 16, 9


class Trainer:
    """Repeats one training step of the shape: forward, backward, clip, AdamW."""

    def __init__(self, precision: str, compiled: bool):
        self.model = LoopedLM(SHAPE).set_precision(precision)
        if compiled:
            self.model.compile_blocks()
        self.optimizer = Optimizer(self.model, OptimConfig(lr=1e-3), steps=1000)
        self.tokens = torch.randint(256, (BATCH, SHAPE.context + 1))
        self.seconds = []

    def step(self) -> None:
        begin = time.perf_counter()
        loss, _ = self.model.loss(self.tokens[:, :-1], self.tokens[:, 1:], draw=Draw(0, 0, range(BATCH)))
        loss.backward()
        clip_gradients(self.model, 1.0)
        self.optimizer.step(0)
        self.model.zero_grad(set_to_none=True)
        self.seconds.append(time.perf_counter() - begin)


def training_speed() -> dict[str, float]:
    """Median tokens/s of each arithmetic over that of plain fp32 eager with SDPA, step by step in turn."""
    torch.set_num_threads(1)
    trainers = {
        "fp32 eager, SDPA": Trainer("fp32", compiled=False),
        "bf16-mixed eager": Trainer("bf16-mixed", compiled=False),
        "bf16-mixed, block compiled": Trainer("bf16-mixed", compiled=True),
        "bf16 eager": Trainer("bf16", compiled=False),
        "bf16, block compiled": Trainer("bf16", compiled=True),
    }
    for trainer in trainers.values():
        trainer.step()
        trainer.step()
        trainer.seconds.clear()
    for _ in range(ROUNDS):
        for trainer in trainers.values():
            trainer.step()
    reference = trainers["fp32 eager, SDPA"].seconds
    flops = count(SHAPE).flops_per_token
    ratios = {}
    for name, trainer in trainers.items():
        rate = BATCH * SHAPE.context / statistics.median(trainer.seconds)
        # pair by pair, so that a drift of the machine cancels
        ratios[name] = statistics.median(r / s for r, s in zip(reference, trainer.seconds, strict=True))
        print(f"{name:28} {rate:8.0f} tokens/s {rate * flops / 1e9:7.1f} GFLOP/s a core {ratios[name]:6.2f}x")
    return ratios


def sweep_speed_up() -> float:
    """Wall time of a sweep of equal runs in one process over that in two, in turn, starting the processes included."""
    seconds = {1: 0.0, 2: 0.0}
    with tempfile.TemporaryDirectory() as folder:
        for round_ in range(3):
            for jobs in seconds:
                trains = [TrainConfig(steps=600, seed=10 * round_ + seed) for seed in range(4)]
                configs = [RunConfig(optim=OptimConfig(lr=2e-3), train=train) for train in trains]
                begin = time.perf_counter()
                sweep(configs, RunStore(Path(folder) / str(jobs) / "runs"), jobs=jobs)
                seconds[jobs] += time.perf_counter() - begin
    ratio = seconds[1] / seconds[2]
    print(f"three sweeps of 4 runs: {seconds[1]:.1f} s in one process, {seconds[2]:.1f} s in two: {ratio:.2f}x")
    return ratio


def main() -> int:
    print(device_name())
    ratios = training_speed()
    required = {"two processes": (sweep_speed_up(), 1.8)}
    if torch.cpu._is_avx512_bf16_supported():
        eager = max(ratios["bf16-mixed eager"], ratios["bf16 eager"])
        compiled = max(ratios["bf16-mixed, block compiled"], ratios["bf16, block compiled"])
        required |= {"bf16 eager": (eager, 2.0), "bf16, block compiled": (compiled, 2.4)}
    missed = 0
    for name, (measured, least) in required.items():
        print(f"{name}: {measured:.2f}x, at least {least}x wanted: {'ok' if measured >= least else 'MISSED'}")
        missed += measured < least
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
