"""make bench on CUDA: measures model FLOPs utilisation (MFU) against a plain PyTorch loop, and small models at once.

The plain loop is what one writes first: nanochat's block under autocast, PyTorch's cross-entropy over all logits, fused
AdamW, in eager mode and compiled as a whole. Both train the same looped shape, 1 + 2 x 4 + 1 layers without injection;
FLOPs are those of ``lib.flops.count`` for both. Exits non-zero where a stated bound is missed.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lib.base.machine import device_name
from lib.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig
from lib.flops import count
from lib.model.looped import Draw, LoopedLM
from lib.store.runs import RunStore
from lib.sweep.training import sweep
from lib.train.optimiser import Optimizer

#: bf16 matmul FLOP/s without sparsity, from the data sheets; what is not here is measured
PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "GH200": 989e12}
WIDTHS, CONTEXT, VOCAB, TOKENS, ROUNDS = (256, 512, 1024, 2048), 1024, 32_768, 32_768, 9
MFU_FROM, MFU_LEAST = 1024, 0.5  # aimed at from this width on
SWEPT, SWEEP_LEAST = 8, 3.0  # small runs, and how much faster together than one after the other


def shape(width: int, context: int = CONTEXT, vocab: int = VOCAB) -> ModelConfig:
    return ModelConfig(
        vocab_size=vocab,
        width=width,
        heads=max(1, width // 128),
        mlp_width=4 * width,
        context=context,
        prelude=1,
        recur=2,
        coda=1,
        mean_loops=4,
        backprop_loops="all",
        injection="none",
        state_init="prelude",
        rope="half-split",
        norm_gain=False,
        tied=False,
    )


class PlainBlock(nn.Module):
    def __init__(self, cfg: ModelConfig):
        super().__init__()
        self.heads = cfg.heads
        self.qkv, self.out = (
            nn.Linear(cfg.width, 3 * cfg.width, bias=False),
            nn.Linear(cfg.width, cfg.width, bias=False),
        )
        self.up = nn.Linear(cfg.width, cfg.mlp_width, bias=False)
        self.down = nn.Linear(cfg.mlp_width, cfg.width, bias=False)

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


class Plain(nn.Module):
    """The same shape, as one writes it first."""

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


class Step:
    """Repeats one training step on random tokens; seconds has the time of each."""

    def __init__(self, cfg: ModelConfig, rows: int, device: str, compiled: bool):
        self.cfg, self.device, self.seconds = cfg, device, []
        self.tokens = torch.randint(cfg.vocab_size, (rows, cfg.context + 1), device=device)

    def __call__(self) -> None:
        begin = self._now()
        self.step(self.tokens[:, :-1], self.tokens[:, 1:])
        self.seconds.append(self._now() - begin)

    def _now(self) -> float:
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


class PlainStep(Step):
    def __init__(self, cfg: ModelConfig, rows: int, device: str, compiled: bool):
        super().__init__(cfg, rows, device, compiled)
        self.model = Plain(cfg).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3, fused=True)
        self.loss = torch.compile(self.model) if compiled else self.model

    def step(self, tokens: Tensor, targets: Tensor) -> None:
        with torch.autocast(self.device, torch.bfloat16):
            loss = self.loss(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class OurStep(Step):
    def __init__(self, cfg: ModelConfig, rows: int, device: str, compiled: bool):
        super().__init__(cfg, rows, device, compiled)
        self.model = LoopedLM(cfg).set_precision("bf16-mixed").to(device)
        if compiled:
            self.model.compile_blocks()
        self.optimizer = Optimizer(self.model, OptimConfig(lr=1e-3), steps=1000)
        self.draw = Draw(0, 0, range(rows))

    def step(self, tokens: Tensor, targets: Tensor) -> None:
        loss, _ = self.model.loss(tokens, targets, draw=self.draw)
        loss.backward()
        self.optimizer.clip_gradients()
        self.optimizer.step(0)
        self.optimizer.zero_grad()


def in_turn(steps: dict[str, Callable], rounds: int) -> None:
    """Three of each to warm up, then ``rounds`` of each in turn."""
    for step in steps.values():
        for _ in range(3):
            step()
        step.seconds.clear()
    for _ in range(rounds):
        for step in steps.values():
            step()


def peak(device: str) -> float:
    """bf16 matmul FLOP/s of the card: its data sheet's, or measured."""
    known = [flops for name, flops in PEAKS.items() if device == "cuda" and name in torch.cuda.get_device_name()]
    if known:
        return known[0]
    n = 8192 if device == "cuda" else 512
    a, seconds = torch.randn(n, n, device=device, dtype=torch.bfloat16), []
    for _ in range(20):
        begin = time.perf_counter()
        (a @ a)[0, 0].item()
        seconds.append(time.perf_counter() - begin)
    return 2 * n**3 / min(seconds)


