"""Leaving early without training for it: what every candidate exit predicts, when a token leaves, and what that costs
(004, Sec. "Early Exit Evaluation" and "Why are Early Exits for Looped Transformers Favorable?").

A looped model may leave after each loop, any model after each effective layer. A criterion is a score a token and exit;
the token leaves at the first exit whose score lies below a threshold, and the depth it does not use is what it saves.
Shapes: E exits in the order of their depth, the last one the model's own output; n tokens.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lib.config import RunConfig
from lib.decode.criteria import CRITERIA, Seen
from lib.model.looped import LoopedLM
from lib.store.runs import RunStore
from lib.sweep.finished import trained_model

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass(frozen=True)
class Exits:
    """Of each exit: ``depth`` [E], the share of the effective layers used up to there; ``loss`` [E, n] in nats; and
    ``divergence`` [E, n], the Jensen-Shannon divergence from the last exit's prediction, normalised to [0, 1].

    ``scores``: criterion of ``criteria.CRITERIA`` -> [E, n], below a threshold where a token may leave.
    """

    depth: np.ndarray
    loss: np.ndarray
    divergence: np.ndarray
    scores: dict[str, np.ndarray]


@torch.no_grad()
def measure_exits(model: LoopedLM, tokens: Tensor, targets: Tensor, every_layer: bool = False) -> Exits:
    """The exits of a model in eval mode on tokens [B, S] with their targets: its loop boundaries, each read through the
    coda and the head, or every effective layer, read through the final norm and the head alone.

    All of a batch is computed to its end, so that nothing here saves time. Give batches whose predictions [B S, V] fit
    into memory three times."""
    found = list(_outputs(model, tokens, every_layer))
    depth, targets = np.array([share for share, _, _ in found]), targets.flatten()
    last = _log_probabilities(model, found[-1][2])
    columns: dict[str, list[Tensor]] = {name: [] for name in ("loss", "divergence", *CRITERIA)}
    seen = Seen.nothing(len(targets), model.cfg.width, model.cfg.vocab_size, last.device)
    for _, h, x in found:
        now = seen.then(h.flatten(0, 1).float(), last if x is found[-1][2] else _log_probabilities(model, x))
        columns["loss"].append(-now.log_p.gather(1, targets[:, None])[:, 0])
        columns["divergence"].append(jensen_shannon(now.log_p, last))
        for name, score in CRITERIA.items():
            columns[name].append(score(now, seen))
        seen = now
    stacked = {name: torch.stack(values).cpu().numpy() for name, values in columns.items()}
    return Exits(depth, stacked.pop("loss"), stacked.pop("divergence"), stacked)


EXIT_TOKENS = 1 << 11  # of which all exits' predictions exist at once


def exits_of_run(cfg: RunConfig, store: RunStore, rows: int, every_layer: bool = False) -> Exits:
    """``measure_exits`` of a run in the store, on the first ``rows`` of its validation text: n = rows * S tokens."""
    model, validation = trained_model(cfg, store)
    x = torch.as_tensor(validation[:rows], device=model.embed.weight.device)
    parts = [
        measure_exits(model, part[:, :-1], part[:, 1:], every_layer)
        for part in x.split(max(1, EXIT_TOKENS // (x.shape[1] - 1)))
    ]
    loss, divergence = (np.concatenate([getattr(part, name) for part in parts], 1) for name in ("loss", "divergence"))
    scores = {name: np.concatenate([part.scores[name] for part in parts], 1) for name in CRITERIA}
    return Exits(parts[0].depth, loss, divergence, scores)


def jensen_shannon(log_p: Tensor, log_q: Tensor) -> Tensor:
    """JSD(p || q) / log 2 of rows of log probabilities [n, V], in [0, 1] (004, Eq. 2)."""
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    divergence = (log_p.exp() * (log_p - log_m) + log_q.exp() * (log_q - log_m)).sum(-1) / 2
    return (divergence / math.log(2)).clamp(0, 1)


def convergence(exits: Exits, context: int) -> "pd.DataFrame":
    """One row an exit: ``layer``, from 1 on, the mean ``divergence`` from the last, its ``spread``, the standard
    deviation over the rows of ``context`` tokens, and the share of tokens that have ``converged``, below 0.5 (004, Fig.
    JSD); a pandas frame."""
    import pandas as pd

    by_row = exits.divergence.reshape(len(exits.depth), -1, context).mean(-1)
    return pd.DataFrame({
        "layer": np.arange(1, len(exits.depth) + 1), "divergence": by_row.mean(1), "spread": by_row.std(1),
        "converged": (exits.divergence < 0.5).mean(1),
    })  # fmt: skip


def leave(scores: np.ndarray, threshold: float) -> np.ndarray:
    """The exit [n] of each token: the first whose score [E, n] lies below the threshold, else the last."""
    below = scores < threshold
    below[-1] = True
    return below.argmax(0)


def trade_off(exits: Exits, criterion: str, saved: list[float]) -> list[float]:
    """Perplexity with each share of the depth in ``saved`` (0 to 1) not computed, over the thresholds of a criterion
    (004, Table of perplexities); nan where no threshold saves as much.

    Between two neighbouring thresholds the mean loss is interpolated."""
    scores, tokens = exits.scores[criterion], np.arange(exits.loss.shape[1])
    # a quantile of all scores a step; infinity lets everybody leave at the first exit that has a score
    finite = scores[np.isfinite(scores)]
    thresholds = [*(np.unique(np.quantile(finite, np.linspace(0, 1, 201))) if len(finite) else ()), math.inf, -math.inf]
    points = []
    for threshold in thresholds:
        at = leave(scores, threshold)
        points.append((float((1 - exits.depth[at]).mean()), float(exits.loss[at, tokens].mean())))
    share, loss = np.array(sorted(points)).T
    return [float(np.exp(np.interp(x, share, loss))) if x <= share[-1] else math.nan for x in saved]


def _outputs(model: LoopedLM, tokens: Tensor, every_layer: bool) -> Iterator[tuple[float, Tensor, Tensor]]:
    """(depth, state [B, S, d], the head's input from there) of each exit."""
    cfg = model.cfg
    layers = cfg.prelude + cfg.mean_loops * cfg.recur + cfg.coda
    if not every_layer:
        for T, state, x in model.hidden_at(tokens, range(1, cfg.mean_loops + 1)):
            yield (cfg.prelude + T * cfg.recur + cfg.coda) / layers, state, x
        return
    states: list[Tensor] = []
    blocks = [*model.prelude, *model.recur, *model.coda]
    hooks = [block.register_forward_hook(lambda _, __, out: states.append(out[0])) for block in blocks]
    try:
        end, _ = model.hidden(tokens)
    finally:
        for hook in hooks:
            hook.remove()
    for used, state in enumerate(states[:-1], start=1):
        yield used / layers, state, model.final_norm(state, model.compute_dtype)
    yield 1.0, states[-1], end


def _log_probabilities(model: LoopedLM, x: Tensor) -> Tensor:
    """[B S, V] in fp32."""
    return model.logits(x.flatten(0, 1)).log_softmax(-1)
