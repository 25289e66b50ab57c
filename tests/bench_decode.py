"""make bench: measures how much of its time a loop that is not made saves, and times 10,000 multiple-choice questions
of 128 tokens. Exits non-zero where a bound is missed.

Decoding and prefill of a looped model are timed with and without leaving early, in turn, on one thread.
"""

import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch

from lib.base.processes import one_thread_on_cpu
from lib.config import DataConfig, OptimConfig, RunConfig, TrainConfig
from lib.decode import continuations, pace
from lib.decode.continuations import Question
from lib.model.looped import LoopedLM
from lib.presets import preset
from lib.store.runs import RunStore
from lib.sweep.finished import trained_model
from lib.sweep.training import sweep
from tests.benches import Bounds

#: 004's 4x4 at a width where a product costs more than calling it
MODEL = preset("looped-256", vocab_size=256, context=512, recur=4, mean_loops=4)
SAVED, PROMPT, NEW, ROUNDS = 0.3, 16, 64, 5
#: rise of tokens/s over the share of loops that is saved, by rows; all of their time would be 1.43 of it. Missed since
#: layers are computed in C and cost half, so that what asking and entering cost weighs double: decoding has .86 and .36
#: at twice the tokens/s, where it had 1.03 and .63 (at 16 rows 2,330 and 2,580, where it was 1,060 and 1,270)
LEAST = {1: 0.9, 16: 0.75}
#: the largest model of recurrence_exponent's cpu profile, with a context that holds a question
ASKED = preset(
    "isodepth-s10-r4", vocab_size=256, width=40, heads=5, mlp_width=160, context=128, prelude=1, recur=2, coda=1
)
QUESTIONS, PREFIX, CHOICES, LENGTH = 10_000, 96, 4, 8
MOST = 180.0  # seconds on two cores


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


def questions(n: int, seed: int) -> list[Question]:
    """Random ones, of 128 tokens each with all their choices, give or take a quarter."""
    random = np.random.default_rng(seed)
    tokens = random.integers(0, ASKED.vocab_size, (n, PREFIX * 5 // 4 + CHOICES * LENGTH))
    lengths = random.integers(PREFIX * 3 // 4, PREFIX * 5 // 4 - LENGTH, n)
    return [
        Question(row[:length].tolist(), row[-CHOICES * LENGTH :].reshape(CHOICES, -1).tolist())
        for row, length in zip(tokens, lengths, strict=True)
    ]


def seconds(asked: list[Question]) -> float:
    model = LoopedLM(ASKED).eval()
    with one_thread_on_cpu():
        continuations.score(model, asked[:64])
        begin = time.perf_counter()
        continuations.score(model, asked)
        return time.perf_counter() - begin


def main() -> None:
    bounds = Bounds()
    with ProcessPoolExecutor(2) as pool:
        took = max(pool.map(seconds, [questions(QUESTIONS // 2, seed) for seed in (0, 1)]))
    size = PREFIX + CHOICES * LENGTH
    bounds.at_most(f"seconds on two cores of {QUESTIONS} questions of {CHOICES} choices, {size} tokens", took, MOST)
    model, rows = trained()
    x = torch.as_tensor(rows)
    for B, least in LEAST.items():
        for what, work in pace.workloads(model, x, B, PROMPT, NEW).items():
            length = PROMPT + NEW if what == "decoding" else MODEL.context
            leave = pace.exit_saving(model, x[: max(B, 4), : length + 1], SAVED)
            rounds = pace.in_turn(work, leave, MODEL.mean_loops, ROUNDS)
            rise = statistics.median((fast / slow - 1) / saved for slow, fast, saved in rounds)
            bounds.at_least(f"rise of tokens/s over the share saved, {what}, batch {B}", rise, least)
    bounds.end()


if __name__ == "__main__":
    main()
