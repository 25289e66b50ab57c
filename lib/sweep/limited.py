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


CHECKPOINT_SECONDS = 10.0  # what a limit may cost each process


def train_until(until: float, configs: Sequence[RunConfig], store: RunStore, jobs: int) -> dict[str, str]:
    """Trains runs in their order, ``jobs`` at once, until ``time.monotonic()`` says ``until``.

    Key -> "" for those that are finished, STOPPED for those that the limit stopped or that were not begun, and for
    those that failed one line that says why; they do not keep the others from being trained. What is stopped, or
    interrupted, goes on from its last checkpoint another time; texts are tokenised first. Raises what concerns all
    runs, a full disk or a worker that was killed."""
    outcomes = {}
    try:
        for cfg in one_of_each_text(configs):
            with contextlib.suppress(InputError):  # the runs of a text that does not fit say so
                prepare_texts([cfg], store, until)
    except TimeIsUp:
        return {cfg.key: STOPPED for cfg in configs}
    with Bar(total=len(configs), unit="run", disable=not configs) as bar:
        if jobs == 1:
            for cfg in configs:
                outcomes[cfg.key] = _train_one(cfg, store, until)
                bar.update()
            return outcomes
        with processes.pool(
            jobs, signal.signal, signal.SIGINT, signal.SIG_IGN
        ) as pool:  # Ctrl-C is the caller's to hear
            futures = {pool.submit(_train_one, cfg, store, until): cfg.key for cfg in configs}
            for future in concurrent.futures.as_completed(futures):
                outcomes[futures[future]] = future.result()
                bar.update()
    return outcomes


def _train_one(cfg: RunConfig, store: RunStore, until: float) -> str:
    def look_at_the_clock(step: int, loss: float) -> None:
        if time.monotonic() >= until and step < cfg.train.steps:  # after its last step a run is only to be written
            raise TimeIsUp

    try:
        look_at_the_clock(0, 0.0)
        train(cfg, store, checkpoint_seconds=CHECKPOINT_SECONDS, progress=look_at_the_clock)
    except TimeIsUp:
        return STOPPED
    except (InputError, RuntimeError) as error:  # no memory for this one, say
        return " ".join(str(error).split()) or type(error).__name__
    return ""
