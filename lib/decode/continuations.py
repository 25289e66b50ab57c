"""How likely given continuations of a prefix are: all of them in one pass, over a prefix that is computed once.

A question's tokens lie in one row: its prefix, then its choices, one after the other. A choice's tokens have the
positions that follow the prefix, and see it and themselves, not the other choices, so that each gets what a row of its
own would give it. In a looped model this holds loop by loop.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lib.base.errors import InputError
from lib.kernels import door
from lib.model.layers import Attention, linear, sdpa, sees
from lib.model.looped import LoopedLM

ROW_TOKENS = 1 << 13  # tokens of a batch, padding included
LOGITS = 1 << 24  # so many exist at once


class Question(NamedTuple):
    """A prefix and what may follow it, as tokens; none of them empty."""

    prefix: Sequence[int]
    choices: list[Sequence[int]]


class Scored(NamedTuple):
    """What a question's choices score, an entry a choice."""

    nll: np.ndarray  # negative log-likelihood after the prefix, in nats
    tokens: np.ndarray  # how many tokens that is the sum of
    greedy: np.ndarray  # whether greedy decoding would give the choice
    cut: int  # tokens of the question that were cut from its left, to fit into the model's context


class _Row(NamedTuple):
    """A question, or one of its choices, as one row of a batch."""

    question: int
    first: int  # number of the first of these choices among the question's
    prefix: list[int]
    choices: list[list[int]]
    cut: int

    @property
    def length(self) -> int:
        """Input tokens. A choice's last token is none of them: nobody asks what it predicts."""
        return len(self.prefix) + sum(len(choice) - 1 for choice in self.choices)


@torch.no_grad()
def score(
    model: LoopedLM, questions: Sequence[Question], depths: Sequence[int] = (), state_seed: int = 0
) -> dict[int, list[Scored]]:
    """T -> what each question's choices score after T loops, for each of ``depths``, mean_loops when there is none.

    What is longer than the model's context loses its left end: all choices of a question the same prefix tokens, or,
    where a choice alone fills the context, each its own. ``state_seed`` draws a random initial state. Raises
    InputError for depths that the model cannot make, and for tokens that it does not have."""
    depths = sorted(set(depths)) or [model.cfg.mean_loops]
    _check(questions, model.cfg.vocab_size)
    rows = sorted(
        (row for i, question in enumerate(questions) for row in _rows(i, question, model.cfg.context)),
        key=lambda row: row.length,
    )
    sizes = [len(question.choices) for question in questions]
    found = {
        T: [Scored(np.zeros(k), np.zeros(k, dtype=int), np.zeros(k, dtype=bool), 0) for k in sizes] for T in depths
    }
    with model.evaluating():
        for batch in _batches(rows):
            layout = _Layout(batch, model)
            at = layout.positions.flatten()
            for T, _, x in model.hidden_at(layout.tokens.view(1, -1), depths, state_seed, layout.attend, at):
                for row, (nll, greedy) in zip(batch, _read(model, x[0], layout), strict=True):
                    scored = found[T][row.question]
                    here = slice(row.first, row.first + len(row.choices))
                    scored.nll[here], scored.greedy[here] = nll, greedy
                    scored.tokens[here] = [*map(len, row.choices)]
                    found[T][row.question] = scored._replace(cut=scored.cut + row.cut)
    return found


def _check(questions: Sequence[Question], V: int) -> None:
    for i, question in enumerate(questions):
        if not len(question.prefix) or not all(map(len, question.choices)) or not len(question.choices):
            raise InputError(f"questions: number {i} has no prefix, or a choice without tokens, begin it with BOS")
        largest = max(max(question.prefix), *map(max, question.choices))
        if largest >= V:
            raise InputError(f"questions: token {largest} of number {i} is not among the model's {V}, encode it anew")


def _rows(index: int, question: Question, context: int) -> Iterator[_Row]:
    """A question's row; a row for each choice if one of them leaves no room for the prefix."""
    prefix, choices = list(question.prefix), [list(choice) for choice in question.choices]
    room = context + 1 - max(map(len, choices))
    if room >= 1:
        yield _Row(index, 0, prefix[-room:], choices, max(0, len(prefix) - room))
        return
    for i, choice in enumerate(choices):
        tokens = (prefix + choice)[-context - 1 :]
        scored = min(len(choice), len(tokens) - 1)
        yield _Row(index, i, tokens[:-scored], [tokens[-scored:]], len(prefix) + len(choice) - len(tokens))


