"""Tokens on their way through a looped model, and the cache of what they leave behind.

All tokens that are inside are one flat batch [1, n], whatever their row, position and loop: the looped layers are the
same in every loop, so that a row whose token has left begins its next one while others are still inside, and the batch
stays full. The keys and values of a token are kept for each layer and each loop. A token that left after loop t has
none for the loops after it: later tokens find its entries of loop t there, which costs nothing. (To compute the missing
ones when they are asked for would cost what leaving has saved.)
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lib.base.errors import InputError
from lib.decode.criteria import CRITERIA, GATE, PREDICTING, Seen, score
from lib.model.injection import Prepared, per_token
from lib.model.layers import Attention, linear, sees
from lib.model.looped import LoopedLM

PIECE = 128  # tokens of a row that attend at once


@dataclasses.dataclass(frozen=True)
class Exit:
    """When a token leaves the loop: after the first loop in which its score by ``criterion`` (``criteria.CRITERIA``, or
    ``criteria.GATE`` of a model with an exit gate) is below ``threshold``, at the latest after ``loops`` loops
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
        if self.criterion not in (*CRITERIA, GATE):
            raise InputError(f"criterion: {self.criterion!r} is not known, use one of {', '.join((*CRITERIA, GATE))}")
        if self.kept_loops is not None and self.kept_loops < 1:
            raise InputError(f"kept_loops: {self.kept_loops} is too few, keep at least 1")


class Left(NamedTuple):
    """Tokens that have just left: their rows and positions [m], and what they predict [m, V]."""

    rows: np.ndarray
    positions: np.ndarray
    logits: Tensor


