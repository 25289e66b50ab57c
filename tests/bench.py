"""make bench: measures speeds as ratios, interleaved in one run, and fails where a stated ratio is missed.

The reference shape is d 128, head_dim 64, context 256, 1 + 2 x 4 + 1 layers, bytes, batch 16, on one thread.
"""

import statistics
import time

import numpy as np
import torch

from lib.base.machine import device_name
from lib.config import ModelConfig, OptimConfig, RunConfig, TrainConfig, native_precision
from lib.flops import count
from lib.model.depth import DepthRule
from lib.presets import preset
from tests.benches import Bounds, Ours, in_turn, over, sweep_speed_up

LOOP = dict(prelude=1, recur=2, coda=1, mean_loops=4, backprop_loops="all")
SHAPE = ModelConfig(width=128, heads=2, mlp_width=512, context=256, depth="fixed", **LOOP)
BATCH, ROUNDS = 16, 9

#: the families of the papers at the reference width and ten effective layers
SIZE = dict(vocab_size=256, width=128, heads=2, context=256)
FAMILIES = {
    "Parcae": preset("parcae-140m", mlp_width=512, depth="fixed", **SIZE, **LOOP),
    "iso-depth": preset("isodepth-s10-r4", mlp_width=512, **SIZE, **LOOP),
    "RDM": preset("rdm-100m", mlp_width=440, depth="fixed", **SIZE, **LOOP),
    "Looped-MoE": preset("looped-moe-128", recur=5, **SIZE),
}
LEAST = {"Parcae": 0.75, "iso-depth": 0.75, "RDM": 0.75, "Looped-MoE": 0.6}
HOW = ("eager", "compiled")


def arithmetic(bounds: Bounds) -> None:
    """Tokens/s of each arithmetic over that of plain fp32 eager with SDPA."""
    native = ["bf16-mixed", "bf16"] if native_precision() != "fp32" else []  # emulated, it takes for ever
    kinds = [(precision, compiled) for precision in ["fp32", *native] for compiled in (False, True)]
    seconds = in_turn({kind: Ours(SHAPE, BATCH, *kind) for kind in kinds}, ROUNDS)
    ratios = {kind: over(seconds["fp32", False], own) for kind, own in seconds.items()}
    for compiled, least in ((False, 2.0), (True, 2.4)) if native else ():
        bounds.at_least(f"bf16 {HOW[compiled]}", max(ratios[precision, compiled] for precision in native), least)


def families(bounds: Bounds, precision: str, compiled: bool) -> None:
    """GFLOP/s of each family's step over the reference shape's, in one arithmetic."""
    shapes = {"reference": SHAPE, **FAMILIES}
    seconds = in_turn({name: Ours(cfg, BATCH, precision, compiled) for name, cfg in shapes.items()}, ROUNDS)
    for name, cfg in FAMILIES.items():
        cost = count(cfg).flops_per_token / count(SHAPE).flops_per_token
        bounds.at_least(f"{name}, {HOW[compiled]}", over(seconds["reference"], seconds[name]) * cost, LEAST[name])


def muon_share(precision: str) -> float:
    """Share of Muon's whole update in a step of 4,096 tokens at d 128."""
    trainer, update = Ours(SHAPE, BATCH, precision, optim="muon"), []
    muon = trainer.optimizer.muon.step

    def timed(*arguments, **names):
        begin = time.perf_counter()
        muon(*arguments, **names)
        update.append(time.perf_counter() - begin)

    trainer.optimizer.muon.step = timed
    (whole,) = in_turn({"": trainer}, ROUNDS).values()
    return over(update[-ROUNDS:], whole)


def sampled_depth(precision: str, compiled: bool) -> float:
    """Time of a FLOP at a depth sampled per sequence over that at a fixed one of the same mean; without end where the
    warm model has to be compiled again."""
    sampled = FAMILIES["Parcae"].replace(depth="poisson", backprop_loops="half")
    fixed = sampled.replace(depth="fixed")
    trainers = {cfg.depth: Ours(cfg, BATCH, precision, compiled) for cfg in (fixed, sampled)}
    if compiled:  # one step that ends with every number of rows compiles all that there is
        x, model = trainers["poisson"].tokens, trainers["poisson"].model
        for loops in (torch.arange(1, BATCH + 1), 1):
            model.loss(x[:, :-1], x[:, 1:], loops)[0].backward()
        trainers["fixed"](0)
    compilations = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    seconds = in_turn(trainers, 4 * ROUNDS)
    if torch._dynamo.utils.counters["stats"]["unique_graphs"] > compilations:
        return float("inf")
    ratios = []
    for step, (a, b) in enumerate(zip(seconds["fixed"], seconds["poisson"], strict=True)):
        drawn = zip(*DepthRule(sampled).sample(0, step, range(BATCH)), strict=True)
        run = [fixed.replace(mean_loops=int(n + k), backprop_loops=int(k)) for n, k in drawn]
        flops = np.mean([count(cfg).flops_per_token for cfg in run])
        ratios.append((b / flops) / (a / count(fixed).flops_per_token))
    return statistics.median(ratios)


def main() -> None:
    print(device_name())
    torch.set_num_threads(1)
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    native, bounds = native_precision(), Bounds()
    arithmetic(bounds)
    for compiled in (False, True):
        families(bounds, native, compiled)
        bounds.at_most(f"a FLOP at sampled depth, {HOW[compiled]}", sampled_depth(native, compiled), 1.05)
    bounds.at_most("Muon's share of a step", muon_share(native), 0.10)
    run = RunConfig(optim=OptimConfig(lr=2e-3), train=TrainConfig(steps=600))
    bounds.at_least("a sweep in two processes", sweep_speed_up(run, runs=4, jobs=2, rounds=3), 1.8)
    bounds.end()


if __name__ == "__main__":
    main()
