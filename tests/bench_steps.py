"""make bench: a training step of small models, in tokens per second of process time.

Against the library before its kernels (a checkout of that commit), against a minimal loop of plain PyTorch (nanoGPT's
shape: no rotations, no QK-norm, no softcap) and Hugging Face's Llama, on the same number of layers, width, heads, batch
and context, each at its best of eager and compiled, fp32 and bf16. Each competitor is a process with one thread, and
they step in turn, so that a drift of the machine cancels.
"""

import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
BEFORE = "2f3daf5"  # the last commit without kernels
WARMUP, ROUNDS = 3, 9
LAYERS, VOCABULARY, HEAD_DIM = 10, 256, 16
WIDTHS, PEERS_WIDTHS = (16, 32, 64, 96, 128), (16, 32, 64, 96, 128, 256)
GOAL = 1.5


# ---- what a process of a competitor does -----------------------------------------------------------------------------


def ours(torch, case):
    """The iso-depth shape of ten effective layers, plain or looped four times."""
    _, optimizer, loss = prepared(case)

    def step(x, y, i):
        loss(x, y, i).backward()
        optimizer.clip_gradients()
        optimizer.step(i)
        optimizer.zero_grad()

    return step


def before(torch, case):
    """The same by the library of that commit."""
    from lib.train.optimiser import clip_gradients

    model, optimizer, loss = prepared(case)

    def step(x, y, i):
        loss(x, y, i).backward()
        clip_gradients(model, 1.0)
        optimizer.step(i)
        model.zero_grad(set_to_none=True)

    return step


