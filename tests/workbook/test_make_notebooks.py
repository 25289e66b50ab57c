"""make runs what is stale, each notebook in a process and a kernel of its own, as if they had been spawned."""

import json
import os
import signal
import subprocess
import sys
import time

import nbformat
import pytest
import yaml

from lib.workbook import warm
from tests.processes import ENDED, until
from tests.workbooks import ROOT, own_environment

#: main in a workbook that has few notebooks; then whether it has had to import torch
MAIN = """
import sys
from pathlib import Path
from lib.workbook import make_notebooks, places, stale, warm
places.ROOT, names = Path(sys.argv[1]), sys.argv[2].split()
places.NOTEBOOKS, places.PARAMS = places.ROOT / "notebooks", places.ROOT / "params"
places.RECORDS, places.LEDGER = places.ROOT / "outputs/records", places.PARAMS / "claims.yaml"
stale.imports = lambda of: set()  # none of lib is in their cells, to be imported first
warm.LATER = ("papermill", "ipykernel.kernelapp", *sys.argv[4:])
make_notebooks.main("smoke", 1, int(sys.argv[3]), names)
print("torch" in sys.modules)
"""


@pytest.fixture
def few(tmp_path):
    """Starts ``main`` for notebooks of one cell."""

    def start(*later: str, at_once: int = 2, **cells: str) -> subprocess.Popen:
        for folder in ("notebooks", "params/smoke"):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "params/claims.yaml").write_text("[]")
        for name, source in cells.items():
            first = nbformat.v4.new_code_cell("# Parameters\njobs: int = 0", metadata={"tags": ["parameters"]})
            notebook = nbformat.v4.new_notebook(cells=[first, nbformat.v4.new_code_cell(source)])
            for number, cell in enumerate(notebook.cells):
                cell.id = str(number)
            notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
            nbformat.write(notebook, tmp_path / "notebooks" / f"{name}.ipynb")
            (tmp_path / f"params/smoke/{name}.yaml").write_text(yaml.safe_dump({"jobs": 1}))
        command = [sys.executable, "-c", MAIN, str(tmp_path), " ".join(cells), str(at_once), *later]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, cwd=ROOT, env=own_environment(), start_new_session=True, **pipes)

    return start


def ended(process: subprocess.Popen) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def test_those_that_fail_say_so_hold_up_no_other_and_alone_are_run_again(few):
    cells = {
        "a": "raise RuntimeError('on purpose')",
        "b": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "c": "print('c ran', jobs)",
    }
    status, out, err = ended(few(**cells))
    killed = "b: its kernel died, killed or out of memory; the same command goes on"
    assert status == 1 and "c ran 1" in out
    assert "a, cell 3:" in err.splitlines() and "on purpose" in err and killed in err.splitlines()
    cells |= {"a": "print('mended')", "b": "print('b, too')"}
    status, out, err = ended(few(**cells))
    assert status == 0 and "mended" in out and "b, too" in out and " ran" not in out and err == ""
    assert ended(few(**cells)) == (0, "False\n", "")  # and nothing had to be imported


LOOK = """
import json, multiprocessing, os, random, signal, sys, threading
names = sorted(name for name in globals() if not name.startswith("_"))
print("LOOK" + json.dumps({
    "names": names, "session": os.getsid(0) == os.getpid(), "parent": multiprocessing.parent_process() is None,
    "main": sys.modules["__main__"].__dict__ is globals(), "folder": os.getcwd(), "input": sys.__stdin__.read(),
    "backend": __import__("matplotlib").get_backend(), "term": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
    "random": random.random(), "warm": WARM in sys.modules}))
"""


@pytest.mark.skipif(not warm.POSSIBLE, reason="kernels are spawned here")
def test_a_forked_kernel_is_like_one_that_is_spawned(few, tmp_path):
    """But for what it need not import."""
    look = LOOK.replace("WARM", "'wave'")
    _, out, err = ended(few("wave", "matplotlib.pyplot", a=look, b=look))
    forked = [json.loads(line[4:]) for line in out.splitlines() if line.startswith("LOOK")]
    code = f"from lib.workbook import execute; from pathlib import Path; execute._run(Path({str(tmp_path)!r}, "
    code += f"'notebooks/a.ipynb'), Path({str(tmp_path / 'copy.ipynb')!r}), {{'profile': 'smoke', 'jobs': 1}}, None)"
    spawned = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=own_environment(), capture_output=True, text=True
    )
    (line,) = [line for line in spawned.stdout.splitlines() if line.startswith("LOOK")]
    alone = json.loads(line[4:])
    assert len({one.pop("random") for one in (*forked, alone)}) == 3, err
    assert [one.pop("warm") for one in (*forked, alone)] == [True, True, False]
    assert forked == [alone, alone]


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_all_that_runs_is_stopped_and_says_so(few, tmp_path, how):
    wait = f"import os, pathlib, time; pathlib.Path({str(tmp_path)!r}, str(os.getpid())).touch(); time.sleep(600)"
    at_once = 1 if how == "Ctrl-C" else 2  # the signal itself reaches all; SIGTERM only the one that has to stop them
    process = few(a=wait, b=wait, **({"c": wait} if at_once == 2 else {}), at_once=at_once)
    pids = until(
        lambda: len(found := [int(p.name) for p in tmp_path.glob("[0-9]*")]) == at_once and found,
        running=lambda: process.poll() is None,
    )
    begin = time.monotonic()
    if how == "Ctrl-C":
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGTERM)
    status, out, err = ended(process)
    assert status == 130 and time.monotonic() - begin < ENDED
    goes_on = "stopped, what was begun goes on from its checkpoints with the same command"
    assert sorted(err.splitlines()) == [f"{name}: {goes_on}" for name in "ab"[:at_once]]
    assert out.count("notebook   ") == at_once
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
