"""make bench on CUDA: measures model FLOPs utilisation (MFU) against a plain PyTorch loop, and small models at once.

Both train the same looped shape, 1 + 2 x 4 + 1 layers without injection; FLOPs are those of ``lib.flops.count`` for
both. Exits non-zero where a stated bound is missed.
"""

import statistics
import sys

import torch

from lib.base.machine import device_name
from lib.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig
from lib.flops import count
from tests.benches import Bounds, Ours, Plain, in_turn, sweep_speed_up

#: bf16 matmul FLOP/s without sparsity, from the data sheets; what is not here is measured
PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12}
WIDTHS, CONTEXT, VOCAB, TOKENS, ROUNDS = (256, 512, 1024, 2048), 1024, 32_768, 32_768, 9
MFU_FROM, MFU_LEAST = 1024, 0.5  # aimed at from this width on
SWEPT, SWEEP_LEAST = 8, 3.0  # small runs, and how much faster together than one after the other


def shape(width: int) -> ModelConfig:
    loop = dict(prelude=1, recur=2, coda=1, mean_loops=4, backprop_loops="all", injection="none", state_init="prelude")
    size = dict(vocab_size=VOCAB, width=width, heads=max(1, width // 128), mlp_width=4 * width, context=CONTEXT)
    return ModelConfig(**size, **loop, rope="half-split", norm_gain=False, tied=False)


def peak() -> float:
    """bf16 matmul FLOP/s of the card: its data sheet's, or measured."""
    known = [flops for name, flops in PEAKS.items() if name in torch.cuda.get_device_name()]
    if known:
        return known[0]
    n = 8192
    a = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
    (seconds,) = in_turn({"": lambda _: a @ a}, 20).values()
    return 2 * n**3 / min(seconds)


def one_width(cfg: ModelConfig, most: float) -> dict[str, float]:
    """MFU of each way to train a shape."""
    rows, steps = TOKENS // CONTEXT, {}
    for compiled in (False, True):
        how = "compiled" if compiled else "eager"
        steps[f"plain {how}"] = Plain(cfg, rows, "bf16-mixed", compiled, device="cuda")
        steps[f"ours {how}"] = Ours(cfg, rows, "bf16-mixed", compiled, device="cuda")
    found = {}
    for name, seconds in in_turn(steps, ROUNDS).items():
        rate = TOKENS / statistics.median(seconds)
        found[name] = rate * count(cfg).flops_per_token / most
        print(f"d {cfg.width:5} {name:15} {rate:10.0f} tokens/s {found[name]:7.1%} of {most / 1e12:.3g} TFLOP/s")
    return found


def main() -> int:
    if not torch.cuda.is_available():
        print("no CUDA device: the bench of a GPU has nothing to measure")
        return 0
    print(device_name())
    torch.set_float32_matmul_precision("high")
    most, bounds = peak(), Bounds()
    for width in WIDTHS:
        found = one_width(shape(width), most)
        torch.cuda.empty_cache()
        torch._dynamo.reset()
        best = max(found["ours eager"], found["ours compiled"])
        print(f"d {width:5} ours over plain compiled: {best / found['plain compiled']:.2f}x")
        if width >= MFU_FROM:
            bounds.at_least(f"MFU at d {width}", best, MFU_LEAST)
    model = ModelConfig(width=128, mlp_width=512, context=256, recur=2, mean_loops=4)
    train, optim = TrainConfig(steps=300, batch=16), OptimConfig(lr=1e-3)
    run = RunConfig(model=model, data=DataConfig(context=256), optim=optim, train=train)
    bounds.at_least(f"{SWEPT} small runs at once over one by one", sweep_speed_up(run, SWEPT, SWEPT), SWEEP_LEAST)
    return bounds.status()


if __name__ == "__main__":
    sys.exit(main())
