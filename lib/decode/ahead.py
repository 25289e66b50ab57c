"""Generation ahead of itself: what a loop's state predicts before it has settled is taken for the next token, which
begins at once, while the token before is still on its way (Geiping et al., "Efficient Parallel Samplers for
Recurrent-Depth Models", arXiv 2510.14961).

A row's tokens that are on their way are its wave: at the front the oldest, whose own token is known, behind it guesses.
A round makes some loops with all of them, reads a token off every position, lets out those at the front that are done,
and begins one more. In a machine where a pass over several tokens takes about as long as one over a single token, a
token then costs rounds, not loops.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from lib.base.errors import Checked, InputError
from lib.decode.decoder import Decoder, Exit, Tokens
from lib.model.looped import LoopedLM

#: (rows, positions, logits [n, V]) -> the tokens that follow there
Draw = Callable[[Sequence[int], Sequence[int], Tensor], list[int]]


class Ahead(Checked):
    """How far generation runs ahead. ``wave``: so many positions of a row are on their way at most. ``loops``: that a
    round makes with them; they divide the model's.

    exact: where a guess turns out another, all behind it begins anew. If nobody leaves early, by an exit or by
    ``settled``, an answer is then that of plain decoding token for token, greedy or drawn: its tokens have made all
    loops, and seen what others have left. ``mixed`` and ``noise`` have nothing to do.

    Otherwise (Geiping et al.) what is behind a changed guess goes on from the state that it has. In each round every
    position embeds its present guess, with the share ``mixed`` of what it embedded before, and a state that has made n
    loops is moved towards its start by noise / (1 + n) of the way. For models that see their input in every loop.

    settled: a token at the front leaves when its guess of the next has stayed the same for so many rounds, and when
    None not before its exit or its last loop. Exit(.03, "change") leaves as Geiping et al. do.
    """

    wave: int = Field(8, ge=1)
    loops: int = Field(1, ge=1)
    exact: bool = True
    mixed: float = Field(0.1, ge=0, lt=1)
    noise: float = Field(0.5, ge=0, lt=1)
    settled: int | None = Field(None, ge=1)


class Wave(Decoder):
    """A decoder of several tokens of a row at once, all but the first of which are guesses."""

    def __init__(self, model: LoopedLM, rows: int, length: int, leave: Exit, ahead: Ahead, draw: Draw):
        super().__init__(model, rows, length, leave)
        if self.T % ahead.loops:
            raise InputError(f"loops: {ahead.loops} a round do not divide the {self.T} that are made, use a divisor")
        if ahead.exact and self.kept < self.T:
            raise InputError("kept_loops: an exact answer sees the entries of all loops, leave it out or exact=False")
        if not ahead.exact and model.cfg.recur and model.cfg.injection in ("none", "hyper-connections"):
            raise InputError(f"exact: a guess cannot change inside {model.cfg.injection}, which does not see it again")
        self.ahead, self.draw, self.embeds_again = ahead, draw, not ahead.exact
        self.reading = False  # a prompt
        self.known = np.zeros(rows, dtype=int)  # tokens of each row that are no guess
        self.given = np.zeros((rows, length + 1), dtype=int)  # the token at each position, a guess beyond the known
        self.since = np.zeros((rows, length + 1), dtype=int)  # rounds for which it has stayed the same

    def enter(self, row: int, tokens: Sequence[int]) -> None:
        """A prompt; or the next token of a row, which may be on its way already as a guess."""
        start = self.known[row]
        if start == self.reached[row] or self.given[row, start] != tokens[0]:
            self._withdraw(row, start)
            super().enter(row, tokens)
        self.known[row] += len(tokens)
        self.given[row, start : self.known[row]] = tokens

    def clear(self, row: int) -> None:
        self._withdraw(row, 0)
        self.known[row] = 0

    def predictions(self) -> Iterator[tuple[list[int], list[int], Tensor]]:
        """What is known for good: the tokens at the front of each row, one after the other."""
        while self.entering or self.flight is not None:
            prompts = [one for one in self.entering if not self.reached[one[0]]]
            yield from self._read(prompts) if prompts else self._round()

    def _read(self, prompts: list[tuple[int, list[int]]]) -> Iterator[tuple[list[int], list[int], Tensor]]:
        """Prompts go through all their loops before anything is guessed, and alone."""
        waiting = self.flight, self.gone, [one for one in self.entering if one not in prompts]
        self.flight, self.gone, self.entering, self.reading = None, self.gone[:0], prompts, True
        read = [*super().predictions()]
        (self.flight, self.gone, self.entering), self.reading = waiting, False
        yield from read

    def _round(self) -> Iterator[tuple[list[int], list[int], Tensor]]:
        with torch.inference_mode():
            now = self._inside()
            if not self.ahead.exact:
                self._see_again(now)
            for _ in range(self.ahead.loops):
                self._loop(now)
            below, logits = self._below(now) if self.tests else (False, None)
            logits = self._predict(now) if logits is None else logits
        rows, positions = now.rows, now.positions
        guesses, after = self.draw(rows.tolist(), positions.tolist(), logits), (rows, positions + 1)
        same = (self.given[after] == guesses) & (now.loops > self.ahead.loops)  # a first guess has none before it
        self.given[after], self.since[after] = guesses, np.where(same, self.since[after] + 1, 0)
        done = (now.loops == self.T) | below
        if self.ahead.settled is not None:
            done |= self.since[after] >= self.ahead.settled
        fronts, left = {}, []
        for row in dict.fromkeys(rows.tolist()):
            mine = np.flatnonzero(rows == row)
            # what is behind a guess that has changed was misled; what is done leaves if all before it have left
            right = int(np.logical_and.accumulate(same[mine[:-1]]).sum()) + 1
            leaving = int(np.logical_and.accumulate(done[mine][:right]).sum())
            fronts[row] = positions[mine[0]] + leaving
            left.append(mine[:leaving])
            if self.ahead.exact:
                self._withdraw(row, positions[mine[0]] + right)
        if sum(map(len, left)):
            self._let_out(now, np.concatenate(left), logits)
        # who has made all loops and is misled makes the last ones again, and counts as having made them once
        now.at[2] = np.minimum(now.loops, self.T - self.ahead.loops)
        for mine in left:
            for i in mine:
                if self.reached[rows[i]]:
                    yield [int(rows[i])], [int(positions[i])], logits[[i]]
        for row, front in fronts.items():
            at = self.reached[row]
            if (
                all(row != begun for begun, _ in self.entering)
                and 0 < at < self.taken.shape[1]
                and at - front < self.ahead.wave
            ):
                super().enter(row, [self.given[row, at]])

    def _see_again(self, now: Tokens) -> None:
        """Embeds the present guesses, and moves young states towards their start."""
        e = super()._embed(now, self.given[now.rows, now.positions].tolist())
        loops = torch.as_tensor(now.loops, device=self.device)[:, None]
        now.e = e.lerp(cast(Tensor, now.e), (self.ahead.mixed * (loops > 0)).to(e).expand_as(e))
        now.prepared = self.model.injection.prepare(now.e)
        back = torch.where(loops > 0, self.ahead.noise / (1 + loops), 1).to(now.h).expand_as(now.h)
        now.h = now.h.lerp(self._start(now, now.e), back)

    def _embed(self, tokens: Tokens, given: Sequence[int]) -> Tensor:
        """Of who enters a round that embeds all again: nothing yet."""
        if self.reading or self.ahead.exact:
            return super()._embed(tokens, given)
        nothing = self.model.embed.weight.new_zeros(1, len(given), self.model.cfg.width)
        tokens.values = dict.fromkeys(map(int, self.model.value_embeds), nothing)
        return nothing.to(self.model.residual_dtype)

    def _withdraw(self, row: int, position: int) -> None:
        """Takes a row's tokens from ``position`` on out of the wave."""
        self.reached[row] = min(self.reached[row], position)
        self.entering = [one for one in self.entering if one[0] != row]
        if self.flight is not None:
            behind = np.flatnonzero((self.flight.rows == row) & (self.flight.positions >= position))
            withdrawn = np.setdiff1d(behind, self.gone)
            self.count[row] -= len(withdrawn)
            self._take_out(np.union1d(self.gone, withdrawn))


#: what a notebook's ``sampler`` may be; a parallel one leaves by Exit(.03, "change")
SAMPLERS: dict[str, Ahead | None] = {"plain": None, "exact": Ahead(), "parallel": Ahead(wave=16, exact=False)}
