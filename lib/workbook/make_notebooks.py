"""Runs for make the notebooks that are stale, each in a process of its own, so many at a time, and says in one line how
one ended that did not end well.

A notebook is run once for what it is made from, however many processes want it at the same time.

Kernels are forked from a process that has imported what notebooks import: else each takes seconds to start. A kernel is
a process, a session and a namespace of its own, as one that is spawned. It is forked before its parent has had a
thread, a socket or an event loop; where that is not safe (macOS), kernels are spawned.
"""

import contextlib
import gc
import importlib
import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from types import FrameType
from typing import Any, cast

from traitlets.config import Config

from lib.base import files
from lib.base.errors import NotThere, OneLine, in_one_line
from lib.workbook import parameters, places
from lib.workbook.stale import Now

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 8.0  # seconds: a kernel is given five to end by itself
FORKS = sys.platform == "linux"
#: what is imported inside functions, beside what notebooks and lib import as they begin
LATER = ("papermill", "ipykernel.kernelapp", "matplotlib.pyplot", "pandas", "pyarrow.parquet", "scipy.optimize")


def main(profile: str, jobs: int, at_once: int, names: Sequence[str]) -> None:
    """For the Makefile. A notebook that fails says why, and holds up no other; then this exits with status 1. SIGTERM
    stops it and what runs as Ctrl-C does."""
    os.environ.setdefault("TQDM_MININTERVAL", "0.1")  # a bar moves in a terminal; of logs the Makefile says more
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
    if stale and FORKS:
        load(set().union(*(now.modules[name] for name in stale)))
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
    kernel = Kernel() if FORKS else None

    def run() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # one that has come meanwhile ends it here
        execute(name, jobs, now, stale, kernel)

    try:
        in_one_line(run, stopped=f"{name}: stopped, what was begun goes on from its checkpoints with the same command")
    finally:
        if kernel:
            kernel.end()


# ---- one notebook ----------------------------------------------------------------------------------------------------


class Failed(OneLine):
    """A cell raised, or the kernel died."""


def execute(name: str, jobs: int, now: Now, chosen: Sequence[str] = (), kernel: "Kernel | None" = None) -> None:
    """Runs the notebook ``name`` with its parameters at a profile, and prints what it prints.

    jobs: replaces the parameter of this name where there is one. now: what it is made from. chosen: all notebooks that
    make runs. kernel: one that waits; else one is spawned.

    The executed copy grows in outputs/notebooks/<profile>/. When the notebook has ended well, it is marked beside the
    copy; where it is marked already, as another process may have run it meanwhile, nothing is run. One that shall not
    train and has nothing to draw says so, and is asked again another time. Raises Failed, and DiskFull or InputError
    where the copy cannot be written."""
    with files.lock(now.folder / f".{name}.lock"):
        if now.fresh(name):
            return
        files.remove(now.mark(name))
        which = f" ({chosen.index(name) + 1} of {len(chosen)})" if chosen else ""
        print(f"notebook   {name}{which}\n", end="", flush=True)  # in one piece: others print at the same time
        given: dict[str, Any] = {"profile": now.profile}
        if "jobs" in parameters.kind_of(name).model_fields:
            given["jobs"] = jobs
        with files.disk_full_says(now.folder / f"{name}.ipynb"):
            try:
                _run(places.NOTEBOOKS / f"{name}.ipynb", now.folder / f"{name}.ipynb", given, kernel)
            except NotThere as error:
                print(f"not yet    {name}: {error}", flush=True)
                now.done(name, drawn=False)
            else:
                now.done(name)


def _run(source: Path, copy: Path, given: dict[str, Any], kernel: "Kernel | None") -> None:
    """Executes a notebook into ``copy``, and prints what it prints. Raises Failed, or the notebook's NotThere."""
    without_grammar()
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
                **({"kernel_manager_class": manager_of(kernel)} if kernel else {}),
            )
    except PapermillExecutionError as error:
        if error.ename == NotThere.__name__:
            raise NotThere(error.evalue) from None
        raise Failed("\n".join([f"{source.stem}, cell {error.exec_count}:", *error.traceback])) from None
    except DeadKernelError:
        raise Failed(f"{source.stem}: its kernel died, killed or out of memory; the same command goes on") from None


# ---- kernels ---------------------------------------------------------------------------------------------------------


def load(modules: Iterable[str]) -> None:
    """Imports these and LATER. One that cannot be imported is left to the notebook that needs it, which says so."""
    without_grammar()
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")  # a kernel's; read when imported
    for module in (*LATER, *modules):
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    gc.freeze()  # what is shared by all need not be looked through, and copied, by each


def without_grammar() -> None:
    """Makes the first import of nbformat two seconds faster.

    nbformat checks notebooks by jsonschema, which loads a grammar of web addresses where it finds one; it goes without
    where it does not, and no field of a notebook is such an address."""
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]


class Kernel(ForkProcess):
    """A process that waits to become a kernel; its parent's end is its own. ``jupyter_client`` asks of it what it asks
    of a ``subprocess.Popen``."""

    stdin = stdout = stderr = None

    def __init__(self) -> None:
        super().__init__()
        self._orders, self.told = multiprocessing.Pipe(duplex=False)
        self.start()
        self._orders.close()

    def run(self) -> None:
        self.told.close()
        os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if signal.getsignal(signal.SIGTERM) != signal.SIG_IGN:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            arguments, environment = self._orders.recv()
        except EOFError:
            return
        os.environ.update(environment)
        from ipykernel.kernelapp import IPKernelApp

        IPKernelApp.launch_instance([*arguments, f"--IPKernelApp.parent_handle={os.getppid()}"])
        os._exit(0)

    def poll(self) -> int | None:
        return self.exitcode

    wait = poll  # it is asked when the kernel has ended

    def send_signal(self, number: int) -> None:
        """To it and its processes, which are a group."""
        if self.is_alive():
            self._to_group(number)

    def end(self) -> None:
        """Ends what is left of them: one that was stopped heeds nothing else."""
        self.kill()  # which has no group yet, maybe
        self._to_group(signal.SIGKILL)

    def _to_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(cast(int, self.pid), number)


def manager_of(kernel: Kernel) -> Any:
    """A class of kernel managers that begin this kernel, where a notebook asks for the Python that runs here."""
    from jupyter_client.manager import AsyncKernelManager

    class Manager(AsyncKernelManager):
        async def _async_launch_kernel(self, kernel_cmd: list[str], **how: Any) -> None:
            provisioner: Any = self.provisioner
            if kernel_cmd[:3] != [sys.executable, "-m", "ipykernel_launcher"]:
                return await super()._async_launch_kernel(kernel_cmd, **how)
            kernel.told.send((kernel_cmd[3:], how["env"]))
            provisioner.process = kernel
            self._reconcile_connection_info(provisioner.connection_info)

    return Manager
