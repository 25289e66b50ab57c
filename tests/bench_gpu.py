"""make bench on CUDA: measures model FLOPs utilisation (MFU), and small models at once.

The looped shape is 1 + 2 x 4 + 1 layers without injection; FLOPs are those of ``lib.flops.count``. Exits non-zero
where a stated bound is missed.
"""

import statistics

import torch

from lib.base.machine import device_name
from lib.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig
from lib.flops import count
from tests.benches import Bounds, Ours, in_turn, sweep_speed_up

#: bf16 matmul FLOP/s without sparsity, from the data sheets; what is not here is measured
PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12}
WIDTHS, CONTEXT, VOCAB, TOKENS, ROUNDS = (1024, 2048), 1024, 32_768, 32_768, 9
MFU_LEAST = 0.5
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


def best_mfu(cfg: ModelConfig, most: float) -> float:
    """MFU of the better of eager and compiled."""
    rows = TOKENS // CONTEXT
    steps = {compiled: Ours(cfg, rows, "bf16-mixed", compiled, device="cuda") for compiled in (False, True)}
    seconds = min(statistics.median(own) for own in in_turn(steps, ROUNDS).values())
    return TOKENS / seconds * count(cfg).flops_per_token / most


def main() -> None:
    if not torch.cuda.is_available():
        print("no CUDA device: the bench of a GPU has nothing to measure")
        return
    print(device_name())
    torch.set_float32_matmul_precision("high")
    most, bounds = peak(), Bounds()
    for width in WIDTHS:
        bounds.at_least(f"MFU at d {width}", best_mfu(shape(width), most), MFU_LEAST)
        torch.cuda.empty_cache()
        torch._dynamo.reset()
    model = ModelConfig(width=128, mlp_width=512, context=256, recur=2, mean_loops=4)
    train, optim = TrainConfig(steps=300, batch=16), OptimConfig(lr=1e-3)
    run = RunConfig(model=model, data=DataConfig(context=256), optim=optim, train=train)
    bounds.at_least(f"{SWEPT} small runs at once over one by one", sweep_speed_up(run, SWEPT, SWEPT), SWEEP_LEAST)
    bounds.end()


if __name__ == "__main__":
    main()
