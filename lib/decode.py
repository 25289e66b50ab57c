"""Cached decoding in which a token that has left early is not computed any further.

Tokens on their way are one flat batch [1, n], whatever their row, position and loop: the looped layers are the same in
every loop, so that a row whose token has left begins its next one while others are still inside, and the batch stays
full. What a token leaves behind, its keys and values, is kept for each layer and each loop. A token that left after
loop t has none for the loops after it: later tokens find there its entries of loop t, which costs nothing (the other
choice, to compute them when they are asked for, gives back what leaving has saved).

With a threshold of zero, and all loops kept, every token is what full recomputation gives; in bf16 up to its rounding.
Fastest in fp32 on one thread: products of so few rows gain nothing from more.
"""

import dataclasses
import functools
import itertools
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lib import seeds
from lib.errors import InputError
from lib.exits import CRITERIA, PREDICTING, Seen
from lib.layers import Attention, linear
from lib.model import LoopedLM

PIECE = 128  # tokens of a row that attend at once
SCORED = 1 << 14  # given tokens on their way at once


@dataclasses.dataclass(frozen=True)
class Exit:
    """When a token leaves: after ``loops`` loops (mean_loops when None), or after the first whose score by
    ``criterion`` (``exits.CRITERIA``) is below ``threshold``.

    kept_loops: how many loops' keys and values are kept, all when None; loop t then overwrites those of loop t -
    kept_loops, so that a later token finds the last ones. The tokens of a prompt go through the loops together, and
    see of each other those of the loop that they are in; of each other's coda, where there is one, what it makes of
    the state there. So with either setting an answer depends on where the prompt ends.
    """

    threshold: float = 0.0
    criterion: str = "entropy"
    loops: int | None = None
    kept_loops: int | None = None

    def __post_init__(self):
        if not self.threshold >= 0:
            raise InputError(f"threshold: {self.threshold} is no score, use 0 (nobody leaves) or more")
        if self.criterion not in CRITERIA:
            raise InputError(f"criterion: {self.criterion!r} is not known, use one of {', '.join(CRITERIA)}")
        if self.kept_loops is not None and self.kept_loops < 1:
            raise InputError(f"kept_loops: {self.kept_loops} is too few, keep at least 1")


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How a token is drawn: the likeliest at temperature 0, else from softmax(z / temperature) over the top_k likeliest
    (0: all) and, of those, the fewest that hold top_p of the probability. Row i of a call draws from its own stream of
    ``seed``."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self):
        if not 0 <= self.temperature < math.inf:
            raise InputError(f"temperature: {self.temperature} is out of range, use 0 (greedy) or more")
        if self.top_k < 0:
            raise InputError(f"top_k: {self.top_k} is too few, use 0 (all) or more")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p: {self.top_p} is no share, use more than 0 and at most 1")

    def draw(self, logits: Tensor, u: list[float]) -> list[int]:
        """A token for each of logits [m, V], where ``u`` [m], uniform in [0, 1), falls in the cumulative
        distribution."""
        if self.temperature == 0:
            return logits.argmax(-1).tolist()
        z = logits.double()
        z = (z - z.amax(-1, keepdim=True)) / self.temperature
        p, token = z.softmax(-1).sort(descending=True, stable=True)
        if self.top_k:
            p = p[:, : self.top_k] / p[:, : self.top_k].sum(-1, keepdim=True)
        # a token is left out where those before it hold top_p already
        p = torch.where(p.cumsum(-1) - p < self.top_p, p, 0)
        reached, wanted = p.cumsum(-1), torch.tensor(u, dtype=p.dtype, device=p.device)[:, None]
        at = (reached <= reached[:, -1:] * wanted).sum(-1, keepdim=True)
        return token.gather(1, at.minimum((p > 0).sum(-1, keepdim=True) - 1))[:, 0].tolist()


class Event(NamedTuple):
    """A token of the answer to prompt ``row``, and how many loops its prediction took."""

    row: int
    token: int
    loops: int


@dataclasses.dataclass
class Answer:
    """What follows a prompt: ``tokens``, the loops that each one's prediction took, those of the prompt's own tokens
    (the last of which makes the first prediction), and whether a stop token, which is not among them, ended it."""

    tokens: list[int]
    loops: list[int]
    prompt_loops: list[int]
    stopped: bool = False


