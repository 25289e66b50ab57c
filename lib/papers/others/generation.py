"""What others claim of generation with looped models, measured on kept runs: parallel sampling (Geiping et al., arXiv
2510.14961) and caches of fewer loops (MELT, arXiv 2605.07721)."""

from typing import Any

import numpy as np
import torch

from lib.decode import pace
from lib.decode.generation import Ahead, Exit, score
from lib.sweep.finished import OfRun, trained_model
from lib.sweep.measurements import named


class OfRows(OfRun):
    """A run on the first ``rows`` of its validation rows, with the cache of ``kept_loops``, of all where 0."""

    rows: int
    kept_loops: int = 0


class OfAnswers(OfRows):
    """Greedy answers to the rows' first ``prompt`` tokens, in a way that the other fields say: those of ``Ahead``, and
    of an ``Exit`` by the change of the state."""

    prompt: int
    new_tokens: int
    rounds: int
    wave: int
    loops: int
    exact: bool = True
    mixed: float = 0.1
    noise: float = 0.5
    settled: int | None = None
    change: float = 0.0
    most_loops: int | None = None

    @property
    def ahead(self) -> Ahead:
        return Ahead(self.wave, self.loops, self.exact, self.mixed, self.noise, self.settled)

    @property
    def leave(self) -> Exit:
        return Exit(self.change, "change", self.most_loops, self.kept_loops or None)


@named("lib.papers.others.answers")
def answers(case: OfAnswers) -> dict[str, Any]:
    """Columns of ``pace.against_plain``, a number a row."""
    model, x = trained_model(case.cfg, case.store)
    prompts = x[: case.rows, : case.prompt].tolist()
    found = pace.against_plain(model, prompts, case.new_tokens, case.leave, case.ahead, case.rounds)
    return {str(name): of for name, of in found.to_dict("list").items()}


@named("lib.papers.others.kept")
def kept(case: OfRows) -> dict[str, Any]:
    """loss: nats a token of each row, read one token after the other."""
    model, x = trained_model(case.cfg, case.store)
    tokens, targets = torch.as_tensor(x[: case.rows, :-1]), torch.as_tensor(x[: case.rows, 1:])
    found = score(model, tokens, targets, Exit(kept_loops=case.kept_loops or None), one_by_one=True)
    return {"loss": np.mean(found.loss, 1).tolist()}
