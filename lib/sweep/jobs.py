"""Work on the processes of this machine: one thing after another, or so many at once."""

import concurrent.futures
import contextlib
import functools
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from typing import Any, TypeVar

import torch
from tqdm import tqdm

from lib.base import processes
from lib.base.errors import InputError

T = TypeVar("T")
R = TypeVar("R")
Progress = Callable[[float], None]  # the share of a thing that is done
Show = Callable[[int, float], None]  # the same of the i-th

LOOK_EVERY = 0.5  # seconds between looks at what processes have done
BEAT, SILENCE = 5.0, 40.0  # seconds between signs of life of a process, and without one until it is named


def work_through(work: Callable[[T, Progress], R], things: Sequence[T], at_once: int, show: Show) -> list[R]:
    """``work(thing, progress)`` for each, begun in their order. The first error ends all, as an interrupt does. With
    several processes ``work`` and the things are sent to them, so they must be importable."""
    if at_once == 1:
        return [_one(work, thing, functools.partial(show, i)) for i, thing in enumerate(things)]
    context = processes.start()
    shares, alive, who = (context.Array("d", len(things), lock=False) for _ in range(3))
    named = set[int]()
    with processes.pool(at_once, _begin, shares, alive, who) as pool:
        futures = [pool.submit(_elsewhere, work, thing, i) for i, thing in enumerate(things)]
        pending = set(futures)
        while pending:
            finished, pending = concurrent.futures.wait(pending, LOOK_EVERY, concurrent.futures.FIRST_COMPLETED)
            for future in finished:
                future.result()
            for i, share in enumerate(shares):
                show(i, share)
            silent = {i for i, at in enumerate(alive) if 0 < at < time.monotonic() - SILENCE and futures[i] in pending}
            for i in silent - named:
                tqdm.write(
                    f"process {who[i]:.0f}, at {i + 1} of {len(things)}, computes nothing: it was stopped, waits or "
                    "hangs; Ctrl-C ends all, and what was begun goes on another time"
                )
            named = silent
    return [future.result() for future in futures]


def _one(work: Callable[[T, Progress], R], thing: T, progress: Progress) -> R:
    result = work(thing, progress)
    progress(1.0)
    return result


_shares: MutableSequence[float]  # in a process that works: the share of each thing that is done
_alive: MutableSequence[float]  # when it was last computed at, 0 before it was begun
_who: MutableSequence[float]  # and by which process


def _begin(*shared: MutableSequence[float]) -> None:
    global _shares, _alive, _who
    _shares, _alive, _who = shared
    torch.set_num_threads(1)


def _elsewhere(work: Callable[[Any, Progress], Any], thing: Any, i: int) -> Any:
    over, _who[i] = threading.Event(), os.getpid()
    threading.Thread(target=_beat, args=(i, over), daemon=True).start()
    try:
        return _one(work, thing, functools.partial(_shares.__setitem__, i))
    finally:
        over.set()


def _beat(i: int, over: threading.Event) -> None:
    """Says when this process has last computed: a hundredth of the time, since to look takes a little."""
    spent = -math.inf
    while not over.is_set():
        if time.process_time() > spent + BEAT / 100:
            spent, _alive[i] = time.process_time(), time.monotonic()
        over.wait(BEAT)


@contextlib.contextmanager
def flop_bar(costs: Sequence[float], what: str) -> Iterator[Show]:
    """A bar of the FLOPs of things; yields what says how much of the i-th is done."""
    done, total = [0.0] * len(costs), sum(costs)
    with tqdm(
        total=total,
        disable=not costs,
        unit="FLOP",
        unit_scale=True,
        desc=f"{len(costs)} {what}",
        mininterval=float(os.environ.get("TQDM_MININTERVAL", 0.1)),  # tqdm itself looks once, when it is imported
    ) as bar:

        def show(i: int, share: float) -> None:
            bar.update(min(costs[i] * (share - done[i]), total - bar.n))  # sums of floats do not pass the total
            done[i] = share

        yield show


def check_hours(what: str, needed: float, max_hours: float | None) -> None:
    """Raises InputError where it would take more hours than that."""
    if max_hours is not None and not needed <= max_hours:  # nan is no limit to keep
        raise InputError(
            f"max_hours: {what} need about {spell(needed)} here, more than max_hours={max_hours:g}; raise max_hours, "
            "or choose a smaller profile"
        )


def spell(hours: float) -> str:
    seconds = hours * 3600
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{hours:.1f} h"