def generate(
    model: LoopedLM, prompts: Sequence[Sequence[int]], new_tokens: int, leave: Exit | None = None,
    sampling: Sampling | None = None, stop: Iterable[int] = (), batch: int | None = None,
) -> list[Answer]:  # fmt: skip
    """Continues each prompt, of any length, by up to ``new_tokens`` tokens, or up to one of ``stop``; never beyond the
    model's context. ``leave`` and ``sampling``: nobody early, and greedily, when None. ``batch``: prompts at work at
    once, all when None; the next one takes the place of one that is answered.

    Raises InputError, before anything is computed, for what cannot be decoded."""
    decoder = _decoder(model, prompts, new_tokens, leave, batch)
    answers = [Answer([], [], []) for _ in prompts]
    for _ in _answer(decoder, prompts, new_tokens, sampling or Sampling(), set(stop), answers):
        pass
    return answers


def stream(
    model: LoopedLM, prompts: Sequence[Sequence[int]], new_tokens: int, leave: Exit | None = None,
    sampling: Sampling | None = None, stop: Iterable[int] = (), batch: int | None = None,
) -> Iterator[Event]:  # fmt: skip
    """``generate``, token by token as they are found; of several prompts in whatever order they come, and with the stop
    token where there is one."""
    decoder = _decoder(model, prompts, new_tokens, leave, batch)
    answers = [Answer([], [], []) for _ in prompts]
    return _answer(decoder, prompts, new_tokens, sampling or Sampling(), set(stop), answers)


class Scores(NamedTuple):
    """Of given texts [B, S]: cross-entropies of their targets in nats, and the loops that each token took."""

    loss: np.ndarray
    loops: np.ndarray


def score(model: LoopedLM, tokens: Tensor, targets: Tensor, leave: Exit | None = None) -> Scores:
    """How well tokens [B, S] predict their targets when they leave early, debts included; one pass, as over a prompt
    (004 counts the saving, and lets everyone see what those who left would have computed)."""
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
    for left in decoder.run():
        wanted = targets[left.rows, left.positions].to(left.logits.device)
        loss[left.rows, left.positions] = F.cross_entropy(left.logits, wanted, reduction="none").double().cpu().numpy()
    return Scores(loss, decoder.taken)


def _decoder(
    model: LoopedLM, prompts: Sequence[Sequence[int]], new_tokens: int, leave: Exit | None, batch: int | None
) -> "_Decoder":
    """One that has room for them, if they can be decoded."""
    if not len(prompts) or not all(len(prompt) for prompt in prompts):
        raise InputError("prompts: one is empty, give each at least one token, such as that of a document's beginning")
    if new_tokens < 0:
        raise InputError(f"new_tokens: {new_tokens} is too few, use 0 or more")
    if batch is not None and batch < 1:
        raise InputError(f"batch: {batch} is too few, use at least 1")
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
    return _Decoder(model, min(batch or len(prompts), len(prompts)), length, leave or Exit())


@dataclasses.dataclass
class _Question:
    """A prompt at work: which, the position that predicts next, and its stream of random numbers."""

    index: int
    last: int
    random: np.random.Generator


def _answer(
    decoder: "_Decoder", prompts: Sequence[Sequence[int]], new_tokens: int, sampling: Sampling, stop: set[int],
    answers: list[Answer],
) -> Iterator[Event]:  # fmt: skip
    """Fills ``answers``, and tells of each token."""
    waiting = deque(range(len(prompts)) if new_tokens else ())
    at_work: dict[int, _Question] = {}  # row of the decoder -> question

    def begin(row: int) -> None:
        index = waiting.popleft()
        at_work[row] = _Question(index, len(prompts[index]) - 1, seeds.stream("decode", sampling.seed, index))
        decoder.clear(row)
        decoder.enter(row, prompts[index])

    for row in range(min(decoder.rows, len(waiting))):
        begin(row)
    predictions: dict[int, Tensor] = {}  # row -> logits of its next token, until all of its tokens have left
    for left in decoder.run():
        for i, (row, position) in enumerate(zip(left.rows.tolist(), left.positions.tolist(), strict=True)):
            if position == at_work[row].last:
                predictions[row] = left.logits[i]
        ready = [row for row in predictions if not decoder.inside(row)]
        if not ready:
            continue
        logits = torch.stack([predictions.pop(row) for row in ready])
        drawn = sampling.draw(logits, [at_work[row].random.random() for row in ready])
        for row, token in zip(ready, drawn, strict=True):
            question = at_work[row]
            answer, size = answers[question.index], len(prompts[question.index])
            taken = decoder.taken[row]
            answer.prompt_loops = answer.prompt_loops or taken[:size].tolist()
            yield Event(question.index, token, int(taken[question.last]))
            answer.stopped = token in stop
            if not answer.stopped:
                answer.tokens.append(token)
                answer.loops.append(int(taken[question.last]))
            if not answer.stopped and len(answer.tokens) < new_tokens:
                question.last += 1
                decoder.enter(row, [token])
            elif waiting:
                begin(row)