def one_width(cfg: ModelConfig, rows: int, device: str, rounds: int, most: float) -> dict[str, float]:
    """MFU of each way to train a shape."""
    kinds = {"plain": PlainStep, "ours": OurStep}
    steps = {
        f"{name} {how}": kind(cfg, rows, device, how == "compiled")
        for name, kind in kinds.items()
        for how in ("eager", "compiled")
    }
    in_turn(steps, rounds)
    flops, found = count(cfg).flops_per_token, {}
    for name, step in steps.items():
        rate = rows * cfg.context / statistics.median(step.seconds)
        found[name] = rate * flops / most
        print(f"d {cfg.width:5} {name:15} {rate:10.0f} tokens/s {found[name]:7.1%} of {most / 1e12:.3g} TFLOP/s")
    return found


def sweep_speed_up(steps: int = 300) -> float:
    """Time of a sweep of small runs one after the other over that of all at once on one card."""
    seconds = {}
    data = DataConfig(context=256)
    model = ModelConfig(width=128, mlp_width=512, context=256, recur=2, mean_loops=4)
    with tempfile.TemporaryDirectory() as folder:
        for jobs in (1, SWEPT):
            trains = [TrainConfig(steps=steps, batch=16, seed=10 * jobs + seed) for seed in range(SWEPT)]
            configs = [RunConfig(model=model, data=data, optim=OptimConfig(lr=1e-3), train=train) for train in trains]
            begin = time.perf_counter()
            sweep(configs, RunStore(Path(folder) / str(jobs) / "runs"), jobs=jobs)
            seconds[jobs] = time.perf_counter() - begin
    ratio = seconds[1] / seconds[SWEPT]
    print(
        f"{SWEPT} small runs: {seconds[1]:.1f} s one by one, {seconds[SWEPT]:.1f} s in {SWEPT} processes: {ratio:.2f}x"
    )
    return ratio


def main() -> int:
    if not torch.cuda.is_available():
        print("no CUDA device: the bench of a GPU has nothing to measure")
        return 0
    print(device_name())
    torch.set_float32_matmul_precision("high")
    most, missed = peak("cuda"), []
    for width in WIDTHS:
        found = one_width(shape(width), TOKENS // CONTEXT, "cuda", ROUNDS, most)
        torch.cuda.empty_cache()
        torch._dynamo.reset()
        best = max(found["ours eager"], found["ours compiled"])
        print(f"d {width:5} ours over plain compiled: {best / found['plain compiled']:.2f}x")
        if width >= MFU_FROM and best < MFU_LEAST:
            missed.append(f"d {width}: {best:.0%} MFU, {MFU_LEAST:.0%} aimed at")
    together = sweep_speed_up()
    if together < SWEEP_LEAST:
        missed.append(f"sweeps of small models: {together:.2f}x, {SWEEP_LEAST}x aimed at")
    print("\n".join(missed) or "all as aimed at")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
