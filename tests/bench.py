"""make bench: measures speeds as ratios, interleaved in one run, and fails where a stated ratio is missed.

The reference shape is d 128, head_dim 64, context 256, 1 + 2 x 4 + 1 layers, bytes, batch 16, on one thread.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from lib.base.machine import device_name
from lib.config import ModelConfig, OptimConfig, RunConfig, TrainConfig, native_precision
from lib.flops import count
from lib.model.depth import DepthRule
from lib.model.looped import Draw, LoopedLM
from lib.presets import preset
from lib.store.runs import RunStore
from lib.sweep.training import sweep
from lib.train.optimiser import Optimizer

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

#: the families of the papers at the reference width and ten effective layers
SIZE = dict(vocab_size=256, width=128, heads=2, context=256)
LOOP = dict(prelude=1, recur=2, coda=1, mean_loops=4, backprop_loops="all")
FAMILIES = {
    "Parcae": preset("parcae-140m", mlp_width=512, depth="fixed", **SIZE, **LOOP),
    "iso-depth": preset("isodepth-s10-r4", mlp_width=512, **SIZE, **LOOP),
    "RDM": preset("rdm-100m", mlp_width=440, depth="fixed", **SIZE, **LOOP),
    "Looped-MoE": preset("looped-moe-128", recur=5, **SIZE),
}
LEAST = {"Parcae": 0.75, "iso-depth": 0.75, "RDM": 0.75, "Looped-MoE": 0.6}


class Trainer:
    """Repeats one training step: forward, backward, clip, update."""

    def __init__(self, cfg: ModelConfig, precision: str, compiled: bool = False, optim: str = "adamw"):
        self.cfg = cfg
        self.model = LoopedLM(cfg).set_precision(precision)
        if compiled:
            self.model.compile_blocks()
        self.optimizer = Optimizer(self.model, OptimConfig(name=optim, lr=1e-3), steps=1000)
        self.tokens = torch.randint(256, (BATCH, cfg.context + 1))
        self.seconds = []

    def step(self, step: int = 0) -> None:
        begin = time.perf_counter()
        loss, _ = self.model.loss(self.tokens[:, :-1], self.tokens[:, 1:], draw=Draw(0, step, range(BATCH)))
        loss.backward()
        self.optimizer.clip_gradients()
        self.optimizer.step(step)
        self.optimizer.zero_grad()
        self.seconds.append(time.perf_counter() - begin)


def in_turn(trainers: dict[str, Trainer], rounds: int = ROUNDS) -> None:
    """Two steps of each to warm up, then ``rounds`` of each in turn, so that a drift of the machine cancels."""
    for trainer in trainers.values():
        trainer.step()
        trainer.step()
        trainer.seconds.clear()
    for step in range(rounds):
        for trainer in trainers.values():
            trainer.step(step)


def over(reference: list[float], seconds: list[float]) -> float:
    """How much faster than the reference: the median over pairs of neighbours in time."""
    return statistics.median(r / s for r, s in zip(reference, seconds, strict=True))


def arithmetic() -> dict[str, float]:
    """Tokens/s of each arithmetic over that of plain fp32 eager with SDPA."""
    trainers = {
        "fp32 eager, SDPA": Trainer(SHAPE, "fp32"),
        "fp32, block compiled": Trainer(SHAPE, "fp32", compiled=True),
    }
    for precision in ("bf16-mixed", "bf16") if native_precision() != "fp32" else ():  # emulated, it takes for ever
        trainers[f"{precision} eager"] = Trainer(SHAPE, precision)
        trainers[f"{precision}, block compiled"] = Trainer(SHAPE, precision, compiled=True)
    in_turn(trainers)
    reference, flops = trainers["fp32 eager, SDPA"].seconds, count(SHAPE).flops_per_token
    ratios = {name: over(reference, trainer.seconds) for name, trainer in trainers.items()}
    for name, trainer in trainers.items():
        rate = BATCH * SHAPE.context / statistics.median(trainer.seconds)
        print(f"{name:28} {rate:8.0f} tokens/s {rate * flops / 1e9:7.1f} GFLOP/s a core {ratios[name]:6.2f}x")
    return ratios


def families(precision: str, compiled: bool) -> dict[str, float]:
    """GFLOP/s of each family's step over the reference shape's, in one arithmetic."""
    shapes = {"reference": SHAPE, **FAMILIES}
    trainers = {name: Trainer(cfg, precision, compiled) for name, cfg in shapes.items()}
    in_turn(trainers)
    flops = {name: count(cfg).flops_per_token for name, cfg in shapes.items()}
    ratios = {}
    for name, trainer in trainers.items():
        ratios[name] = over(trainers["reference"].seconds, trainer.seconds) * flops[name] / flops["reference"]
        rate = BATCH * SHAPE.context * flops[name] / statistics.median(trainer.seconds)
        how = "compiled" if compiled else "eager"
        print(f"{name:12} {precision} {how:9} {rate / 1e9:7.1f} GFLOP/s a core {ratios[name]:6.2f} of the reference")
    return ratios


def muon_share(precision: str) -> float:
    """Share of Muon's whole update in a step of 4,096 tokens at d 128."""
    trainer = Trainer(SHAPE, precision, optim="muon")
    whole, update = trainer.step, []
    muon = trainer.optimizer.muon.step

    def timed(*arguments, **names):
        begin = time.perf_counter()
        muon(*arguments, **names)
        update.append(time.perf_counter() - begin)

    trainer.optimizer.muon.step = timed
    for step in range(ROUNDS + 2):
        whole(step)
    share = statistics.median(u / s for u, s in zip(update[2:], trainer.seconds[2:], strict=True))
    print(f"Muon's update: {statistics.median(update) * 1e3:.1f} ms, {share:.1%} of a step")
    return share