class _Left(NamedTuple):
    """Tokens that have just left: their rows and positions [m], and what they predict [m, V]."""

    rows: np.ndarray
    positions: np.ndarray
    logits: Tensor


@dataclasses.dataclass
class _Tokens:
    """Tokens on their way [n], those of a row side by side in the order of their positions: what each carries through
    the loops. h and prepared are [1, n, ...], as the model wants them."""

    rows: np.ndarray
    positions: np.ndarray
    loops: np.ndarray  # made so far
    device: torch.device
    h: Tensor
    prepared: tuple | Tensor
    values: dict[int, Tensor]
    seen: Seen | None

    @functools.cached_property
    def where(self) -> tuple[Tensor, Tensor]:
        """Rows and positions for indexing a tensor."""
        return torch.as_tensor(self.rows, device=self.device), torch.as_tensor(self.positions, device=self.device)

    @functools.cached_property
    def runs(self) -> list[tuple[int, int]]:
        """(start, stop) of each row's tokens, in pieces: a piece looks no further than its last position."""
        cuts = [0, *(np.flatnonzero(self.rows[1:] != self.rows[:-1]) + 1).tolist(), len(self.rows)]
        rows = itertools.pairwise(cuts)
        return [(at, min(at + PIECE, stop)) for start, stop in rows for at in range(start, stop, PIECE)]

    def __getitem__(self, which) -> "_Tokens":
        index = torch.as_tensor(which, device=self.h.device)
        seen = None if self.seen is None else Seen(*(x if x is None else x[index] for x in vars(self.seen).values()))
        return _Tokens(
            self.rows[which], self.positions[which], self.loops[which], self.device,
            self.h[:, index], _pick(self.prepared, index),
            {layer: value[:, index] for layer, value in self.values.items()}, seen,
        )  # fmt: skip

    def __add__(self, other: "_Tokens") -> "_Tokens":
        """Both; ``other`` are of other rows."""
        rows, positions, loops = (
            np.concatenate(pair)
            for pair in ((self.rows, other.rows), (self.positions, other.positions), (self.loops, other.loops))
        )
        values = {layer: torch.cat((value, other.values[layer]), 1) for layer, value in self.values.items()}
        seen = None
        if self.seen is not None:
            pairs = zip(vars(self.seen).values(), vars(other.seen).values(), strict=True)
            seen = Seen(*(None if a is None else torch.cat((a, b)) for a, b in pairs))
        return _Tokens(
            rows,
            positions,
            loops,
            self.device,
            torch.cat((self.h, other.h), 1),
            _join(self.prepared, other.prepared),
            values,
            seen,
        )


