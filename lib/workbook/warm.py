"""Kernels for make, forked from a process that has imported what notebooks import: else each takes seconds to start.

A kernel is a process, a session and a namespace of its own, as one that is spawned. It is forked before its parent has
had a thread, a socket or an event loop; where that is not safe (macOS), kernels are spawned.
"""

import contextlib
import gc
import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any

POSSIBLE = sys.platform == "linux"
#: what is imported inside functions, beside what notebooks and lib import as they begin
LATER = ("papermill", "ipykernel.kernelapp", "matplotlib.pyplot", "pandas", "pyarrow.parquet", "scipy.optimize")


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


def fork(function: Callable[[], object]) -> int:
    """The id of a process that calls this, and ends as Python would."""
    sys.stdout.flush()
    sys.stderr.flush()
    if pid := os.fork():
        return pid
    status = 1
    try:
        function()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(bool(end.code))
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")  # in one piece: others stop at the same time
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


class Kernel:
    """A process that waits to become a kernel; its parent's end is its own. ``jupyter_client`` asks of it what it asks
    of a ``subprocess.Popen``."""

    stdin = stdout = stderr = None
    returncode: int | None = None

    def __init__(self) -> None:
        orders, self._told = os.pipe()
        self.pid = fork(lambda: _become_a_kernel(orders, self._told))
        os.close(orders)

    def begin(self, arguments: list[str], environment: dict[str, str], folder: str | None) -> None:
        with open(self._told, "w", encoding="utf-8") as told:
            json.dump([arguments, environment, folder], told)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self) -> int:
        while (status := self.poll()) is None:
            time.sleep(0.02)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def end(self) -> None:
        """Ends what is left of it and of its processes, which are a group: one that was stopped heeds nothing else."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def _become_a_kernel(orders: int, told: int) -> None:
    os.close(told)
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGTERM) != signal.SIG_IGN:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with open(orders, encoding="utf-8") as read:
        order = read.read()
    if not order:
        return
    arguments, environment, folder = json.loads(order)
    os.environ.update(environment)
    if folder:
        os.chdir(folder)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    from ipykernel.kernelapp import IPKernelApp

    IPKernelApp.launch_instance([*arguments, f"--IPKernelApp.parent_handle={os.getppid()}"])
    os._exit(0)


def manager_of(kernel: Kernel) -> Any:
    """A class of kernel managers that begin this kernel, where a notebook asks for the Python that runs here."""
    from jupyter_client.manager import AsyncKernelManager

    class Manager(AsyncKernelManager):
        async def _async_launch_kernel(self, kernel_cmd: list[str], **how: Any) -> None:
            provisioner: Any = self.provisioner
            if kernel_cmd[:3] != [sys.executable, "-m", "ipykernel_launcher"]:
                return await super()._async_launch_kernel(kernel_cmd, **how)
            kernel.begin(kernel_cmd[3:], how["env"], how.get("cwd"))
            provisioner.process, provisioner.pid, provisioner.pgid = kernel, kernel.pid, kernel.pid
            self._reconcile_connection_info(provisioner.connection_info)

    return Manager
