"""make bench: measures how much of its time a loop that is not made saves, and fails where it is too little.

Decoding and prefill of a looped model are timed with and without leaving early, in turn, on one thread.
"""

import statistics
import sys
import tempfile
from pathlib import Path

import torch

from lib.config import DataConfig, OptimConfig, RunConfig, TrainConfig
from lib.decode import pace
from lib.decode.generation import Exit
from lib.presets import preset
from lib.store.runs import RunStore
from lib.sweep.finished import trained_model
from lib.sweep.training import sweep
from tests.benches import Bounds

#: 004's 4x4 at a width where a product costs more than calling it
MODEL = preset("looped-256", vocab_size=256, context=512, recur=4, mean_loops=4)
SAVED, PROMPT, NEW, ROUNDS = 0.3, 16, 64, 5
#: rise of tokens/s over the share of loops that is saved, by rows; all of their time would be 1.43 of it
LEAST = {1: 0.9, 16: 0.75}


def trained(steps: int = 40):
    """A model that has seen text, and rows of text that it has not."""
    run = RunConfig(
        model=MODEL,
        data=DataConfig(context=512, val_rows=64),
        optim=OptimConfig(lr=2e-3, warmup_steps=4, scaling="mup"),
        train=TrainConfig(steps=steps, batch=1, precision="fp32"),
    )
    with tempfile.TemporaryDirectory() as folder:
        store = RunStore(Path(folder) / "runs")
        sweep([run], store, jobs=1)
        return trained_model(run, store)


def compare(work: pace.Workload, leave: Exit) -> float:
    """Rise of tokens/s over the share saved, the median of rounds in turn."""
    rounds = pace.in_turn(work, leave, MODEL.mean_loops, ROUNDS)
    return statistics.median((fast / slow - 1) / saved for slow, fast, saved in rounds)


def main() -> int:
    model, rows = trained()
    x, bounds = torch.as_tensor(rows), Bounds()
    for B, least in LEAST.items():
        for what, work in pace.workloads(model, x, B, PROMPT, NEW).items():
            length = PROMPT + NEW if what == "decoding" else MODEL.context
            leave = pace.exit_saving(model, x[: max(B, 4), : length + 1], SAVED)
            name = f"{what}, batch {B}"
            bounds.at_least(f"rise of tokens/s over the share saved, {name}", compare(work, leave), least)
    return bounds.status()


if __name__ == "__main__":
    sys.exit(main())
