"""Leaving early without training for it (004, Sec. "Early Exit Evaluation" and "Why are Early Exits for Looped
Transformers Favorable?"): what each exit predicts, at which one a token leaves, and what leaving costs.

A looped model has an exit after each loop, any model one after each effective layer. A criterion gives each token a
score at each exit. The token leaves at the first exit whose score lies below a threshold, and saves the rest of the
depth. Shapes: E exits in the order of their depth, of which the last is the model's own output; n tokens. A decoder
(``lib/decode/generation.py``) scores the tokens that it has in the loop by the same criteria.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lib.model.looped import LoopedLM
from lib.model.probes import listening


class Seen(NamedTuple):
    """n tokens at an exit; nan stands for an exit before the first."""

    h: Tensor  # their state [n, d]
    move: Tensor  # its change since the exit before [n, d]
    log_p: Tensor  # of their prediction [n, V]; V is 0 where the criterion does not need it
    staying: Tensor  # the chance [n, 1] that an exit gate lets them reach the loop after this one

    @classmethod
    def nothing(cls, n: int, d: int, V: int, device: torch.device | str = "cpu") -> "Seen":
        """n tokens that have met no exit yet."""
        h, move, log_p = (torch.full((n, size), math.nan, device=device) for size in (d, d, V))
        return cls(h, move, log_p, torch.ones(n, 1, device=device))

    def then(self, h: Tensor, log_p: Tensor, leaving: Tensor | None = None) -> "Seen":
        """The same tokens at their next exit; ``leaving`` [n, 1] is the gate's chance there, of those who reach it."""
        return Seen(h, h - self.h, log_p, self.staying if leaving is None else self.staying * (1 - leaving))


#: criterion -> score [n] of tokens, from what they are (now, at the exit before). Tokens whose score is below the
#: threshold leave; nan, at an exit that has none before it, is below nothing. The first criterion is 004's; the looped
#: nanochat log (003) names the others.
CRITERIA: dict[str, Callable[[Seen, Seen], Tensor]] = {
    # H(p) in nats
    "entropy": lambda now, before: -(now.log_p.exp() * now.log_p).sum(-1),
    # KL(p || p') in nats
    "kl": lambda now, before: (now.log_p.exp() * (now.log_p - before.log_p)).sum(-1),
    # |h - h'|
    "l2": lambda now, before: now.move.norm(dim=-1),
    # |(h - h') - (h' - h'')|
    "acceleration": lambda now, before: (now.move - before.move).norm(dim=-1),
}
#: Ouro's: the chance that the model's own exit gate lets a token reach the next loop, prod over s <= t of
#: (1 - lambda_s). Ouro leaves where the chance to have left, which is one minus this, reaches q: the threshold is 1 - q
GATE = "gate"
#: Geiping's, of generation ahead of itself: |h - h'| / |h|
CHANGE = "change"
SCORES = CRITERIA | {
    GATE: lambda now, _: now.staying[:, 0],
    CHANGE: lambda now, _: now.move.norm(dim=-1) / now.h.norm(dim=-1),
}
#: those that need the coda and the head at every exit
PREDICTING = ("entropy", "kl")


# ---- measured on all tokens, which are computed to the end -----------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Exits:
    """What each exit says of each token."""

    depth: np.ndarray  # [E], the share of the effective layers that are used up to there
    loss: np.ndarray  # [E, n], in nats
    divergence: np.ndarray  # [E, n], Jensen-Shannon divergence from the last exit's prediction, 0 to 1
    scores: dict[str, np.ndarray]  # criterion -> [E, n], the model's own gate among them; below a threshold it leaves


@torch.no_grad()
def measure_exits(model: LoopedLM, tokens: Tensor, targets: Tensor, every_layer: bool = False) -> Exits:
    """The exits of a model in eval mode on tokens [B, S] with their targets [B, S]: the ends of its loops, read through
    the coda and the head, or with ``every_layer`` all effective layers, read through the final norm and the head alone.

    Every token is computed to the end, so that this saves no time. The predictions [B S, V] of a batch must fit into
    memory three times."""
    found = list(_outputs(model, tokens, every_layer))
    depth, targets = np.array([share for share, _, _ in found]), targets.flatten()
    last = _log_probabilities(model, found[-1][2])
    gated = model.exit_gate is not None and not every_layer
    criteria = CRITERIA | ({GATE: SCORES[GATE]} if gated else {})
    columns: dict[str, list[Tensor]] = {name: [] for name in ("loss", "divergence", *criteria)}
    seen = Seen.nothing(len(targets), model.cfg.width, model.cfg.vocab_size, last.device)
    for _, h, x in found:
        h = h.flatten(0, 1).float()
        log_p = last if x is found[-1][2] else _log_probabilities(model, x)
        now = seen.then(h, log_p, model.leaving(h) if gated else None)
        columns["loss"].append(-now.log_p.gather(1, targets[:, None])[:, 0])
        columns["divergence"].append(jensen_shannon(now.log_p, last))
        for name, score in criteria.items():
            columns[name].append(score(now, seen))
        seen = now
    stacked = {name: torch.stack(values).cpu().numpy() for name, values in columns.items()}
    return Exits(depth, stacked.pop("loss"), stacked.pop("divergence"), stacked)


EXIT_TOKENS = 1 << 11  # tokens that are measured at once


