"""make bench: does a loop that is not made save its time? Decoding and prefill of a looped model, with and without
leaving early, in turn, on one thread."""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from lib.config import DataConfig, OptimConfig, RunConfig, TrainConfig
from lib.decode import Exit, Sampling, generate, score
from lib.presets import preset
from lib.store import RunStore
from lib.sweep import sweep, trained_model

#: 004's 4x4 at a width where a product costs more than calling it
MODEL = preset("looped-256", vocab_size=256, context=512, recur=4, mean_loops=4)
SAVED, PROMPT, NEW, ROUNDS = 0.3, 16, 64, 5
#: rise of tokens/s over the share of loops that is saved, by rows
LEAST = {1: 0.9, 16: 0.75}


def trained(steps: int = 40):
    """A model that has seen text, and rows of text that it has not."""
    run = RunConfig(
        model=MODEL,
        data=DataConfig(context=512, val_rows=48),
        optim=OptimConfig(lr=2e-3, warmup_steps=4, scaling="mup"),
        train=TrainConfig(steps=steps, batch=1, precision="fp32"),
    )
    with tempfile.TemporaryDirectory() as folder:
        store = RunStore(Path(folder) / "runs")
        sweep([run], store, jobs=1)
        return trained_model(run, store)


def threshold_for(model, x: torch.Tensor) -> float:
    """The entropy below which tokens leave so that SAVED of the loops are not made."""
    low, high = 0.0, 6.0
    for _ in range(12):
        middle = (low + high) / 2
        saved = 1 - score(model, x[:, :-1], x[:, 1:], Exit(middle)).loops.mean() / model.cfg.mean_loops
        low, high = (middle, high) if saved < SAVED else (low, middle)
    return high


def rate(run) -> tuple[float, float]:
    """Tokens/s of a run that returns the loops of all its tokens, and the share of loops that was not made."""
    begin = time.perf_counter()
    loops = run()
    return len(loops) / (time.perf_counter() - begin), 1 - float(np.mean(loops)) / MODEL.mean_loops


def compare(name: str, full, early) -> float:
    """Rise of tokens/s over the share saved, the median of rounds in turn."""
    rates = []
    for _ in range(ROUNDS + 1):
        rates.append((*rate(full), *rate(early)))
    found = [(fast / slow - 1) / saved for slow, _, fast, saved in rates[1:]]  # the first warms up
    slow, _, fast, saved = (statistics.median(column) for column in zip(*rates[1:], strict=True))
    middle = statistics.median(found)
    print(
        f"{name:20} {slow:7.0f} -> {fast:7.0f} tokens/s ({fast / slow - 1:+.0%}) with {saved:.1%} of the loops saved: "
        f"{middle:.2f} of the share [{min(found):.2f}, {max(found):.2f}]"
    )
    return middle


def main() -> None:
    torch.set_num_threads(1)
    model, rows = trained()
    x, warm = torch.as_tensor(rows), Sampling(temperature=1.0)
    missed = []
    for B, least in LEAST.items():
        # more prompts than there are places, so that the last ones do not leave the batch empty for long
        prompts, texts = x[: 3 * B, :PROMPT].tolist(), x[: max(B, 4)].split(B)
        early = Exit(threshold_for(model, x[: max(B, 4)]))

        def decode(leave: Exit, prompts=prompts, B=B) -> list[int]:
            answers = generate(model, prompts, NEW, leave, warm, batch=B)
            return [loops for answer in answers for loops in answer.loops]

        def prefill(leave: Exit, texts=texts) -> list[int]:
            return np.concatenate([score(model, text[:, :-1], text[:, 1:], leave).loops.ravel() for text in texts])

        for name, run in (("decoding", decode), ("prefill", prefill)):
            found = compare(f"{name}, batch {B}", lambda run=run: run(Exit()), lambda run=run, early=early: run(early))
            if found < least:
                missed.append(f"{name}, batch {B}: {found:.2f} of the share saved, at least {least} wanted")
    print("\n".join(missed) or "every loop that is saved saves its time")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
