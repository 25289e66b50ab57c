"""Cached decoding in which a token that has left early is not computed any further.

With a threshold of zero every token is what full recomputation gives; in bf16 up to its rounding. Fastest in fp32 on
one thread: products of so few rows gain nothing from more, and what a token takes there is computed in C.

All tokens that are inside are one flat batch [1, n], whatever their row, position and loop: the looped layers are the
same in every loop, so that a row whose token has left begins its next one while others are still inside, and the batch
stays full. The keys and values of a token are kept for each layer and each loop. A token that left after loop t has
none for the loops after it: later tokens find its entries of loop t there, which costs nothing. (To compute the missing
ones when they are asked for would cost what leaving has saved.)
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from lib.base.errors import InputError
from lib.decode.exits import CRITERIA, GATE, PREDICTING, SCORES, Seen
from lib.kernels import door
from lib.model.injection import Prepared, per_token
from lib.model.layers import Attention, linear, sdpa, sees
from lib.model.looped import LoopedLM

PIECE = 128  # tokens of a row that attend at once


@dataclasses.dataclass(frozen=True)
class Exit:
    """When a token leaves the loop: after the first loop in which its score by ``criterion`` (``exits.CRITERIA``, or
    ``exits.GATE`` of a model with an exit gate) is below ``threshold``, at the latest after ``loops`` loops
    (mean_loops when None).

    kept_loops: of how many loops the keys and values are kept, all when None. Loop t overwrites what loop
    t - kept_loops has left, so that later tokens find the last loops.

    A threshold, or kept_loops, makes an answer depend on where its prompt ends. The tokens of a prompt go through the
    loops together: they see each other's keys and values of the loop that they are in, and in a coda what it makes of
    each other's states at that moment. Tokens of the answer see what the prompt's tokens have left in the end.
    """

    threshold: float = 0.0
    criterion: str = "entropy"
    loops: int | None = None
    kept_loops: int | None = None

    def __post_init__(self) -> None:
        if not self.threshold >= 0:
            raise InputError(f"threshold: {self.threshold} is no score, use 0 (nobody leaves) or more")
        if self.criterion not in SCORES:
            raise InputError(f"criterion: {self.criterion!r} is not known, use one of {', '.join(SCORES)}")
        if self.kept_loops is not None and self.kept_loops < 1:
            raise InputError(f"kept_loops: {self.kept_loops} is too few, keep at least 1")


#: tokens that have just left: their rows and positions [m], and what they predict [m, V]
Left = tuple[np.ndarray, np.ndarray, Tensor]


@dataclasses.dataclass
class Tokens:
    """n tokens that are in the loop, and what they carry. Those of a row lie side by side, in the order of their
    positions. h, prepared and values are [1, n, ...], as the model wants them."""

    at: np.ndarray  # [3, n]: rows, positions, and the loops made so far
    h: Tensor
    prepared: Prepared
    values: dict[int, Tensor]
    seen: Seen | None
    e: Tensor | None = None  # what entered the loop last, where it is embedded again

    @property
    def rows(self) -> np.ndarray:
        return self.at[0]

    @property
    def positions(self) -> np.ndarray:
        return self.at[1]

    @property
    def loops(self) -> np.ndarray:
        return self.at[2]

    def __getitem__(self, which: np.ndarray) -> "Tokens":
        index = torch.as_tensor(which, device=self.h.device)
        return self._carrying(lambda x: x[index], self.at[:, which])

    def without(self, gone: np.ndarray) -> "Tokens":
        """Those who stay."""
        return self[np.delete(np.arange(len(self.rows)), gone)] if len(gone) else self

    def followed_by(self, new: "Tokens", gone: np.ndarray) -> "Tokens":
        """These tokens with ``new`` ones and without the ``gone``. If as many come as go, each of another row that has
        no token here, the new ones take the places of the gone, and nothing else is copied."""
        others = not {*new.rows.tolist()} & {*np.delete(self.rows, gone).tolist()}
        if others and len(gone) == len(new.rows) == len({*new.rows.tolist()}):
            index, at = torch.as_tensor(gone, device=self.h.device), self.at.copy()
            at[:, gone] = new.at
            return self._carrying(lambda x, y: x.index_copy(0, index, y), at, new)
        stay = self.without(gone)
        both = stay._carrying(lambda x, y: torch.cat((x, y)), np.concatenate((stay.at, new.at), 1), new)
        return both if others else both[np.lexsort((both.positions, both.rows))]

    def _carrying(self, f: Callable[..., Tensor], at: np.ndarray, *others: "Tokens") -> "Tokens":
        """Tokens at ``at``. What they carry is ``f`` of what these and the others carry, each [n, ...]."""
        every = (self, *others)

        def inner(*tensors: Tensor) -> Tensor:
            return f(*(x[0] for x in tensors))[None]

        seen = zip(*(tokens.seen for tokens in every if tokens.seen), strict=True)
        return Tokens(
            at,
            inner(*(tokens.h for tokens in every)),
            per_token(inner, *(tokens.prepared for tokens in every)),
            {layer: inner(*(tokens.values[layer] for tokens in every)) for layer in self.values},
            self.seen and Seen(*(f(*part) for part in seen)),
            None if self.e is None else inner(*(cast(Tensor, tokens.e) for tokens in every)),
        )


class Decoder:
    """Rows of up to ``length`` positions with their cache. ``enter`` adds tokens, ``departures`` makes loops until
    all have left; more may be entered on the way."""

    def __init__(self, model: LoopedLM, rows: int, length: int, leave: Exit):
        cfg, weight = model.cfg, model.embed.weight
        self.model, self.leave, self.device, self.rows = model, leave, weight.device, rows
        self.T = int(model.loops_of(1, leave.loops)[0])
        self.tests = leave.threshold > 0 and self.T > 1
        if leave.criterion == GATE and model.exit_gate is None:
            raise InputError(f"criterion: this model has no exit gate, use one of {', '.join(CRITERIA)}")
        self.taken = np.zeros((rows, length), dtype=int)  # loops of each token that has left
        self.passes, self.embeds_again = 0, False  # over the looped layers; whether a token may become another inside
        self.entering: list[tuple[int, list[int]]] = []
        self.flight: Tokens | None = None
        self.gone = np.zeros(0, dtype=int)  # which of them have left since the last loop
        self.count = np.zeros(rows, dtype=int)  # tokens of each row that are on their way
        self.reached = np.zeros(rows, dtype=int)  # positions of each row that are taken
        e = weight.new_zeros(1, length, cfg.width, dtype=model.residual_dtype)
        self.noise = None if cfg.state_init == "prelude" else model.initial_state(e, None)
        # keys and values: [kept loops, B, P, 2, KV, D] of each unique layer, the looped ones side by side
        self.kept = min(leave.kept_loops or self.T, self.T)
        shape = rows, length, 2, cfg.key_heads, cfg.head_dim
        self.looped = weight.new_zeros(cfg.recur, self.kept, *shape, dtype=model.compute_dtype)
        once = weight.new_zeros(cfg.prelude + cfg.coda, 1, *shape, dtype=model.compute_dtype)
        self.cache = [*once[: cfg.prelude], *self.looped, *once[cfg.prelude :]]
        with torch.no_grad():
            self.fused = [block.attn.fused().to(model.compute_dtype) for block in model.blocks]
        self.served: dict[int, Any] = {}  # what ``door`` has made of a layer for its kernels

    def enter(self, row: int, tokens: Sequence[int]) -> None:
        """The next tokens of a row, whose tokens before have all left."""
        self.entering.append((row, list(tokens)))

    def clear(self, row: int) -> None:
        """Forgets a row's tokens, which have all left: what is in the cache is overwritten before anybody looks."""
        self.reached[row] = 0

    def predictions(self) -> Iterator[tuple[list[int], list[int], Tensor]]:
        """Rows whose tokens have all left, with the position of their last one and what it predicts [m, V]."""
        last: dict[int, Tensor] = {}  # row -> what its last token predicts, until all have left
        for rows, positions, logits in self.departures():
            for row, position, predicted in zip(rows.tolist(), positions.tolist(), logits, strict=True):
                if position == self.reached[row] - 1:
                    last[row] = predicted
            ready = [row for row in last if not self.count[row]]
            if ready:
                yield ready, (self.reached[ready] - 1).tolist(), torch.stack([last.pop(row) for row in ready])

    def departures(self) -> Iterator[Left]:
        """Makes loops until no token is inside, and yields those that leave after each."""
        while self.entering or self.flight is not None:
            with torch.inference_mode():
                left = self._tick()
            if left is not None:
                yield left

    def _tick(self) -> Left | None:
        """Lets in the tokens that wait, makes one loop with all, lets out those that are done."""
        now = self._inside()
        self._loop(now)
        below, logits = self._below(now) if self.tests else (False, None)
        which = np.flatnonzero((now.loops == self.T) | below)
        return self._let_out(now, which, logits) if len(which) else None

    def _inside(self) -> Tokens:
        """The tokens on their way, with those that wait and without those that have left."""
        gone, self.gone = self.gone, self.gone[:0]
        if self.flight is None:
            self.flight = self._begin(self.entering)
        elif self.entering:
            self.flight = self.flight.followed_by(self._begin(self.entering), gone)
        else:
            self.flight = self.flight.without(gone)
        self.entering = []
        return self.flight

    def _loop(self, now: Tokens) -> None:
        """One loop with all."""
        if self.model.cfg.recur:
            self._face(now, now.loops % self.kept)
            now.h, _ = self.model.step(
                now.h, now.prepared, now.values, torch.as_tensor(now.loops[None], device=self.device), self._attend
            )
        now.at[2] += 1
        self.passes += 1

    def _begin(self, entering: list[tuple[int, list[int]]]) -> Tokens:
        """Embedding, prelude and initial state of new tokens."""
        model = self.model
        rows = np.concatenate([np.full(len(tokens), row) for row, tokens in entering])
        positions = np.concatenate([self.reached[row] + np.arange(len(tokens)) for row, tokens in entering])
        for row, tokens in entering:
            self.reached[row] += len(tokens)
            self.count[row] += len(tokens)
        # what they carry is computed once they are faced
        new = Tokens(np.stack((rows, positions, np.zeros_like(rows))), torch.empty(0, device=self.device), (), {}, None)
        e = self._embed(new, [token for _, tokens in entering for token in tokens])
        new.h, new.prepared = model.injection.spread(self._start(new, e)), model.injection.prepare(e)
        new.e = e if self.embeds_again else None
        if self.tests and self.leave.criterion != "entropy":
            V = model.cfg.vocab_size if self.leave.criterion == "kl" else 0
            new.seen = Seen.nothing(len(rows), model.cfg.width, V, self.device)
        return new

    def _embed(self, tokens: Tokens, given: Sequence[int]) -> Tensor:
        """The prelude's output e [1, n, d] of tokens that are the ``given`` ones."""
        self._face(tokens)
        e, tokens.values, _ = self.model.before(torch.tensor([given], device=self.device), self._attend)
        return e

    def _start(self, tokens: Tokens, e: Tensor) -> Tensor:
        """h_0 [1, n, d]."""
        return e if self.noise is None else self.noise[:, torch.as_tensor(tokens.positions)]

    def _below(self, now: Tokens) -> tuple[np.ndarray, Tensor | None]:
        """Which tokens [n] have a score below the threshold; what all predict [n, V], where that was asked."""
        h = self.model.injection.pool(now.h)[0].float()
        logits = self._predict(now) if self.leave.criterion in PREDICTING else None
        log_p = h[:, :0] if logits is None else logits.log_softmax(-1)
        leaving = self.model.leaving(h) if self.leave.criterion == GATE else None
        before = now.seen or Seen.nothing(len(h), h.shape[1], 0, self.device)
        seen = before.then(h, log_p, leaving)
        below = SCORES[self.leave.criterion](seen, now.seen or seen) < self.leave.threshold
        if now.seen is not None:
            now.seen = seen
        return below.cpu().numpy(), logits

    def _predict(self, tokens: Tokens) -> Tensor:
        """Logits [n, V] through coda and head."""
        if len(self.model.coda):
            self._face(tokens)
        state = self.model.injection.pool(tokens.h)
        return self.model.logits(self.model.after(state, tokens.values, self._attend)[0][0])

    def _let_out(self, now: Tokens, which: np.ndarray, logits: Tensor | None) -> Left:
        """Lets out ``which`` of the tokens, with what they predict; ``logits`` [n, V] are those of all, where known."""
        everybody = len(which) == len(now.rows)
        if logits is None and not len(self.model.coda):
            logits = self._predict(now if everybody else now[which])
        else:  # in the coda those who leave also see those before them who stay
            logits = self._predict(now) if logits is None else logits
            logits = logits if everybody else logits[torch.as_tensor(which, device=self.device)]
        rows, positions, loops = now.at[:, which]
        self.taken[rows, positions] = loops
        # those who left early leave their last entries in the loops that they did not make, where later tokens look
        who, t = np.nonzero(np.arange(self.T) >= loops[:, None])
        if len(who):
            owed = np.stack((t % self.kept, (loops[who] - 1) % self.kept, rows[who], positions[who]))
            slot, last, row, position = torch.as_tensor(owed, device=self.device)
            self.looped[:, slot, row, position] = self.looped[:, last, row, position]
        np.subtract.at(self.count, rows, 1)
        self._take_out(np.union1d(self.gone, which) if len(self.gone) else which)
        return rows, positions, logits

    def _take_out(self, gone: np.ndarray) -> None:
        """Has the flight go on without these."""
        everybody = self.flight is None or len(gone) == len(self.flight.rows)
        self.flight, self.gone = (None, gone[:0]) if everybody else (self.flight, gone)

    # ---- attention over the cache ------------------------------------------------------------------------------------

    def _face(self, tokens: Tokens, slots: np.ndarray | int = 0) -> None:
        """Makes these the tokens that attend, each with its slot [n] of the cache; layers that are used once have only
        the first."""
        self.facing = np.array(tokens.at, np.int64, order="C")
        self.facing[2] = slots
        self.plain: Any = None

    @door.served_by(door.attention_over_cache)
    def _attend(self, layer: int, attn: Attention, x: Tensor, values: Tensor | None) -> Tensor:
        """Attention of x [1, n, d], each token over its row's keys and values of its slot, its own included."""
        cache, self.plain = self.cache[layer], self.plain or plainly(self.facing, self.model.angles)
        (rows, positions, slots), angles, pieces = self.plain
        q, k, v = attn.project(x, self.fused[layer], angles, values)
        cache[slots, rows, positions] = torch.stack((k[0], v[0]), 1)
        q, parts = q.transpose(1, 2), []  # [1, H, n, D]
        for start, stop in pieces:
            (row, begin, slot), end = self.facing[:, start].tolist(), int(self.facing[1, stop - 1]) + 1
            first = 0 if attn.window is None else max(0, begin - attn.window + 1)
            keys, vals = cache[slot, row, first:end].permute(1, 2, 0, 3).unsqueeze(1)
            mask = None
            if stop - start > 1:
                mask = sees(positions[start:stop], torch.arange(first, end, device=self.device), attn.window)
            parts.append(sdpa(q[:, :, start:stop], keys, vals, mask))
        out = parts[0] if len(parts) == 1 else torch.cat(parts, 2)
        return linear(out.transpose(1, 2).flatten(2), attn.out.weight)


