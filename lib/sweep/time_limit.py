"""Many runs until a limit of time: what it stops goes on another time."""

import concurrent.futures
import contextlib
import signal
import time
from collections.abc import Sequence

from lib.base import processes
from lib.base.errors import InputError
from lib.base.progress import Bar
from lib.config import RunConfig
from lib.store.runs import RunStore
from lib.sweep.texts import TimeIsUp, one_of_each_text, prepare_texts
from lib.train.loop import train

STOPPED = "stopped"  # what became of a run that a limit stopped
CHECKPOINT_SECONDS = 10.0  # the work that a limit may cost each process


def train_until(until: float, configs: Sequence[RunConfig], store: RunStore, jobs: int) -> dict[str, str]:
    """Trains runs in their order, ``jobs`` at once, until ``time.monotonic()`` says ``until``.

    Returns for each key "" if the run is finished, STOPPED if the limit stopped it or it was not begun, and one line
    that says why if it failed; the others are trained all the same. A run that is stopped, or interrupted, goes on from
    its last checkpoint another time. Texts are tokenised first. Raises what concerns all runs: a full disk, a worker
    that was killed."""
    outcomes = {}
    try:
        for cfg in one_of_each_text(configs):
            with contextlib.suppress(InputError):  # a text that does not fit its runs is their failure
                prepare_texts([cfg], store, until)
    except TimeIsUp:
        return {cfg.key: STOPPED for cfg in configs}
    with Bar(total=len(configs), unit="run", disable=not configs) as bar:
        if jobs == 1:
            for cfg in configs:
                outcomes[cfg.key] = _train_one(cfg, store, until)
                bar.update()
            return outcomes
        ignoring_ctrl_c = signal.signal, signal.SIGINT, signal.SIG_IGN  # which the caller hears
        with processes.pool(jobs, *ignoring_ctrl_c) as pool:
            futures = {pool.submit(_train_one, cfg, store, until): cfg.key for cfg in configs}
            for future in concurrent.futures.as_completed(futures):
                outcomes[futures[future]] = future.result()
                bar.update()
    return outcomes


def _train_one(cfg: RunConfig, store: RunStore, until: float) -> str:
    def look_at_the_clock(step: int, loss: float) -> None:
        if time.monotonic() >= until and step < cfg.train.steps:  # after its last step a run has only to be written
            raise TimeIsUp

    try:
        look_at_the_clock(0, 0.0)
        train(cfg, store, checkpoint_seconds=CHECKPOINT_SECONDS, progress=look_at_the_clock)
    except TimeIsUp:
        return STOPPED
    except (InputError, RuntimeError) as error:  # no memory for this one, say
        return " ".join(str(error).split()) or type(error).__name__
    return ""