class _Decoder:
    """Rows of up to ``length`` positions with their cache. ``enter`` tokens, ``run`` until all have left; what comes
    out may be answered by entering more."""

    def __init__(self, model: LoopedLM, rows: int, length: int, leave: Exit):
        cfg, weight = model.cfg, model.embed.weight
        self.model, self.leave, self.device, self.rows = model, leave, weight.device, rows
        self.T = int(model.loops_of(1, leave.loops)[0])
        self.tests = leave.threshold > 0 and self.T > 1
        self.predicts = leave.criterion in PREDICTING
        self.taken = np.zeros((rows, length), dtype=int)  # loops of each token that has left
        self.entering: list[tuple[int, list[int]]] = []
        self.flight: _Tokens | None = None
        self.reached = np.zeros(rows, dtype=int)  # positions of each row that are taken
        self.noise = None
        if cfg.state_init != "prelude":
            self.noise = model.initial_state(weight.new_zeros(1, length, cfg.width, dtype=model.residual_dtype), None)
        # keys and values: [kept loops, B, P, 2, H, D] of each unique layer, the looped ones side by side
        slots = min(leave.kept_loops or self.T, self.T)
        shape = rows, length, 2, cfg.heads, cfg.head_dim
        self.looped = weight.new_zeros(cfg.recur, slots, *shape, dtype=model.compute_dtype)
        once = weight.new_zeros(cfg.prelude + cfg.coda, 1, *shape, dtype=model.compute_dtype)
        self.cache = [*once[: cfg.prelude], *self.looped, *once[cfg.prelude :]]
        blocks = (*model.prelude, *model.recur, *model.coda)
        with torch.no_grad():
            self.fused = [block.attn.fused().to(model.compute_dtype) for block in blocks]

    def enter(self, row: int, tokens: Sequence[int]) -> None:
        """The next tokens of a row, whose tokens before have all left."""
        self.entering.append((row, list(tokens)))

    def inside(self, row: int) -> bool:
        """Whether tokens of a row are still on their way."""
        return self.flight is not None and row in self.flight.rows

    def clear(self, row: int) -> None:
        """Makes room for another text: what is in the cache is overwritten before anybody looks there."""
        self.reached[row] = 0

    def run(self) -> Iterator[_Left]:
        """Loop after loop, until nobody is on the way; after each, those that left."""
        while self.entering or self.flight is not None:
            with torch.inference_mode():
                left = self._tick()
            if left is not None:
                yield left

    def _tick(self) -> _Left | None:
        """Lets in who waits, makes one loop with everybody, lets out who is done."""
        if self.entering:
            begun = self._begin(self.entering)
            self.entering = []
            self.flight = begun if self.flight is None else self.flight + begun
        now = self.flight
        if self.model.cfg.recur:
            loop = torch.as_tensor(now.loops, device=self.device)[None]
            self._face(now, loop[0] % self.looped.shape[1])
            now.h, _ = self.model.step(now.h, now.prepared, now.values, loop, self._attend)
        now.loops += 1
        done = now.loops == self.T
        if self.tests:
            return self._test(now, done)
        return self._let_out(now, np.flatnonzero(done), None) if done.any() else None

    def _begin(self, entering: list[tuple[int, list[int]]]) -> _Tokens:
        """Embedding, prelude and initial state of new tokens."""
        model = self.model
        rows = np.concatenate([np.full(len(tokens), row) for row, tokens in entering])
        positions = np.concatenate([self.reached[row] + np.arange(len(tokens)) for row, tokens in entering])
        for row, tokens in entering:
            self.reached[row] += len(tokens)
        given = torch.tensor([[token for _, tokens in entering for token in tokens]], device=self.device)
        new = _Tokens(rows, positions, np.zeros_like(rows), self.device, None, None, {}, None)
        self._face(new)
        e, new.values, _ = model.before(given, self._attend)
        h = e if self.noise is None else self.noise[:, new.where[1]]
        new.h, new.prepared = model.injection.spread(h), model.injection.prepare(e)
        if self.tests and self.leave.criterion != "entropy":
            V = model.cfg.vocab_size if self.leave.criterion == "kl" else 0
            new.seen = Seen.nothing(len(rows), model.cfg.width, V, self.device)
        return new

    def _test(self, now: _Tokens, done: np.ndarray) -> _Left | None:
        """Scores everybody, and lets out who is below the threshold or done."""
        h, log_p, logits = self.model.injection.pool(now.h)[0].float(), None, None
        if self.predicts:
            logits = self._predict(now)
            log_p = logits.log_softmax(-1)
        seen = Seen(h, h, log_p) if now.seen is None else now.seen.then(h, log_p)
        below = CRITERIA[self.leave.criterion](seen, now.seen) < self.leave.threshold
        if now.seen is not None:
            now.seen = seen
        which = np.flatnonzero(done | below.cpu().numpy())
        return self._let_out(now, which, logits) if len(which) else None

    def _predict(self, tokens: _Tokens) -> Tensor:
        """Logits [n, V] through coda and head."""
        if len(self.model.coda):
            self._face(tokens)
        state = self.model.injection.pool(tokens.h)
        return self.model.logits(self.model.after(state, tokens.values, self._attend)[0][0])

    def _let_out(self, now: _Tokens, which: np.ndarray, logits: Tensor | None) -> _Left:
        leaving = now if len(which) == len(now.rows) else now[which]
        if logits is None and len(self.model.coda):  # those who leave see there also those before them who stay
            logits = self._predict(now)
        logits = self._predict(leaving) if logits is None else logits[torch.as_tensor(which, device=self.device)]
        self.taken[leaving.rows, leaving.positions] = leaving.loops
        self._share(leaving)
        stay = np.setdiff1d(np.arange(len(now.rows)), which, assume_unique=True)
        self.flight = now[stay] if len(stay) else None
        return _Left(leaving.rows, leaving.positions, logits)

    def _share(self, left: _Tokens) -> None:
        """What tokens that left early owe to later ones: their last entries stand for all that would have followed."""
        slots, pairs = self.looped.shape[1], []
        for loops in {*left.loops.tolist()} - {self.T}:
            last = (loops - 1) % slots
            owed = sorted({t % slots for t in range(loops, self.T)} - {last})
            which = np.flatnonzero(left.loops == loops)
            pairs += [(i, slot, last) for slot in owed for i in which]
        if not pairs:
            return
        who, to, last = torch.as_tensor(pairs, device=self.device).T
        rows, positions = (index[who] for index in left.where)
        self.looped[:, to, rows, positions] = self.looped[:, last, rows, positions]

    # ---- attention over the cache ------------------------------------------------------------------------------------

    def _face(self, tokens: _Tokens, slots: Tensor | None = None) -> None:
        """Prepares the attention of these tokens, in these slots [n] of the cache: the first, of layers used once."""
        self.facing, self.angles = tokens, self.model.angles[tokens.where[1]]
        self.slots = torch.zeros_like(tokens.where[0]) if slots is None else slots
        self.slot_of = self.slots.tolist()

    def _attend(self, layer: int, attn: Attention, x: Tensor, values: Tensor | None) -> Tensor:
        """Attention of x [1, n, d], each token over its row's keys and values of its loop, its own included."""
        q, k, v = attn.project(x, self.fused[layer], self.angles, values)
        cache, tokens = self.cache[layer], self.facing
        cache[self.slots, *tokens.where] = torch.stack((k[0], v[0]), 1)
        q, parts = q.transpose(1, 2), []  # [1, H, n, D]
        for start, stop in tokens.runs:
            positions = tokens.positions[start:stop]
            end = int(positions[-1]) + 1
            first = 0 if attn.window is None else max(0, int(positions[0]) - attn.window + 1)
            keys, vals = cache[self.slot_of[start], tokens.rows[start], first:end].permute(1, 2, 0, 3).unsqueeze(1)
            mask = self._mask(positions, first, attn.window) if stop - start > 1 else None
            parts.append(F.scaled_dot_product_attention(q[:, :, start:stop], keys, vals, attn_mask=mask))
        out = parts[0] if len(parts) == 1 else torch.cat(parts, 2)
        return linear(out.transpose(1, 2).flatten(2), attn.out.weight)

    def _mask(self, positions: np.ndarray, first: int, window: int | None) -> Tensor:
        """[q, keys]: which of the keys from position ``first`` on each token may see."""
        at = torch.as_tensor(positions, device=self.device)[:, None]
        keys = torch.arange(first, int(positions[-1]) + 1, device=self.device)
        return keys <= at if window is None else (keys <= at) & (keys > at - window)


def _pick(prepared, index: Tensor):
    """What an injection prepared, of some tokens: [1, n, d] tensors are cut, parameters are not."""
    if isinstance(prepared, tuple):
        return tuple(_pick(part, index) for part in prepared)
    return prepared[:, index] if prepared.ndim == 3 else prepared


def _join(prepared, other):
    if isinstance(prepared, tuple):
        return tuple(map(_join, prepared, other))
    return torch.cat((prepared, other), 1) if prepared.ndim == 3 else prepared
