"""Runs one notebook for make, and says in one line how it ended where it did not end well.

It is run once for what it is made from, however many processes want it at the same time.
"""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from traitlets.config import Config

from lib.base import files
from lib.base.errors import NotThere
from lib.workbook import parameters, places, warm
from lib.workbook.stale import Now


class Failed(Exception):
    """A cell raised, or the kernel died."""


def execute(name: str, jobs: int, now: Now, chosen: Sequence[str] = (), kernel: warm.Kernel | None = None) -> None:
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
        line = f"notebook   {name}{f' ({chosen.index(name) + 1} of {len(chosen)})' if chosen else ''}\n"
        print(line, end="", flush=True)  # in one piece: notebooks that run at the same time print too
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
