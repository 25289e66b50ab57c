"""Other processes: interpreters of another user, JupyterLab, whether they are alive, and waiting for what they do."""

import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from tests.workbooks import ROOT


def python(code: str, **options) -> subprocess.Popen:
    """A fresh interpreter running ``code``, as another user's process would."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, **options}
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, **options)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended may wait for long to be noticed."""
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


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


PLACES = ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR", "LAB_SETTINGS_DIR", "LAB_WORKSPACES_DIR")  # of Jupyter's own files


@contextlib.contextmanager
def lab(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen, dict]]:
    """The server that ``make lab`` starts where the environment asks for an empty token, with Jupyter's own files in a
    folder, and what it says of itself."""
    recipe = subprocess.run(["make", "-n", "lab", "TORCH=cpu"], cwd=ROOT, capture_output=True, text=True, check=True)
    (command,) = [line for line in recipe.stdout.splitlines() if "jupyter lab" in line]
    own = {f"JUPYTER{'' if place.startswith('LAB') else '_'}{place}": str(folder / place) for place in PLACES}
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(
            [*shlex.split(command), "--no-browser", "--port", "0", *options],
            cwd=ROOT,
            env={**os.environ, **own, "JUPYTER_TOKEN": ""},
            stdout=log,
            stderr=log,
        )
    try:
        note = folder / "RUNTIME_DIR" / f"jpserver-{server.pid}.json"
        said = until(lambda: note.exists() and note.read_text(), running=lambda: server.poll() is None)
        yield server, json.loads(said)
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:  # it hangs when a kernel was just starting; kernels end with it
            server.kill()
            server.wait()
