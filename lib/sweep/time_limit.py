"""Many runs until a limit of time, each with what is measured on it: what the limit stops goes on another time."""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Sequence

from lib.base.errors import InputError
from lib.config import RunConfig
from lib.flops import run_flops
from lib.store.runs import RunStore
from lib.sweep.jobs import Progress, flop_bar, work_through
from lib.sweep.measurements import Asked, name
from lib.sweep.texts import one_of_each_text, prepare_texts
from lib.train.loop import train

STOPPED = "stopped"  # what became of a job that a limit stopped
CHECKPOINT_SECONDS = 10.0  # the work that a limit may cost each process


class TimeIsUp(Exception):
    """The limit of time is reached; what was begun goes on another time."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A run to be trained, if there is one, and what is measured then, by the same process."""

    cfg: RunConfig | None
    asked: tuple[Asked, ...] = ()

    @property
    def key(self) -> str:
        return self.cfg.key if self.cfg else self.asked[0].key

    @property
    def flops(self) -> float:
        return (run_flops(self.cfg) if self.cfg else 0.0) + sum(one.case.flops for one in self.asked)

    def __str__(self) -> str:
        return f"run {self.key}" if self.cfg else f"{name(self.asked[0].function)} {self.key}"


def train_until(until: float, jobs: Sequence[Job], store: RunStore, at_once: int) -> dict[str, str]:
    """Does these jobs in their order, ``at_once`` of them, until ``time.monotonic()`` says ``until``.

    Returns for each, by its name, "" if it is done, STOPPED if the limit stopped it or it was not begun, and one line
    that says why if it failed; the others are done all the same. A run that is stopped, or interrupted, goes on from
    its last checkpoint another time. Texts are tokenised first. Raises what concerns all jobs: a full disk, a worker
    that was killed."""
    for cfg in one_of_each_text([job.cfg for job in jobs if job.cfg]):
        with contextlib.suppress(InputError):  # a text that does not fit its runs is their failure
            prepare_texts([cfg], store)
    with flop_bar([job.flops for job in jobs], "jobs") as show:
        outcomes = work_through(functools.partial(_do, store, until), jobs, at_once, show)
    return dict(zip(map(str, jobs), outcomes, strict=True))


def _do(store: RunStore, until: float, job: Job, progress: Progress) -> str:
    def look_at_the_clock() -> None:
        if time.monotonic() >= until:
            raise TimeIsUp

    def after_step(step: int, loss: float) -> None:
        if job.cfg and step < job.cfg.train.steps:  # after its last step a run has only to be written
            look_at_the_clock()
            progress(run_flops(job.cfg) * step / job.cfg.train.steps / job.flops)

    finished = True
    try:
        look_at_the_clock()
        if job.cfg:
            run = train(job.cfg, store, checkpoint_seconds=CHECKPOINT_SECONDS, progress=after_step)
            finished = run.status == "finished"
        for one in job.asked:
            look_at_the_clock()
            if finished or not one.of_finished:
                one.measure(store)
    except TimeIsUp:
        return STOPPED
    except OSError:
        raise
    except Exception as error:  # no memory for this one, say
        return " ".join(str(error).split()) or type(error).__name__
    return ""
