"""make bench: times 10,000 multiple-choice questions of 128 tokens.

The model is one of the cpu profile. Exits non-zero where the questions take too long.
"""

import sys
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from lib.base.processes import one_thread_on_cpu
from lib.decode.continuations import Question, score
from lib.model.looped import LoopedLM
from lib.presets import preset
from tests.benches import Bounds

#: the largest model of recurrence_exponent's cpu profile, with a context that holds a question
MODEL = preset(
    "isodepth-s10-r4", vocab_size=256, width=40, heads=5, mlp_width=160, context=128, prelude=1, recur=2, coda=1
)
QUESTIONS, PREFIX, CHOICES, LENGTH = 10_000, 96, 4, 8
MOST = 180.0  # seconds on two cores


def questions(n: int, seed: int) -> list[Question]:
    """Random ones, of 128 tokens each with all their choices, give or take a quarter."""
    random = np.random.default_rng(seed)
    tokens = random.integers(0, MODEL.vocab_size, (n, PREFIX * 5 // 4 + CHOICES * LENGTH))
    lengths = random.integers(PREFIX * 3 // 4, PREFIX * 5 // 4 - LENGTH, n)
    return [
        Question(row[:length].tolist(), row[-CHOICES * LENGTH :].reshape(CHOICES, -1).tolist())
        for row, length in zip(tokens, lengths, strict=True)
    ]


def seconds(asked: list[Question]) -> float:
    model = LoopedLM(MODEL).eval()
    with one_thread_on_cpu():
        score(model, asked[:64])
        begin = time.perf_counter()
        score(model, asked)
        return time.perf_counter() - begin


def main() -> int:
    part, bounds = questions(QUESTIONS // 2, 0), Bounds()
    with ProcessPoolExecutor(2) as pool:
        took = max(pool.map(seconds, [part, questions(QUESTIONS // 2, 1)]))
    size = PREFIX + CHOICES * LENGTH
    bounds.at_most(f"seconds on two cores of {QUESTIONS} questions of {CHOICES} choices, {size} tokens", took, MOST)
    return bounds.status()


if __name__ == "__main__":
    sys.exit(main())