def _batches(rows: list[_Row]) -> Iterator[list[_Row]]:
    """Rows of about the same length, as many as fit."""
    batch: list[_Row] = []
    for row in rows:
        if batch and (len(batch) + 1) * row.length > ROW_TOKENS:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


class _Layout:
    """A batch [B, S] of rows: its ``tokens``, their ``positions``, and their ``own`` branch by where that begins.
    The tokens of all choices are the ``targets`` [m]; ``source`` [m] says where in [B S] each is predicted, ``lengths``
    how many belong to each choice, ``choices`` how many of these each row has."""

    def __init__(self, rows: list[_Row], model: LoopedLM):
        B, S = len(rows), max(row.length for row in rows)
        tokens, positions = np.zeros((B, S), dtype=int), np.zeros((B, S), dtype=int)
        own = np.tile(np.arange(S), (B, 1))  # where a token's branch begins: 0 the prefix's; each padding is its own
        source, targets, self.lengths = [], [], []
        for b, row in enumerate(rows):
            P = at = len(row.prefix)
            tokens[b, :P], positions[b, :P], own[b, :P] = row.prefix, np.arange(P), 0
            for choice in row.choices:
                inner = slice(at, at + len(choice) - 1)
                tokens[b, inner], own[b, inner] = choice[:-1], at
                positions[b, inner] = P + np.arange(len(choice) - 1)
                source += [b * S + P - 1, *range(b * S + inner.start, b * S + inner.stop)]
                targets += choice
                self.lengths.append(len(choice))
                at = inner.stop
        self.shape = B, S
        self.choices = [len(row.choices) for row in rows]
        self.tokens, self.positions, self.own, self.prefix, self.source, self.targets = (
            torch.as_tensor(x, device=model.angles.device)
            for x in (tokens, positions, own, [len(row.prefix) for row in rows], source, targets)
        )
        self.angles = model.angles[self.positions.flatten()]
        self.masks: dict[int | None, Tensor] = {}  # by the window of a layer

    def seen(self, window: int | None) -> Tensor:
        """Which tokens each token sees [B, S, S]: of the prefix and of its own branch."""
        if window not in self.masks:
            reachable = (self.own[:, :, None] == self.own[:, None]) | (self.own[:, None] == 0)
            self.masks[window] = reachable & sees(self.positions, self.positions, window)
        return self.masks[window]

    def attend(self, layer: int, attn: Attention, x: Tensor, values: Tensor | None) -> Tensor:
        """Attention over the row [1, B S, d]: each token over what it may see."""
        return linear(self._attended(attn, x, values).reshape(*x.shape[:2], -1), attn.out.weight)

    @door.served_by(door.attention_to_choices)
    def _attended(self, attn: Attention, x: Tensor, values: Tensor | None) -> Tensor:
        """What each head has found [B, S, H, D]."""
        projected = attn.project(x, attn.fused(), self.angles, values)
        q, k, v = (y.view(*self.shape, *y.shape[2:]).transpose(1, 2) for y in projected)
        return sdpa(q, k, v, self.seen(attn.window)[:, None]).transpose(1, 2)


def _read(model: LoopedLM, x: Tensor, layout: _Layout) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each row, its choices' negative log-likelihoods and which of them are greedy, from the head's input
    [B S, d]."""
    nll, hit = [], []
    rows = max(1, LOGITS // model.cfg.vocab_size)
    for at, target in zip(layout.source.split(rows), layout.targets.split(rows), strict=True):
        logits = model.logits(x[at])
        nll.append(F.cross_entropy(logits, target, reduction="none"))
        hit.append(logits.argmax(-1) == target)
    ends, cuts = (np.cumsum(counts)[:-1] for counts in (layout.lengths, layout.choices))
    sums = [part.sum() for part in np.split(torch.cat(nll).double().cpu().numpy(), ends)]
    greedy = [part.all() for part in np.split(torch.cat(hit).cpu().numpy(), ends)]
    return list(zip(np.split(np.array(sums), cuts), np.split(np.array(greedy), cuts), strict=True))