def exits_of_rows(model: LoopedLM, x: Tensor, every_layer: bool = False) -> Exits:
    """``measure_exits`` on rows x [B, S + 1], some at a time."""
    parts = [
        measure_exits(model, part[:, :-1], part[:, 1:], every_layer)
        for part in x.split(max(1, EXIT_TOKENS // (x.shape[1] - 1)))
    ]
    return Exits(
        parts[0].depth,
        np.concatenate([part.loss for part in parts], 1),
        np.concatenate([part.divergence for part in parts], 1),
        {name: np.concatenate([part.scores[name] for part in parts], 1) for name in parts[0].scores},
    )


def jensen_shannon(log_p: Tensor, log_q: Tensor) -> Tensor:
    """JSD(p || q) / log 2 of rows of log probabilities [n, V]: [n], in [0, 1] (004, Eq. 2)."""
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    divergence = (log_p.exp() * (log_p - log_m) + log_q.exp() * (log_q - log_m)).sum(-1) / 2
    return (divergence / math.log(2)).clamp(0, 1)


def convergence(exits: Exits, context: int) -> dict[str, np.ndarray]:
    """A number for each exit (004, Fig. JSD): ``layer``, from 1 on; ``divergence``, the mean divergence from the last
    exit; ``spread``, its standard deviation over the rows of ``context`` tokens; and ``converged``, the share of tokens
    whose divergence lies below 0.5."""
    by_row = exits.divergence.reshape(len(exits.depth), -1, context).mean(-1)
    return {
        "layer": np.arange(1, len(exits.depth) + 1),
        "divergence": by_row.mean(1),
        "spread": by_row.std(1),
        "converged": (exits.divergence < 0.5).mean(1),
    }


def leave(scores: np.ndarray, threshold: float) -> np.ndarray:
    """The exit [n] at which each token leaves: the first whose score, of ``scores`` [E, n], lies below the threshold,
    else the last."""
    below = scores < threshold
    below[-1] = True
    return below.argmax(0)


def left(exits: Exits, scores: np.ndarray, threshold: float) -> tuple[np.ndarray, float, float]:
    """The exit at which each token leaves, the mean share of the depth that this saves, and the mean loss in nats."""
    at = leave(scores, threshold)
    return at, float((1 - exits.depth[at]).mean()), float(exits.loss[at, np.arange(len(at))].mean())


def at_thresholds(exits: Exits, thresholds: np.ndarray) -> dict[str, list[Any]]:
    """What becomes of tokens that leave where their entropy is below each of ``thresholds`` [K]: ``saved``, the mean
    share of the depth [K]; ``perplexity`` [K]; ``computed``, the share of tokens that each exit still sees [E][K]."""
    found = [left(exits, exits.scores["entropy"], threshold) for threshold in thresholds]
    return {
        "saved": [saved for _, saved, _ in found],
        "perplexity": [float(np.exp(loss)) for _, _, loss in found],
        "computed": [[float((at >= i).mean()) for at, _, _ in found] for i in range(len(exits.depth))],
    }


def first_common(exits: Exits) -> int:
    """The first exit, from 0, at which every criterion has a score. The entropy has one at the first exit, KL and
    distance compare it with the one before, acceleration with the two before."""
    return max(int(np.isfinite(scores).any(1).argmax()) for scores in exits.scores.values())


def trade_off(exits: Exits, criterion: str, saved: list[float], first: int = 0) -> list[float]:
    """The perplexity where a criterion saves each share of the depth in ``saved``, 0 to 1 (004, Table of perplexities);
    nan where no threshold saves so much. Between two thresholds the mean loss is interpolated. No token leaves before
    the exit ``first``."""
    scores = exits.scores[criterion].copy()
    scores[:first] = math.nan
    finite = scores[np.isfinite(scores)]
    quantiles = np.unique(np.quantile(finite, np.linspace(0, 1, 201))) if len(finite) else finite
    # below infinity everybody leaves at the first exit that has a score, below minus infinity nobody before the last
    share, loss = np.array(sorted(left(exits, scores, below)[1:] for below in (*quantiles, math.inf, -math.inf))).T
    return [float(np.exp(np.interp(x, share, loss))) if x <= share[-1] else math.nan for x in saved]


def threshold_saving(exits: Exits, criterion: str, saved: float) -> float:
    """The threshold of a criterion at which these tokens save the share ``saved`` of the depth, or the next that can be
    told from it; 0, where nobody leaves, at no share, and infinity where so much cannot be saved."""
    if saved == 0:
        return 0.0
    scores = exits.scores[criterion]
    # a divergence of nothing may be rounded to below 0, which is no threshold
    thresholds = np.unique(np.quantile(scores[np.isfinite(scores)], np.linspace(0, 1, 201)).clip(1e-12))
    return next((float(one) for one in thresholds if left(exits, scores, one)[1] >= saved), math.inf)


def _outputs(model: LoopedLM, tokens: Tensor, every_layer: bool) -> Iterator[tuple[float, Tensor, Tensor]]:
    """Of each exit, (its depth, the state [B, S, d], the head's input [B, S, d])."""
    cfg = model.cfg
    layers = cfg.prelude + cfg.mean_loops * cfg.recur + cfg.coda
    if not every_layer:
        for T, state, x in model.hidden_at(tokens, range(1, cfg.mean_loops + 1)):
            yield (cfg.prelude + T * cfg.recur + cfg.coda) / layers, state, x
        return
    states: list[Tensor] = []
    with listening(model.blocks, lambda _, __, state: states.append(state)):
        end, _ = model.hidden(tokens)
    for used, state in enumerate(states[:-1], start=1):
        yield used / layers, state, model.final_norm(state, model.compute_dtype)
    yield 1.0, states[-1], end


def _log_probabilities(model: LoopedLM, x: Tensor) -> Tensor:
    """[B S, V] in fp32."""
    return model.logits(x.flatten(0, 1)).log_softmax(-1)
