"""Runs for make the notebooks that are stale, each in a process of its own, so many at a time, and says in one line how
one ended that did not end well.

A notebook is run once for what it is made from, however many processes want it at the same time.
"""

import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from types import FrameType
from typing import Any

from traitlets.config import Config

from lib.base import files
from lib.base.errors import NotThere, OneLine, in_one_line
from lib.workbook import parameters, places, warm
from lib.workbook.stale import Now

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 8.0  # seconds: a kernel is given five to end by itself


def main(profile: str, jobs: int, at_once: int, names: Sequence[str]) -> None:
    """For the Makefile. A notebook that fails says why, and holds up no other; then this exits with status 1. SIGTERM
    stops it and what runs as Ctrl-C does."""
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup and some shells want them ignored
            signal.signal(number, _stop)
    in_one_line(_run_stale, profile, jobs, at_once, names)


def _stop(number: int, frame: FrameType | None) -> None:
    # shutting kernels down takes a moment, and shall be left alone; SIG_IGN would complain of a signal come meanwhile
    for later in SIGNALS:
        signal.signal(later, lambda *_: None)
    raise KeyboardInterrupt


def _run_stale(profile: str, jobs: int, at_once: int, names: Sequence[str]) -> None:
    now = Now(profile, names, places.ROOT / "outputs")
    stale = [name for name in names if not now.fresh(name)]
    if stale and warm.POSSIBLE:
        warm.load(set().union(*(now.modules[name] for name in stale)))
    _together([partial(_one, name, jobs, now, stale) for name in stale], at_once)


def _together(functions: Sequence[Callable[[], None]], at_once: int) -> None:
    """Calls each in a process that is forked for it, at most so many at a time, and no more once make is gone. Exits
    with 1 where one fails."""
    make, processes = os.getppid(), [ForkProcess(target=function) for function in functions]
    try:
        for process in processes:
            while len(running := multiprocessing.active_children()) >= at_once:
                wait([one.sentinel for one in running])
            if os.getppid() != make:
                break
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until it is known what to stop
            process.start()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        for one in multiprocessing.active_children():
            one.join()
    except KeyboardInterrupt:
        _end()
        raise SystemExit(130) from None
    if any(process.exitcode for process in processes):
        raise SystemExit(1)


def _end() -> None:
    """Ends the processes that run, and kills what has not ended in PATIENCE seconds: it hangs, or was stopped."""
    running, until = multiprocessing.active_children(), time.monotonic() + PATIENCE
    for process in running:
        process.terminate()
    for process in running:
        process.join(max(0.0, until - time.monotonic()))
        process.kill()


def _one(name: str, jobs: int, now: Now, stale: Sequence[str]) -> None:
    """Runs a notebook in this process, and its kernel in one that is forked from it, or spawned where that is not
    safe."""
    kernel = warm.Kernel() if warm.POSSIBLE else None
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    stopped = f"{name}: stopped, what was begun goes on from its checkpoints with the same command"
    try:
        in_one_line(execute, name, jobs, now, stale, kernel, stopped=stopped)
    finally:
        if kernel:
            kernel.end()


# ---- one notebook ----------------------------------------------------------------------------------------------------


class Failed(OneLine):
    """A cell raised, or the kernel died."""


def execute(name: str, jobs: int, now: Now, chosen: Sequence[str] = (), kernel: warm.Kernel | None = None) -> None:
    """Runs the notebook ``name`` with its parameters at a profile, and prints what it prints.

    jobs: replaces the parameter of this name where there is one. now: what it is made from. chosen: all notebooks that
    make runs. kernel: one that waits; else one is spawned.

    The executed copy grows in outputs/notebooks/<profile>/. When the notebook has ended well, it is marked beside the
    copy; where it is marked already, as another process may have run it meanwhile, nothing is run. One that shall not
    train and has nothing to draw says so, and is asked again another time. Raises Failed, and InputError where the copy
    cannot be written."""
    with files.lock(now.folder / f".{name}.lock"):
        if now.fresh(name):
            return
        files.remove(now.mark(name))
        line = f"notebook   {name}{f' ({chosen.index(name) + 1} of {len(chosen)})' if chosen else ''}\n"
        print(line, end="", flush=True)  # in one piece: notebooks that run at the same time print too
        given: dict[str, Any] = {"profile": now.profile}
        if "jobs" in parameters.kind_of(name).model_fields:
            given["jobs"] = jobs
        try:
            _run(places.NOTEBOOKS / f"{name}.ipynb", now.folder / f"{name}.ipynb", given, kernel)
        except NotThere as error:
            print(f"not yet    {name}: {error}", flush=True)
            now.done(name, drawn=False)
        else:
            now.done(name)


def _run(source: Path, copy: Path, given: dict[str, Any], kernel: warm.Kernel | None) -> None:
    """Executes a notebook into ``copy``, and prints what it prints. Raises Failed, or the notebook's NotThere."""
    warm.without_grammar()
    import papermill  # takes a while, and a signal may come before
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    for logger in ("papermill", "asyncio"):  # what they say of a cell that was stopped, ``Failed`` says in a line
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    # a socket's path has a hundred characters at most
    place = "/tmp" if len(gettempdir()) > 60 else None
    try:
        with TemporaryDirectory(prefix="kernel-", dir=place, ignore_cleanup_errors=True) as sockets:
            papermill.execute_notebook(
                source,
                copy,
                given,
                progress_bar=False,
                stdout_file=sys.stdout,
                stderr_file=sys.stderr,
                coalesce_streams=True,  # the copy keeps the last state of a progress bar, not hundreds
                # a kernel with torch takes a second to end gracefully; one without processes of its own need not
                shutdown_kernel="immediate" if given.get("jobs") == 1 else "graceful",
                # over files: a free TCP port may be another's by the time the kernel opens it
                config=Config(KernelManager={"transport": "ipc", "connection_file": f"{sockets}/kernel.json"}),
                **({"kernel_manager_class": warm.manager_of(kernel)} if kernel else {}),
            )
    except PapermillExecutionError as error:
        if error.ename == NotThere.__name__:
            raise NotThere(error.evalue) from None
        raise Failed("\n".join([f"{source.stem}, cell {error.exec_count}:", *error.traceback])) from None
    except DeadKernelError:
        raise Failed(f"{source.stem}: its kernel died, killed or out of memory; the same command goes on") from None
