"""Processes that compute in parallel, one thread each, and that end when their parent does."""

import concurrent.futures
import contextlib
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import ForkServerContext
from typing import Any

import torch

from lib.base.errors import InputError

PATIENCE = 2.0  # seconds that a process has to end by itself


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processes(jobs: int | None) -> int:
    """How many processes to use: ``jobs``; when None or 0, one a core, or one on a GPU. Raises InputError below 0."""
    if jobs is not None and jobs < 0:
        raise InputError(f"jobs: {jobs} processes train nothing, use 0 for one a core")
    return jobs or (1 if torch.cuda.is_available() else cores())


@contextlib.contextmanager
def one_thread_on_cpu() -> Iterator[None]:
    """A CPU run uses one thread, so that its sums have one order; parallelism is one run per core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


_imported_first: dict[str, None] = {}  # each once, in this order


def import_first(module: str) -> None:
    """Has processes that are started from now on begin with this module imported."""
    _imported_first[module] = None


def start() -> ForkServerContext:
    """A context whose processes are forked from a server that runs no threads and has imported what ``import_first``
    named."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_imported_first])
    multiprocessing.resource_tracker.ensure_running()
    # Ctrl-C goes to all processes of a terminal: those that begin now ignore it, and the caller ends them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


@contextlib.contextmanager
def pool(
    jobs: int, initialise: Callable[..., object], *arguments: Any
) -> Iterator[concurrent.futures.ProcessPoolExecutor]:
    """``jobs`` processes, each of which calls ``initialise(*arguments)`` first. An error or an interrupt inside the
    block stops what runs and starts nothing more. Raises InputError where a process was killed."""
    with concurrent.futures.ProcessPoolExecutor(jobs, start(), _begin, (initialise, arguments)) as executor:
        try:
            yield executor
        except BaseException as error:
            running = list((executor._processes or {}).values())
            executor.shutdown(wait=False, cancel_futures=True)
            for worker in running:
                worker.terminate()
            for worker in running:
                worker.join(PATIENCE)
                worker.kill()  # one that is stopped or hangs heeds nothing else
            if isinstance(error, BrokenProcessPool):
                raise InputError(
                    "jobs: a process was killed, maybe for want of memory: use fewer, or start again, what was begun "
                    "goes on from its checkpoints"
                ) from None
            raise


def _begin(initialise: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    initialise(*arguments)


def _end_with_the_parent() -> None:
    """A parent that was killed takes its processes with it; what they trained goes on from their checkpoints."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
