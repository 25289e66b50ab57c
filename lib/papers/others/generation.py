"""Ways to write text with a looped model, measured on kept runs: parallel sampling (Geiping et al., arXiv 2510.14961),
exact speculation (LoopSpec, 2609.17184; WaveFront Decoding, 2609.23033), and caches of the last loops."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from lib.base.processes import one_thread_on_cpu
from lib.decode import pace
from lib.decode.generation import Ahead, Exit, score
from lib.model.looped import LoopedLM
from lib.sweep.finished import OfRun, trained_model
from lib.sweep.measurements import named

Way = dict[str, dict[str, Any]]


class OfAnswers(OfRun):
    """What follows the first ``prompt`` tokens of the first ``rows`` validation rows, written in several ``ways``: of
    each the fields of ``Exit`` as "leave", and those of ``Ahead`` as "ahead", or none."""

    rows: int
    prompt: int
    new_tokens: int
    rounds: int
    ways: tuple[Way, ...]


class OfCaches(OfRun):
    """The first ``rows`` validation rows, read with the keys and values of so many loops."""

    rows: int
    kept_loops: tuple[int, ...]


def of_rows(
    model: LoopedLM, x: np.ndarray, prompt: int, new_tokens: int, rounds: int, ways: Sequence[Way]
) -> dict[str, Any]:
    """Columns of ``pace.compared`` for the beginnings of rows x [rows, S + 1], a number a way and row."""
    rules: list[pace.Way] = [
        (Exit(**way.get("leave", {})), Ahead(**way["ahead"]) if "ahead" in way else None) for way in ways
    ]
    with one_thread_on_cpu():
        found = pace.compared(model, x[:, :prompt].tolist(), new_tokens, rules, rounds)
    return {str(name): [of[name].tolist() for of in found] for name in found[0]}


@named("lib.papers.others.answers")
def answers(case: OfAnswers) -> dict[str, Any]:
    """``of_rows`` of a run's validation rows."""
    model, x = trained_model(case.cfg, case.store)
    return of_rows(model, x[: case.rows], case.prompt, case.new_tokens, case.rounds, case.ways)


@named("lib.papers.others.caches")
def caches(case: OfCaches) -> dict[str, Any]:
    """loss: nats a token for each number of loops and row, of which every token is read after those before it."""
    model, x = trained_model(case.cfg, case.store)
    rows = torch.as_tensor(x[: case.rows])
    found = [score(model, rows[:, :-1], rows[:, 1:], Exit(kept_loops=k), one_by_one=True) for k in case.kept_loops]
    return {"loss": [of.loss.mean(1).tolist() for of in found]}
