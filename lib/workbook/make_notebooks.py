"""Runs for make the notebooks that are stale, each in a process of its own, so many at a time."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType

from lib.base.errors import in_one_line
from lib.workbook import places, warm
from lib.workbook.stale import Now

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 8.0  # seconds: a kernel is given five to end by itself


def main(profile: str, jobs: int, at_once: int, names: Sequence[str]) -> None:
    """For the Makefile. A notebook that fails says why, and holds up no other; then this exits with status 1. SIGTERM
    stops it and what runs as Ctrl-C does."""
    _stoppable()
    in_one_line(_run_stale, profile, jobs, at_once, names)


def _run_stale(profile: str, jobs: int, at_once: int, names: Sequence[str]) -> None:
    now = Now(profile, names, places.ROOT / "outputs")
    stale = [name for name in names if not now.fresh(name)]
    if not stale:
        return
    if warm.POSSIBLE:
        warm.load({"lib.workbook.execute"}.union(*(now.modules[name] for name in stale)))
    _together([partial(_one, name, jobs, now, stale) for name in stale], at_once)


def _together(functions: Sequence[Callable[[], None]], at_once: int) -> None:
    """Calls each in a process that is forked for it, at most so many at a time, and no more once make is gone. Exits
    with 1 where one fails."""
    make, waiting, failed = os.getppid(), list(reversed(functions)), False
    running: set[int] = set()
    try:
        while running or (waiting and os.getppid() == make):
            if waiting and len(running) < at_once and os.getppid() == make:
                signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until it is known what to stop
                running.add(warm.fork(waiting.pop()))
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            else:
                pid, status = os.wait()
                running.discard(pid)
                failed = failed or status != 0
    except KeyboardInterrupt:
        _end(running)
        raise SystemExit(130) from None
    if failed:
        raise SystemExit(1)


def _end(running: set[int]) -> None:
    """Ends these processes, and kills what has not ended in PATIENCE seconds: it hangs, or was stopped."""
    for pid in running:
        os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + PATIENCE
    for pid in running:
        while not os.waitpid(pid, os.WNOHANG)[0]:
            if time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)


def _one(name: str, jobs: int, now: Now, stale: Sequence[str]) -> None:
    """Runs a notebook in this process, and its kernel in one that is forked from it, or spawned where that is not
    safe."""
    kernel = warm.Kernel() if warm.POSSIBLE else None
    from lib.workbook.execute import Failed, execute

    _stoppable()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    stopped = f"{name}: stopped, what was begun goes on from its checkpoints with the same command"
    try:
        in_one_line(execute, name, jobs, now, stale, kernel, stopped=stopped, complaints=(Failed,))
    finally:
        if kernel:
            kernel.end()


def _stoppable() -> None:
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup and some shells want them ignored
            signal.signal(number, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    # shutting kernels down takes a moment, and shall be left alone; SIG_IGN would complain of a signal come meanwhile
    for later in SIGNALS:
        signal.signal(later, lambda *_: None)
    raise KeyboardInterrupt