@dataclasses.dataclass
class Tokens:
    """n tokens that are in the loop, and what they carry. Those of a row lie side by side, in the order of their
    positions. h, prepared and values are [1, n, ...], as the model wants them."""

    at: np.ndarray  # [3, n]: rows, positions, and the loops made so far
    h: Tensor
    prepared: Prepared
    values: dict[int, Tensor]
    seen: Seen | None

    @property
    def rows(self) -> np.ndarray:
        return self.at[0]

    @property
    def positions(self) -> np.ndarray:
        return self.at[1]

    @property
    def loops(self) -> np.ndarray:
        return self.at[2]

    @functools.cached_property
    def where(self) -> tuple[Tensor, Tensor]:
        """Rows and positions for indexing a tensor."""
        return torch.as_tensor(self.rows, device=self.h.device), torch.as_tensor(self.positions, device=self.h.device)

    @functools.cached_property
    def pieces(self) -> list[tuple[int, int]]:
        """(start, stop) of each row's tokens, in pieces: a piece looks no further than its last position."""
        cuts = [0, *(np.flatnonzero(self.rows[1:] != self.rows[:-1]) + 1).tolist(), len(self.rows)]
        rows = itertools.pairwise(cuts)
        return [(at, min(at + PIECE, stop)) for start, stop in rows for at in range(start, stop, PIECE)]

    def __getitem__(self, which: np.ndarray) -> "Tokens":
        index = torch.as_tensor(which, device=self.h.device)
        return self._carrying(lambda x: x[index], self.at[:, which])

    def without(self, gone: np.ndarray) -> "Tokens":
        """Those who stay."""
        return self[np.delete(np.arange(len(self.rows)), gone)] if len(gone) else self

    def followed_by(self, new: "Tokens", gone: np.ndarray) -> "Tokens":
        """These tokens with ``new`` ones, whose rows have no other here, and without the ``gone``. If as many come as
        go, each of another row, the new ones take the places of the gone, and nothing else is copied."""
        if len(gone) == len(new.rows) == len({*new.rows.tolist()}):
            index, at = torch.as_tensor(gone, device=self.h.device), self.at.copy()
            at[:, gone] = new.at
            return self._carrying(lambda x, y: x.index_copy(0, index, y), at, new)
        stay = self.without(gone)
        return stay._carrying(lambda x, y: torch.cat((x, y)), np.concatenate((stay.at, new.at), 1), new)

    def _carrying(self, f: Callable[..., Tensor], at: np.ndarray, *others: "Tokens") -> "Tokens":
        """Tokens at ``at``. What they carry is ``f`` of what these and the others carry, each [n, ...]."""
        every = (self, *others)

        def inner(*tensors: Tensor) -> Tensor:
            return f(*(x[0] for x in tensors))[None]

        seen = None
        if self.seen is not None:
            parts = zip(*(vars(tokens.seen).values() for tokens in every), strict=True)
            seen = Seen(*(f(*part) for part in parts))
        return Tokens(
            at,
            inner(*(tokens.h for tokens in every)),
            per_token(inner, *(tokens.prepared for tokens in every)),
            {layer: inner(*(tokens.values[layer] for tokens in every)) for layer in self.values},
            seen,
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
        self.entering: list[tuple[int, list[int]]] = []
        self.flight: Tokens | None = None
        self.gone = np.zeros(0, dtype=int)  # which of them have left since the last loop
        self.count = np.zeros(rows, dtype=int)  # tokens of each row that are on their way
        self.reached = np.zeros(rows, dtype=int)  # positions of each row that are taken
        self.noise = None
        if cfg.state_init != "prelude":
            self.noise = model.initial_state(weight.new_zeros(1, length, cfg.width, dtype=model.residual_dtype), None)
        # keys and values: [kept loops, B, P, 2, KV, D] of each unique layer, the looped ones side by side
        self.kept = min(leave.kept_loops or self.T, self.T)
        shape = rows, length, 2, cfg.key_heads, cfg.head_dim
        self.looped = weight.new_zeros(cfg.recur, self.kept, *shape, dtype=model.compute_dtype)
        once = weight.new_zeros(cfg.prelude + cfg.coda, 1, *shape, dtype=model.compute_dtype)
        self.cache = [*once[: cfg.prelude], *self.looped, *once[cfg.prelude :]]
        with torch.no_grad():
            self.fused = [block.attn.fused().to(model.compute_dtype) for block in model.blocks]

    def enter(self, row: int, tokens: Sequence[int]) -> None:
        """The next tokens of a row, whose tokens before have all left."""
        self.entering.append((row, list(tokens)))

    def departures(self) -> Iterator[Left]:
        """Makes loops until no token is inside, and yields those that leave after each."""
        while self.entering or self.flight is not None:
            with torch.inference_mode():
                left = self._tick()
            if left is not None:
                yield left

    def _tick(self) -> Left | None:
        """Lets in the tokens that wait, makes one loop with all, lets out those that are done."""
        gone = self.gone
        if self.flight is None:
            now = self._begin(self.entering)
        elif self.entering:
            now = self.flight.followed_by(self._begin(self.entering), gone)
        else:
            now = self.flight.without(gone)
        self.flight, self.entering, self.gone = now, [], gone[:0]
        if self.model.cfg.recur:
            loop = torch.as_tensor(now.loops, device=self.device)
            self._face(now, loop % self.kept)
            now.h, _ = self.model.step(now.h, now.prepared, now.values, loop[None], self._attend)
        now.at[2] += 1
        done = now.loops == self.T
        if self.tests:
            return self._test(now, done)
        return self._let_out(now, np.flatnonzero(done), None) if done.any() else None

    def _begin(self, entering: list[tuple[int, list[int]]]) -> Tokens:
        """Embedding, prelude and initial state of new tokens."""
        model = self.model
        rows = np.concatenate([np.full(len(tokens), row) for row, tokens in entering])
        positions = np.concatenate([self.reached[row] + np.arange(len(tokens)) for row, tokens in entering])
        for row, tokens in entering:
            self.reached[row] += len(tokens)
            self.count[row] += len(tokens)
        given = torch.tensor([[token for _, tokens in entering for token in tokens]], device=self.device)
        nothing = torch.empty(0, device=self.device)  # what they carry is computed once they are faced
        new = Tokens(np.stack((rows, positions, np.zeros_like(rows))), nothing, (), {}, None)
        self._face(new)
        e, new.values, _ = model.before(given, self._attend)
        h = e if self.noise is None else self.noise[:, new.where[1]]
        new.h, new.prepared = model.injection.spread(h), model.injection.prepare(e)
        if self.tests and self.leave.criterion != "entropy":
            V = model.cfg.vocab_size if self.leave.criterion == "kl" else 0
            new.seen = Seen.nothing(len(rows), model.cfg.width, V, self.device)
        return new

    def _test(self, now: Tokens, done: np.ndarray) -> Left | None:
        """Scores all tokens, and lets out those that are below the threshold or done."""
        h, logits = self.model.injection.pool(now.h)[0].float(), None
        log_p = h[:, :0]
        if self.leave.criterion in PREDICTING:
            logits = self._predict(now)
            log_p = logits.log_softmax(-1)
        leaving = self.model.leaving(h) if self.leave.criterion == GATE else None
        before = now.seen or Seen.nothing(len(h), h.shape[1], 0, self.device)
        seen = before.then(h, log_p, leaving)
        below = score(self.leave.criterion, seen, now.seen or seen) < self.leave.threshold
        if now.seen is not None:
            now.seen = seen
        which = np.flatnonzero(done | below.cpu().numpy())
        return self._let_out(now, which, logits) if len(which) else None

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
        self._share(rows, positions, loops)
        np.subtract.at(self.count, rows, 1)
        self.flight, self.gone = (None, self.gone) if everybody else (now, which)
        return Left(rows, positions, logits)

    def _share(self, rows: np.ndarray, positions: np.ndarray, loops: np.ndarray) -> None:
        """Copies the last entries of tokens that left early to the loops that they did not make, where later tokens
        look for them."""
        for made in {*loops[loops < self.T].tolist()}:
            last = (made - 1) % self.kept
            owed = torch.tensor([*({t % self.kept for t in range(made, self.T)} - {last})], device=self.device)
            row, position = torch.as_tensor(np.stack((rows, positions))[:, loops == made], device=self.device)
            self.looped[:, owed.long()[:, None], row, position] = self.looped[:, last, row, position][:, None]

    # ---- attention over the cache ------------------------------------------------------------------------------------

    def _face(self, tokens: Tokens, slots: Tensor | None = None) -> None:
        """Makes these the tokens that attend, each with its slot [n] of the cache; None: the only slot of layers that
        are used once."""
        self.facing, self.angles = tokens, self.model.angles[tokens.where[1]]
        self.slots = torch.zeros_like(tokens.where[0]) if slots is None else slots
        self.slot_of = self.slots.tolist()

    def _attend(self, layer: int, attn: Attention, x: Tensor, values: Tensor | None) -> Tensor:
        """Attention of x [1, n, d], each token over its row's keys and values of its loop, its own included."""
        q, k, v = attn.project(x, self.fused[layer], self.angles, values)
        cache, tokens = self.cache[layer], self.facing
        cache[self.slots, *tokens.where] = torch.stack((k[0], v[0]), 1)
        q, parts = q.transpose(1, 2), []  # [1, H, n, D]
        for start, stop in tokens.pieces:
            positions = tokens.positions[start:stop]
            end = int(positions[-1]) + 1
            first = 0 if attn.window is None else max(0, int(positions[0]) - attn.window + 1)
            keys, vals = cache[self.slot_of[start], tokens.rows[start], first:end].permute(1, 2, 0, 3).unsqueeze(1)
            mask = None
            if stop - start > 1:
                at = torch.as_tensor(positions, device=self.device)
                mask = sees(at, torch.arange(first, int(positions[-1]) + 1, device=self.device), attn.window)
            grouped = attn.key_heads != attn.heads
            y = F.scaled_dot_product_attention(q[:, :, start:stop], keys, vals, attn_mask=mask, enable_gqa=grouped)
            parts.append(y)
        out = parts[0] if len(parts) == 1 else torch.cat(parts, 2)
        return linear(out.transpose(1, 2).flatten(2), attn.out.weight)
