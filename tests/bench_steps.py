"""make bench: a training step of small models, in tokens per second of process time on one thread.

Ours with its kernels against ours without them, and against a minimal loop of plain PyTorch of the same shape, each at
its best of eager and compiled, fp32 and bf16. All step in turn, so that a drift of the machine cancels.
"""

import itertools
import statistics
import time
from unittest import mock

import torch

from lib.config import ModelConfig, native_precision
from lib.kernels import door
from lib.presets import preset
from tests.benches import Bounds, Ours, Plain, in_turn

LAYERS, ROWS, CONTEXT, HEAD_DIM, ROUNDS = 10, 8, 64, 16, 9
WIDTHS = (16, 32, 64, 96, 128)
GAIN = 1.3  # of the kernels, at least


def shape(width: int, loops: int) -> ModelConfig:
    """The iso-depth shape of ten effective layers, plain or looped four times."""
    size = dict(vocab_size=256, width=width, heads=max(1, width // HEAD_DIM), mlp_width=4 * width, context=CONTEXT)
    loop = dict(prelude=1, recur=(LAYERS - 2) // loops, coda=1, mean_loops=loops)
    return preset(f"isodepth-s10-r{loops}", **size, **loop, **({"backprop_loops": "all"} if loops > 1 else {}))


class Without(Ours):
    """Ours as it is where there is no C compiler."""

    def __call__(self, step: int) -> None:
        with mock.patch.object(door, "library", lambda dtype: None):
            super().__call__(step)


def against_no_kernels(bounds: Bounds, precisions: list[str]) -> None:
    for precision, loops, optim in itertools.product(precisions, (1, 4), ("adamw", "muon", "muonh")):
        gains = {}
        for width in WIDTHS:
            kinds = {"with": Ours, "without": Without}
            steps = {name: kind(shape(width, loops), ROWS, precision, optim=optim) for name, kind in kinds.items()}
            took = {name: statistics.median(own) for name, own in in_turn(steps, ROUNDS, time.process_time).items()}
            gains[width] = took["without"] / took["with"]
        print(f"{precision:10} r {loops} {optim:6}", *(f" d {width}: {gain:.2f}" for width, gain in gains.items()))
        bounds.at_least("the kernels' least gain", min(gains.values()), GAIN)


def against_plain(bounds: Bounds, precisions: list[str]) -> None:
    """Ours with the preset's MuonH and with AdamW over the plain loop with AdamW. MuonH has products of its own, at d
    128 half as many again as a step, which narrow vectors do not make up for."""
    least = {"muonh": 1.0 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 0.9, "adamw": 1.0}
    for width in WIDTHS:
        cfg = shape(width, 1)
        steps = {(name, p): Ours(cfg, ROWS, p, optim=name) for name in least for p in precisions}
        steps |= {("plain", p, c): Plain(cfg, ROWS, p, c) for p in precisions for c in (False, True)}
        took = {kind: statistics.median(own) for kind, own in in_turn(steps, ROUNDS, time.process_time).items()}
        best = {who: min(own for kind, own in took.items() if kind[0] == who) for who in (*least, "plain")}
        for name, bound in least.items():
            bounds.at_least(f"d {width}, {name} over the plain loop", best["plain"] / best[name], bound)


def main() -> None:
    torch.set_num_threads(1)
    torch._inductor.config.compile_threads = 1
    precisions, bounds = [*dict.fromkeys(["fp32", native_precision()])], Bounds()
    against_no_kernels(bounds, precisions)
    against_plain(bounds, precisions)
    bounds.end()


if __name__ == "__main__":
    main()
