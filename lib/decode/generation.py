"""Cached decoding in which a token that has left early is not computed any further (``lib/decode/inflight.py``).

With a threshold of zero, and all loops kept, every token is what full recomputation gives; in bf16 up to its rounding.
Fastest in fp32 on one thread: products of so few rows gain nothing from more.
"""

import dataclasses
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from lib.base import seeds
from lib.base.errors import Checked, InputError
from lib.decode.inflight import Decoder, Exit
from lib.model.looped import LoopedLM

SCORED = 1 << 14  # tokens that ``score`` has in the loop at once


class Sampling(Checked):
    """How a token is drawn: at temperature 0 it is the likeliest; else it is drawn from softmax(z / temperature), over
    the top_k likeliest (0: all) and of those over the fewest that hold top_p of the probability. Row i of a call draws
    from a stream of its own, of ``seed``."""

    temperature: float = Field(0.0, ge=0)
    top_k: int = Field(0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    seed: int = 0

    def draw(self, logits: Tensor, u: list[float]) -> list[int]:
        """A token for each row of logits [m, V]: where ``u`` [m], uniform in [0, 1), falls in its cumulative
        distribution."""
        if self.temperature == 0:
            return logits.argmax(-1).tolist()
        z = logits.double()
        p = ((z - z.amax(-1, keepdim=True)) / self.temperature).softmax(-1)
        if self.top_k or self.top_p < 1:
            p = self._likeliest(p)
        reached = p.cumsum(-1)
        all_of_it, share = reached[:, -1:].contiguous(), torch.tensor(u, dtype=p.dtype, device=p.device)[:, None]
        below_all = all_of_it.nextafter(torch.zeros_like(all_of_it))  # the product may round up to all of it
        wanted = (all_of_it * share).minimum(below_all)
        return torch.searchsorted(reached, wanted, right=True)[:, 0].tolist()

    def _likeliest(self, p: Tensor) -> Tensor:
        """p [m, V] without the tokens that are not drawn from."""
        p, token = p.sort(descending=True, stable=True)
        p[:, self.top_k or len(p[0]) :] = 0
        p = p / p.sum(-1, keepdim=True)
        # a token is left out where those before it hold top_p already
        p = torch.where(p.cumsum(-1) - p < self.top_p, p, 0)
        return torch.zeros_like(p).scatter(1, token, p)


@dataclasses.dataclass
class Answer:
    """What follows a prompt."""

    tokens: list[int]
    loops: list[int]  # that the prediction of each of them took
    prompt_loops: list[int]  # that each token of the prompt took; its last one predicts the answer's first
    stopped: bool = False  # whether a stop token ended it, which is not among tokens


def generate(
    model: LoopedLM,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
    leave: Exit | None = None,
    sampling: Sampling | None = None,
    stop: Iterable[int] = (),
    batch: int | None = None,
) -> list[Answer]:
    """Continues each prompt, of any length, by up to ``new_tokens`` tokens, or up to one of ``stop``; never beyond the
    model's context. ``leave``: when tokens leave the loop, none early when None. ``sampling``: how tokens are drawn,
    the likeliest when None. ``batch``: how many prompts are decoded at once, all when None; the next prompt takes the
    place of one that is answered.

    Raises InputError, before anything is computed, for what cannot be decoded."""
    decoder = _decoder(model, prompts, new_tokens, leave, batch)
    sampling, stop = sampling or Sampling(), {*stop}
    answers = [Answer([], [], []) for _ in prompts]
    random = [seeds.stream("decode", sampling.seed, i) for i in range(len(prompts))]
    waiting = deque(range(len(prompts)) if new_tokens else ())
    asked: dict[int, int] = {}  # row of the decoder -> the prompt that it answers

    def begin(row: int) -> None:
        asked[row] = waiting.popleft()
        decoder.reached[row] = 0  # what is in the cache is overwritten before anybody looks there
        decoder.enter(row, prompts[asked[row]])

    for row in range(min(decoder.rows, len(waiting))):
        begin(row)
    predictions: dict[int, Tensor] = {}  # row -> logits of its next token, until all of its tokens have left
    for left in decoder.departures():
        for i, (row, position) in enumerate(zip(left.rows.tolist(), left.positions.tolist(), strict=True)):
            if position == decoder.reached[row] - 1:
                predictions[row] = left.logits[i]
        ready = [row for row in predictions if not decoder.count[row]]
        if not ready:
            continue
        logits = torch.stack([predictions.pop(row) for row in ready])
        drawn = sampling.draw(logits, [random[asked[row]].random() for row in ready])
        for row, token in zip(ready, drawn, strict=True):
            answer, taken = answers[asked[row]], decoder.taken[row, : decoder.reached[row]].tolist()
            answer.prompt_loops = answer.prompt_loops or taken
            answer.stopped = token in stop
            if not answer.stopped:
                answer.tokens.append(token)
                answer.loops.append(taken[-1])
            if not answer.stopped and len(answer.tokens) < new_tokens:
                decoder.enter(row, [token])
            elif waiting:
                begin(row)
    return answers


class Scores(NamedTuple):
    """Of given texts [B, S]."""

    loss: np.ndarray  # cross-entropies of their targets in nats
    loops: np.ndarray  # that each token took


def score(model: LoopedLM, tokens: Tensor, targets: Tensor, leave: Exit | None = None) -> Scores:
    """How well tokens [B, S] predict their targets when they leave early; one pass, as over a prompt. Tokens see what
    those who left have left behind. (004 lets them see what full loops would compute, and counts the saving alone.)"""
    rows = max(1, SCORED // tokens.shape[1])
    parts = [
        _score(model, x, y, leave) for x, y in zip(tokens.cpu().split(rows), targets.cpu().split(rows), strict=True)
    ]
    return Scores(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _score(model: LoopedLM, tokens: Tensor, targets: Tensor, leave: Exit | None) -> Scores:
    decoder = _decoder(model, tokens.tolist(), 0, leave, None)
    loss = np.zeros(tokens.shape)
    for row, given in enumerate(tokens.tolist()):
        decoder.enter(row, given)
    for left in decoder.departures():
        wanted = targets[left.rows, left.positions].to(left.logits.device)
        loss[left.rows, left.positions] = F.cross_entropy(left.logits, wanted, reduction="none").double().cpu().numpy()
    return Scores(loss, decoder.taken)


def _decoder(
    model: LoopedLM, prompts: Sequence[Sequence[int]], new_tokens: int, leave: Exit | None, batch: int | None
) -> Decoder:
    """A decoder with room for the prompts and their answers. Raises InputError for what cannot be decoded."""
    if not len(prompts) or not all(len(prompt) for prompt in prompts):
        raise InputError("prompts: one is empty, give each at least one token, such as that of a document's beginning")
    V, context = model.cfg.vocab_size, model.cfg.context
    least, most = min(map(min, prompts)), max(map(max, prompts))
    if least < 0 or most >= V:
        raise InputError(
            f"prompts: token {least if least < 0 else most} is not among the model's {V}, encode them anew"
        )
    longest = max(map(len, prompts))
    length = longest + max(new_tokens - 1, 0)  # the last token of an answer is not fed back
    if length > context:
        raise InputError(
            f"new_tokens: {longest} tokens of a prompt and {new_tokens} new ones are more than the model's context of "
            f"{context} allows, ask for at most {max(context - longest + 1, 0)} or shorten the prompt"
        )
    return Decoder(model, min(batch or len(prompts), len(prompts)), length, leave or Exit())
