"""Ctrl-C in a notebook ends the cell soon, leaves no process at work, and keeps what was computed."""

import contextlib
import time
from pathlib import Path

import psutil
import pytest
from jupyter_client.manager import start_new_kernel

from lib.store.runs import RunStore
from tests.processes import ENDED, until
from tests.runs import small_run, sweeping
from tests.workbooks import ROOT

SOON = 20.0  # seconds from Ctrl-C to the end of the cell, on a machine that has other things to do


class Kernel:
    def __init__(self):
        self.manager, self.client = start_new_kernel(startup_timeout=120, cwd=str(ROOT))

    def run(self, code: str, so_far=None) -> dict:
        """What became of a cell, interrupted as soon as ``so_far()`` is true."""
        # or an interrupted cell would make the kernel refuse, for a moment, the next one too
        asked = self.client.execute(code, stop_on_error=False)
        if so_far is not None:
            until(so_far, within=240)
            self.manager.interrupt_kernel()
        begin = time.monotonic()
        while True:
            reply = self.client.get_shell_msg(timeout=SOON if so_far else 240)
            if reply["parent_header"]["msg_id"] == asked:
                assert so_far is None or time.monotonic() - begin < SOON
                return reply["content"]

    def at_work(self) -> list[str]:
        """Processes below the kernel but the server they are forked from and what keeps count of their resources."""
        kernel = psutil.Process(self.manager.provisioner.pid)
        below = {}
        for child in kernel.children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it has gone meanwhile
                below[child] = " ".join(child.cmdline())
        servers = [child for child in kernel.children() if "forkserver" in below.get(child, "")]
        return [line for child, line in below.items() if child not in servers and "resource_tracker" not in line]


@pytest.fixture(scope="module")
def kernel():
    """One for all cases: it takes seconds to start, and one that was interrupted has to go on being of use."""
    kernel = Kernel()
    yield kernel
    kernel.client.stop_channels()
    kernel.manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_sweep(kernel, tmp_path, jobs):
    """Runs that are there when the cell is interrupted are not made again."""
    runs, store = [small_run(optim={"lr": 1e-3 * (1 + i)}, train={"steps": 20}) for i in range(6)], tmp_path / "runs"

    def done() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in store.glob("[0-9a-f]*/result.json")}

    code = sweeping(runs, store, f"jobs={jobs}")
    reply = kernel.run(code, so_far=lambda: len(done()) >= 2)
    assert reply.get("ename") == "KeyboardInterrupt", reply
    until(lambda: not kernel.at_work(), ENDED, said=kernel.at_work)
    made = done()
    assert 2 <= len(made) < 6, "it was done before it was interrupted"
    reply = kernel.run(code)
    assert reply["status"] == "ok", reply
    assert len(done()) == 6 == len(RunStore(store).runs()) and made.items() <= done().items()
    assert not [path for path in store.iterdir() if path.suffix in (".tmp", ".partial")]
