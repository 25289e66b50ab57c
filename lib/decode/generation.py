"""Text from a model: prompts are continued, and given text is scored, by a decoder with a cache."""

import dataclasses
import functools
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from lib.base import seeds
from lib.base.errors import Checked
from lib.decode.ahead import Ahead, Wave
from lib.decode.decoder import Decoder, Exit, room
from lib.model.looped import LoopedLM

__all__ = ["Ahead", "Answer", "Exit", "Sampling", "Scores", "generate", "score"]

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
    passes: int = dataclasses.field(default=0, compare=False)  # over the loop while it was written, by all rows at once


def generate(
    model: LoopedLM,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
    leave: Exit | None = None,
    sampling: Sampling | None = None,
    stop: Iterable[int] = (),
    batch: int | None = None,
    ahead: Ahead | None = None,
) -> list[Answer]:
    """Continues each prompt, of any length, by up to ``new_tokens`` tokens, or up to one of ``stop``; never beyond the
    model's context. ``leave``: when tokens leave the loop, none early when None. ``sampling``: how tokens are drawn,
    the likeliest when None. ``batch``: how many prompts are decoded at once, all when None; the next prompt takes the
    place of one that is answered. ``ahead``: how tokens are begun before the one before them is known; each waits for
    it when None.

    Raises InputError, before anything is computed, for what cannot be decoded."""
    sampling, stop, waiting = sampling or Sampling(), {*stop}, deque(range(len(prompts)) if new_tokens else ())
    answers = [Answer([], [], []) for _ in prompts]
    streams = [seeds.stream("decode", sampling.seed, i) for i in range(len(prompts))]
    chances: list[list[float]] = [[] for _ in prompts]  # a number in [0, 1) for each token of an answer
    asked: dict[int, int] = {}  # row of the decoder -> the prompt that it answers

    def draw(rows: Iterable[int], positions: Iterable[int], logits: Tensor) -> list[int]:
        """The tokens that follow those at the rows' positions. A guess and the answer have the same chance."""
        u = []
        for row, position in zip(rows, positions, strict=True):
            i = asked[row]
            n = position + 1 - len(prompts[i])
            chances[i] += [streams[i].random() for _ in range(n + 1 - len(chances[i]))]
            u.append(chances[i][n])
        return sampling.draw(logits, u)

    decoder = room(
        model, prompts, new_tokens, leave, batch, functools.partial(Wave, ahead=ahead, draw=draw) if ahead else Decoder
    )

    def begin(row: int) -> None:
        asked[row] = waiting.popleft()
        decoder.enter(row, prompts[asked[row]])

    for row in range(min(decoder.rows, len(waiting))):
        begin(row)
    for rows, positions, logits in decoder.predictions():
        for row, position, token in zip(rows, positions, draw(rows, positions, logits), strict=True):
            answer, taken = answers[asked[row]], decoder.taken[row, : position + 1].tolist()
            if not answer.prompt_loops:
                answer.prompt_loops, answer.passes = taken, -decoder.passes
            answer.stopped = token in stop
            if not answer.stopped:
                answer.tokens.append(token)
                answer.loops.append(taken[-1])
            if not answer.stopped and len(answer.tokens) < new_tokens:
                decoder.enter(row, [token])
                continue
            answer.passes += decoder.passes
            decoder.clear(row)
            if waiting:
                begin(row)
    return answers


class Scores(NamedTuple):
    """Of given texts [B, S]."""

    loss: np.ndarray  # cross-entropies of their targets in nats
    loops: np.ndarray  # that each token took


def score(
    model: LoopedLM, tokens: Tensor, targets: Tensor, leave: Exit | None = None, one_by_one: bool = False
) -> Scores:
    """How well tokens [B, S] predict their targets when they leave early; one pass, as over a prompt. Tokens see what
    those who left have left behind. (004 lets them see what full loops would compute, and counts the saving alone.)
    ``one_by_one``: as in an answer instead, where a token enters when all before it have left."""
    loss, loops = np.zeros(tokens.shape), np.zeros(tokens.shape, dtype=int)
    rows = max(1, SCORED // tokens.shape[1])
    for first in range(0, len(tokens), rows):
        some = tokens[first : first + rows].tolist()
        decoder = room(model, some, 0, leave)
        for row, given in enumerate(some):
            decoder.enter(row, given[:1] if one_by_one else given)
        for row_of, position, logits in decoder.departures():
            at = first + row_of, position
            wanted = targets[at].to(logits.device)
            loss[at] = F.cross_entropy(logits, wanted, reduction="none").double().cpu().numpy()
            if one_by_one:
                for row, after in zip(row_of.tolist(), (position + 1).tolist(), strict=True):
                    if after < len(some[row]):
                        decoder.enter(row, [some[row][after]])
        loops[first : first + rows] = decoder.taken
    return Scores(loss, loops)
