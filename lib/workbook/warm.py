"""Kernels for make, forked from a process that has imported what notebooks import: else each takes seconds to start.

A kernel is a process, a session and a namespace of its own, as one that is spawned. It is forked before its parent has
had a thread, a socket or an event loop; where that is not safe (macOS), kernels are spawned.
"""

import contextlib
import gc
import importlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterable
from multiprocessing.context import ForkProcess
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
            arguments, environment, folder = self._orders.recv()
        except EOFError:
            return
        os.environ.update(environment)
        os.chdir(folder or ".")
        from ipykernel.kernelapp import IPKernelApp

        IPKernelApp.launch_instance([*arguments, f"--IPKernelApp.parent_handle={os.getppid()}"])
        os._exit(0)

    def poll(self) -> int | None:
        return self.exitcode

    wait = poll  # it is asked when the kernel has ended

    def send_signal(self, number: int) -> None:
        """To it and its processes, which are a group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.ident or 0, number)

    def end(self) -> None:
        """Ends what is left of them: one that was stopped heeds nothing else."""
        self.kill()  # which has no group yet, maybe
        self.send_signal(signal.SIGKILL)


def manager_of(kernel: Kernel) -> Any:
    """A class of kernel managers that begin this kernel, where a notebook asks for the Python that runs here."""
    from jupyter_client.manager import AsyncKernelManager

    class Manager(AsyncKernelManager):
        async def _async_launch_kernel(self, kernel_cmd: list[str], **how: Any) -> None:
            provisioner: Any = self.provisioner
            if kernel_cmd[:3] != [sys.executable, "-m", "ipykernel_launcher"]:
                return await super()._async_launch_kernel(kernel_cmd, **how)
            kernel.told.send((kernel_cmd[3:], how["env"], how.get("cwd")))
            provisioner.process = kernel
            self._reconcile_connection_info(provisioner.connection_info)

    return Manager