def prepared(case):
    from lib.config import OptimConfig
    from lib.model.looped import Draw, LoopedLM
    from lib.presets import preset
    from lib.train.optimiser import Optimizer

    r = case["loops"]
    loop = dict(prelude=1, recur=(LAYERS - 2) // r, coda=1, mean_loops=r)
    size = dict(vocab_size=VOCABULARY, width=case["width"], heads=case["heads"], mlp_width=4 * case["width"])
    more = {"backprop_loops": "all"} if r > 1 else {}
    model = LoopedLM(preset(f"isodepth-s10-r{r}", context=case["context"], **size, **loop, **more))
    model.set_precision(case["precision"])
    if case["compiled"]:
        model.compile_blocks()
    optimizer = Optimizer(model, OptimConfig(name=case["optimizer"], lr=1e-3), steps=1000)
    return model, optimizer, lambda x, y, i: model.loss(x, y, draw=Draw(0, i, range(len(x))))[0]


def plain(torch, case):
    """What one writes in an hour: nanoGPT's model in its smallest form, with torch's fused AdamW."""
    from torch import nn
    from torch.nn import functional as F

    d, H = case["width"], case["heads"]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn_norm, self.qkv, self.out = nn.LayerNorm(d), nn.Linear(d, 3 * d, False), nn.Linear(d, d, False)
            self.mlp_norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 4 * d, False), nn.Linear(4 * d, d, False)

        def forward(self, x):
            q, k, v = (t.unflatten(-1, (H, -1)).transpose(1, 2) for t in self.qkv(self.attn_norm(x)).chunk(3, -1))
            x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))
            return x + self.down(F.gelu(self.up(self.mlp_norm(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.places = nn.Embedding(VOCABULARY, d), nn.Embedding(case["context"], d)
            self.blocks, self.norm = nn.Sequential(*(Block() for _ in range(LAYERS))), nn.LayerNorm(d)
            self.head = nn.Linear(d, VOCABULARY, False)

        def forward(self, x, y):
            logits = self.head(self.norm(self.blocks(self.embed(x) + self.places.weight[: x.shape[1]])))
            return F.cross_entropy(logits.flatten(0, 1).float(), y.flatten())

    return loop(torch, GPT(), case)


def llama(torch, case):
    """Hugging Face's Llama of the same width and depth, its SwiGLU as wide as gives as many parameters."""
    from transformers import LlamaConfig, LlamaForCausalLM

    inner = round(8 * case["width"] / 3 / 16) * 16
    sizes = dict(vocab_size=VOCABULARY, hidden_size=case["width"], num_attention_heads=case["heads"])
    model = LlamaForCausalLM(
        LlamaConfig(
            **sizes, intermediate_size=inner, num_hidden_layers=LAYERS, use_cache=False, max_position_embeddings=256
        )
    )

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x, y):
            return torch.nn.functional.cross_entropy(self.model(x).logits.flatten(0, 1).float(), y.flatten())

    return loop(torch, Loss(), case)


def loop(torch, model, case):
    """One step of a plain loop around a loss: forward, backward, clip, fused AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), fused=True)
    loss = torch.compile(model) if case["compiled"] else model
    half = torch.autocast("cpu", torch.bfloat16) if case["precision"] != "fp32" else contextlib.nullcontext()

    def step(x, y, i):
        with half:
            value = loss(x, y)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def serve() -> None:
    """Reads a case, then for each further line makes a step and says what it took; an empty line ends the case."""
    import torch

    torch.set_num_threads(1)
    torch._inductor.config.compile_threads = 1
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        case = json.loads(line)
        step = {"ours": ours, "before": before, "plain": plain, "llama": llama}[case["who"]](torch, case)
        tokens = torch.randint(VOCABULARY, (case["batch"], case["context"] + 1))
        for i in range(WARMUP):
            step(tokens[:, :-1], tokens[:, 1:], i)
        print("ready", file=answers, flush=True)
        for i, again in enumerate(sys.stdin, start=WARMUP):
            if not again.strip():
                break
            begin = time.process_time()
            step(tokens[:, :-1], tokens[:, 1:], i)
            print(time.process_time() - begin, file=answers, flush=True)


# ---- comparing -------------------------------------------------------------------------------------------------------


class Competitor:
    """A process that steps one case after the other."""

    def __init__(self, who: str, root: Path = ROOT):
        self.who = who
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), "serve"],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, line: str) -> str:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline() if line else ""


def in_turn(cases: list[tuple[Competitor, dict]]) -> list[float]:
    """Median seconds of process time of a step of each, all stepping in turn."""
    for competitor, case in cases:
        if competitor.ask(json.dumps({**case, "who": competitor.who})) != "ready\n":
            raise RuntimeError(f"{competitor.who} ended on {case}")
    seconds = [[] for _ in cases]
    for _ in range(ROUNDS):
        for (competitor, _), own in zip(cases, seconds, strict=True):
            own.append(float(competitor.ask("step")))
    for competitor, _ in cases:
        competitor.ask("")
    return [statistics.median(own) for own in seconds]


def case(width: int, loops: int = 1, optimizer: str = "adamw", precision: str = "fp32", compiled: bool = False, **more):
    heads = max(1, width // HEAD_DIM)
    given = dict(width=width, heads=heads, loops=loops, optimizer=optimizer, precision=precision, compiled=compiled)
    return {**given, "batch": 8, "context": 64, **more}


def checkout(folder: Path) -> Path | None:
    """The library before its kernels, where the repository remembers it."""
    clone = ["git", "clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(folder)]
    for command in (clone, ["git", "-C", str(folder), "checkout", "--quiet", BEFORE]):
        if subprocess.run(command, capture_output=True).returncode:
            return None
    return folder


def against_before(precisions: list[str]) -> int:
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        root = checkout(Path(folder))
        if root is None:
            print(f"commit {BEFORE} is not in this repository: nothing to compare with")
            return 0
        now, before = Competitor("ours"), Competitor("before", root)
        print(f"tokens/s over those of commit {BEFORE}, 8 x 64 bytes, at least {GOAL} wanted")
        for precision, loops, optimizer in itertools.product(precisions, (1, 4), ("adamw", "muon", "muonh")):
            ratios = []
            for width in WIDTHS:
                one = case(width, loops, optimizer, precision)
                a, b = in_turn([(now, one), (before, one)])
                ratios.append(b / a)
            missed += sum(ratio < GOAL for ratio in ratios)
            shape = "plain" if loops == 1 else "looped"
            row = "  ".join(f"d {width}: {ratio:.2f}" for width, ratio in zip(WIDTHS, ratios, strict=True))
            print(f"{precision:10} {shape:6} {optimizer:6} {row}", flush=True)
    return missed


def least_over_plain() -> dict[str, float]:
    """Our speed with each optimiser over the plain loop's with AdamW, at least. MuonH has products of its own, at d 128
    half as many again as a step, which narrow vectors do not make up for."""
    import torch

    return {"muonh": 1.0 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 0.9, "adamw": 1.0}


def against_peers(precisions: list[str]) -> int:
    """Ours with the preset's MuonH and with AdamW, at its better precision, over each peer's best: a row each."""
    missed, how, least = 0, [*itertools.product(precisions, (False, True))], least_over_plain()
    print("tokens/s over a peer's with AdamW, each at its best of", ", ".join(f"{p}{', compiled' * c}" for p, c in how))
    wanted = " and ".join(f"{bound} with {optimizer}" for optimizer, bound in least.items())
    print(f"wanted over the plain loop up to width {WIDTHS[-1]}: {wanted}")
    for width in PEERS_WIDTHS:
        entrants = [("ours", *setting, False) for setting in itertools.product(("muonh", "adamw"), precisions)]
        entrants += [(peer, "adamw", *setting) for peer in ("plain", "llama") for setting in how]
        competitors = [Competitor(who) for who, *_ in entrants]
        cases = [case(width, 1, *setting) for _, *setting in entrants]
        best: dict[tuple[str, str], tuple[float, str]] = {}
        timed = zip(entrants, in_turn([*zip(competitors, cases, strict=True)]), strict=True)
        for (who, optimizer, precision, compiled), seconds in timed:
            entry = seconds, precision + ", compiled" * compiled
            best[who, optimizer] = min(best.get((who, optimizer), entry), entry)
        for peer in ("plain", "llama"):
            theirs, setting = best[peer, "adamw"]
            for optimizer in least:
                own, ours = best["ours", optimizer]
                bound = least[optimizer] if peer == "plain" and width <= WIDTHS[-1] else 0
                row = f"d {width:3} {optimizer:5} over {peer:5}: {theirs / own:.2f}"
                took = f"{own * 1e3:.1f} ms a step ({ours}), {theirs * 1e3:.1f} ({setting})"
                print(f"{row}  {took}{'  MISSED' * (theirs / own < bound)}", flush=True)
                missed += theirs / own < bound
        for competitor in competitors:
            competitor.process.kill()
    return missed


def main() -> int:
    sys.path.insert(0, str(ROOT))
    from lib.config import native_precision

    precisions = [*dict.fromkeys(["fp32", native_precision()])]
    missed = against_before(precisions) + against_peers(precisions)
    print(f"{missed} missed")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(serve() if sys.argv[1:] == ["serve"] else main())
