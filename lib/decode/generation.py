"""Cached decoding in which a token that has left early is not computed any further.

With a threshold of zero every token is what full recomputation gives; in bf16 up to its rounding. Fastest in fp32 on
one thread: products of so few rows gain nothing from more.

All tokens that are inside are one flat batch [1, n], whatever their row, position and loop: the looped layers are the
same in every loop, so that a row whose token has left begins its next one while others are still inside, and the batch
stays full. The keys and values of a token are kept for each layer and each loop. A token that left after loop t has
none for the loops after it: later tokens find its entries of loop t there, which costs nothing. (To compute the missing
ones when they are asked for would cost what leaving has saved.)
"""

import dataclasses
import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from lib.base import seeds
from lib.base.errors import Checked, InputError
from lib.decode.exits import CRITERIA, GATE, PREDICTING, SCORES, Seen
from lib.model.injection import Prepared, per_token
from lib.model.layers import Attention, linear, sdpa, sees
from lib.model.looped import LoopedLM

SCORED = 1 << 14  # tokens that ``score`` has in the loop at once
PIECE = 128  # tokens of a row that attend at once


@dataclasses.dataclass(frozen=True)
class Exit:
    """When a token leaves the loop: after the first loop in which its score by ``criterion`` (``exits.CRITERIA``, or
    ``exits.GATE`` of a model with an exit gate) is below ``threshold``, at the latest after ``loops`` loops
    (mean_loops when None).

    A threshold makes an answer depend on where its prompt ends. The tokens of a prompt go through the
    loops together: they see each other's keys and values of the loop that they are in, and in a coda what it makes of
    each other's states at that moment. Tokens of the answer see what the prompt's tokens have left in the end.
    """

    threshold: float = 0.0
    criterion: str = "entropy"
    loops: int | None = None

    def __post_init__(self) -> None:
        if not self.threshold >= 0:
            raise InputError(f"threshold: {self.threshold} is no score, use 0 (nobody leaves) or more")
        if self.criterion not in SCORES:
            raise InputError(f"criterion: {self.criterion!r} is not known, use one of {', '.join(SCORES)}")


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
    for rows, positions, logits in decoder.departures():
        for row, position, predicted in zip(rows.tolist(), positions.tolist(), logits, strict=True):
            if position == decoder.reached[row] - 1:
                predictions[row] = predicted
        ready = [row for row in predictions if not decoder.count[row]]
        if not ready:
            continue
        drawn = sampling.draw(
            torch.stack([predictions.pop(row) for row in ready]), [random[asked[row]].random() for row in ready]
        )
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
    loss, loops = np.zeros(tokens.shape), np.zeros(tokens.shape, dtype=int)
    rows = max(1, SCORED // tokens.shape[1])
    for first in range(0, len(tokens), rows):
        some = tokens[first : first + rows].tolist()
        decoder = _decoder(model, some, 0, leave, None)
        for row, given in enumerate(some):
            decoder.enter(row, given)
        for row_of, position, logits in decoder.departures():
            at = first + row_of, position
            wanted = targets[at].to(logits.device)
            loss[at] = F.cross_entropy(logits, wanted, reduction="none").double().cpu().numpy()
        loops[first : first + rows] = decoder.taken
    return Scores(loss, loops)


# ---- tokens on their way through a model -----------------------------------------------------------------------------


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
        return [
            (at, min(at + PIECE, stop)) for start, stop in itertools.pairwise(cuts) for at in range(start, stop, PIECE)
        ]

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

        seen = zip(*(tokens.seen for tokens in every if tokens.seen), strict=True)
        return Tokens(
            at,
            inner(*(tokens.h for tokens in every)),
            per_token(inner, *(tokens.prepared for tokens in every)),
            {layer: inner(*(tokens.values[layer] for tokens in every)) for layer in self.values},
            self.seen and Seen(*(f(*part) for part in seen)),
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
        e = weight.new_zeros(1, length, cfg.width, dtype=model.residual_dtype)
        self.noise = None if cfg.state_init == "prelude" else model.initial_state(e, None)
        # keys and values: [loops, B, P, 2, KV, D] of each unique layer, the looped ones side by side
        shape = rows, length, 2, cfg.key_heads, cfg.head_dim
        self.looped = weight.new_zeros(cfg.recur, self.T, *shape, dtype=model.compute_dtype)
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
            self._face(now, loop)
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
        # what they carry is computed once they are faced
        new = Tokens(np.stack((rows, positions, np.zeros_like(rows))), torch.empty(0, device=self.device), (), {}, None)
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
        below = SCORES[self.leave.criterion](seen, now.seen or seen) < self.leave.threshold
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
        # those who left early leave their last entries in the loops that they did not make, where later tokens look
        for made in {*loops[loops < self.T].tolist()}:
            row, position = torch.as_tensor(np.stack((rows, positions))[:, loops == made], device=self.device)
            self.looped[:, made:, row, position] = self.looped[:, made - 1, row, position][:, None]
        np.subtract.at(self.count, rows, 1)
        self.flight, self.gone = (None, self.gone) if everybody else (now, which)
        return rows, positions, logits

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
                mask = sees(at, torch.arange(first, end, device=self.device), attn.window)
            parts.append(sdpa(q[:, :, start:stop], keys, vals, mask))
        out = parts[0] if len(parts) == 1 else torch.cat(parts, 2)
        return linear(out.transpose(1, 2).flatten(2), attn.out.weight)


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