def plainly(at: np.ndarray, angles: Tensor) -> tuple[Tensor, Tensor, list[tuple[int, int]]]:
    """What tokens at rows, positions and slots [3, n] need to attend where ``door`` does not serve: these as a tensor,
    their angles, and where pieces begin and end. Tokens of one row and slot that lie side by side attend in one piece,
    of at most PIECE."""
    where, apart = torch.as_tensor(at, device=angles.device), (at[::2, 1:] != at[::2, :-1]).any(0)
    cuts = itertools.pairwise([0, *(np.flatnonzero(apart) + 1).tolist(), at.shape[1]])
    pieces = [(i, min(i + PIECE, stop)) for start, stop in cuts for i in range(start, stop, PIECE)]
    return where, angles[where[1]], pieces


def room(
    model: LoopedLM,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
    leave: Exit | None = None,
    batch: int | None = None,
    kind: Callable[..., Decoder] = Decoder,
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
    for name, given, smallest in (("new_tokens", new_tokens, 0), ("batch", 1 if batch is None else batch, 1)):
        if given < smallest:
            raise InputError(f"{name}: {given} is too few, use at least {smallest}")
    longest = max(map(len, prompts))
    length = longest + max(new_tokens - 1, 0)  # the last token of an answer is not fed back
    if length > context:
        raise InputError(
            f"new_tokens: {longest} tokens of a prompt and {new_tokens} new ones are more than the model's context of "
            f"{context} allows, ask for at most {max(context - longest + 1, 0)} or shorten the prompt"
        )
    return kind(model, min(batch or len(prompts), len(prompts)), length, leave or Exit())