def sampled_depth(precision: str, compiled: bool) -> float:
    """Time of a FLOP at a depth sampled per sequence over that at a fixed one of the same mean."""
    sampled = FAMILIES["Parcae"].replace(depth="poisson", backprop_loops="half")
    shapes = {"fixed": sampled.replace(depth="fixed"), "sampled": sampled}
    trainers = {name: Trainer(cfg, precision, compiled) for name, cfg in shapes.items()}
    if compiled:  # one step that ends with every number of rows compiles all that there is
        x = trainers["sampled"].tokens
        trainers["sampled"].model.loss(x[:, :-1], x[:, 1:], torch.arange(1, BATCH + 1))[0].backward()
        trainers["sampled"].model.loss(x[:, :-1], x[:, 1:], 1)[0].backward()
        trainers["fixed"].step()
    compilations = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    in_turn(trainers, 4 * ROUNDS)
    again = torch._dynamo.utils.counters["stats"]["unique_graphs"] - compilations if compiled else 0
    cost = {}
    for step in range(4 * ROUNDS):
        for loops in zip(*DepthRule(sampled).sample(0, step, range(BATCH)), strict=True):
            if loops not in cost:
                n, k = (int(x) for x in loops)
                fixed = sampled.replace(depth="fixed", mean_loops=n + k, backprop_loops=k)
                cost[loops] = count(fixed).flops_per_token
    ratios = []
    for step, (a, b) in enumerate(zip(trainers["fixed"].seconds, trainers["sampled"].seconds, strict=True)):
        drawn = zip(*DepthRule(sampled).sample(0, step, range(BATCH)), strict=True)
        flops = np.mean([cost[loops] for loops in drawn])
        ratios.append((b / flops) / (a / count(shapes["fixed"]).flops_per_token))
    ratio = statistics.median(ratios)
    how = "compiled" if compiled else "eager"
    print(f"a FLOP at sampled depth, {precision} {how}: {ratio:.3f} of its time at fixed depth, {again} compilations")
    return ratio if not again else float("inf")


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
    torch.set_num_threads(1)
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    native = native_precision()
    at_least, at_most = {}, {}
    ratios = arithmetic()
    if native != "fp32":
        at_least["bf16 eager"] = max(ratios["bf16-mixed eager"], ratios["bf16 eager"]), 2.0
        compiled = max(ratios["bf16-mixed, block compiled"], ratios["bf16, block compiled"])
        at_least["bf16, block compiled"] = compiled, 2.4
    for compiled in (False, True):
        found = families(native, compiled)
        at_least |= {f"{name}{', compiled' * compiled}": (found[name], least) for name, least in LEAST.items()}
        at_most[f"sampled depth{', compiled' * compiled}"] = sampled_depth(native, compiled), 1.05
    at_most["Muon's share"] = muon_share(native), 0.10
    at_least["two processes"] = sweep_speed_up(), 1.8
    missed = 0
    for name, (measured, least) in at_least.items():
        print(f"{name}: {measured:.2f}, at least {least} wanted: {'ok' if measured >= least else 'MISSED'}")
        missed += measured < least
    for name, (measured, most) in at_most.items():
        print(f"{name}: {measured:.3f}, at most {most} wanted: {'ok' if measured <= most else 'MISSED'}")
        missed += measured > most
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
