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


# a module of its own: processes that import what they call would wait for all that tests import
CASES = '''
import time
from pathlib import Path
from lib.config import Config
from lib.sweep.measurements import named

class Case(Config):
    x: float = 0.0
    go: str = ""  # a file

    @property
    def flops(self) -> float:
        return 1.0

@named("slow_cases.slow")
def slow(case: Case) -> dict:
    """Four are made at once; what is begun then waits for a file that is there when the interrupt has been sent."""
    go = Path(case.go)
    while len(list(go.parent.glob("measured/*/*.json"))) >= 4 and not go.exists():
        time.sleep(0.02)
    return {"x": case.x}
'''


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


def interrupted_and_finished(kernel: Kernel, code: str, whole, enough: int, go: Path) -> list[Path]:
    """The files of the pattern ``whole``, in the end. Those that are there when the cell is interrupted are not made
    again. ``go`` is there from then on, for cells that wait for it."""

    def done() -> list[Path]:
        return [*go.parent.glob(whole)]

    reply = kernel.run(code, so_far=lambda: len(done()) >= enough)
    assert reply.get("ename") == "KeyboardInterrupt", reply
    until(lambda: not kernel.at_work(), ENDED, said=kernel.at_work)
    made = {path: path.stat().st_mtime_ns for path in done()}
    assert len(made) >= enough
    go.touch()
    reply = kernel.run(code)
    assert reply["status"] == "ok", reply
    assert len(done()) > len(made), "it was done before it was interrupted"
    assert made == {path: path.stat().st_mtime_ns for path in made}
    return done()


@pytest.mark.parametrize("jobs", [1, 2])
def test_measurements(kernel, tmp_path, jobs):
    (tmp_path / "slow_cases.py").write_text(CASES)
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from lib.sweep.measurements import measure
from lib.store.runs import RunStore
from slow_cases import Case, slow
cases = [Case(x=x, go={str(tmp_path / "go")!r}) for x in range(12)]
found = measure(slow, cases, RunStore({str(tmp_path / "runs")!r}), jobs={jobs})
assert [values["x"] for values in found] == list(range(12))
"""
    assert len(interrupted_and_finished(kernel, code, "measured/slow_cases.slow/*.json", 4, tmp_path / "go")) == 12


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_sweep(kernel, tmp_path, jobs):
    runs = [small_run(optim={"lr": 1e-3 * (1 + i)}, train={"steps": 20}) for i in range(6)]
    code = sweeping(runs, tmp_path / "runs", f"jobs={jobs}")
    assert len(interrupted_and_finished(kernel, code, "runs/[0-9a-f]*/result.json", 2, tmp_path / "go")) == 6
    assert len(RunStore(tmp_path / "runs").runs()) == 6
    assert not [path for path in Path(tmp_path / "runs").iterdir() if path.suffix in (".tmp", ".partial")]
