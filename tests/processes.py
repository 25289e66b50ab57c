"""Other processes: interpreters of another user, whether they are alive, and waiting for what they do."""

import subprocess
import sys
import time
from collections.abc import Callable

from tests.workbooks import ROOT


def python(code: str, **options) -> subprocess.Popen:
    """A fresh interpreter running ``code``, as another user's process would."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, **options}
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, **options)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended may wait for long to be noticed."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return bool(state) and not state.startswith("Z")


ENDED = 60.0  # seconds in which everything is gone after a signal, on a machine that does other things too


def until(
    happens: Callable,
    within: float = 120,
    running: Callable[[], bool] = lambda: True,
    said: Callable[[], object] = lambda: "nothing",
    pause: float = 0.02,
):
    """The first true value of ``happens()``. Fails, with what is ``said()`` then, after so many seconds or when what is
    ``running()`` ends."""
    give_up = time.monotonic() + within
    while not (value := happens()):
        assert running(), f"what it waits for has ended: {said()}"
        assert time.monotonic() < give_up, f"it has not come in {within} seconds: {said()}"
        time.sleep(pause)
    return value
