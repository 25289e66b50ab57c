"""make runs what is stale once, each notebook in a process and a kernel of its own, as if they had been spawned, and
says in one line how one failed or how long it takes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

from lib.base.errors import DiskFull, InputError
from lib.workbook import make_notebooks, places
from lib.workbook.stale import Now
from tests.processes import ENDED, until
from tests.workbooks import ROOT, moved, own_environment

#: main in a workbook that has few notebooks; then whether it has had to import torch
MAIN = """
import sys
from pathlib import Path
from lib.workbook import make_notebooks, places, stale
places.ROOT, names = Path(sys.argv[1]), sys.argv[2].split()
places.NOTEBOOKS, places.PARAMS = places.ROOT / "notebooks", places.ROOT / "params"
places.RECORDS, places.LEDGER = places.ROOT / "outputs/records", places.PARAMS / "claims.yaml"
stale.imports = lambda of: set()  # none of lib is in their cells, to be imported first
make_notebooks.LATER = ("papermill", "ipykernel.kernelapp", *sys.argv[4:])
make_notebooks.main("smoke", 1, int(sys.argv[3]), names)
print("torch" in sys.modules)
"""


def written(folder: Path, name: str, source: str) -> None:
    """A notebook of a workbook, whose last cell is ``source``, and its parameters at smoke."""
    for one in ("notebooks", "params/smoke"):
        (folder / one).mkdir(parents=True, exist_ok=True)
    first = nbformat.v4.new_code_cell("# Parameters\njobs: int = 0", metadata={"tags": ["parameters"]}, id="0")
    notebook = nbformat.v4.new_notebook(cells=[first, nbformat.v4.new_code_cell(source, id="1")])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, folder / "notebooks" / f"{name}.ipynb")
    (folder / f"params/smoke/{name}.yaml").write_text("jobs: 1")
    (folder / "params/claims.yaml").write_text("[]")


@pytest.fixture
def few(tmp_path):
    """Starts ``main`` for notebooks of one cell."""

    def start(*later: str, at_once: int = 2, **cells: str) -> subprocess.Popen:
        for name, source in cells.items():
            written(tmp_path, name, source)
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
import json, os, random, signal, sys, threading
names = sorted(name for name in globals() if not name.startswith("_"))
print("LOOK" + json.dumps({
    "names": names, "session": os.getsid(0) == os.getpid(), "main": sys.modules["__main__"].__dict__ is globals(),
    "folder": os.getcwd(), "input": os.read(0, 1).decode(), "backend": __import__("matplotlib").get_backend(),
    "term": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "blocked": [*signal.pthread_sigmask(0, ())],
    "random": random.random(), "warm": WARM in sys.modules}))
"""


@pytest.mark.skipif(not make_notebooks.FORKS, reason="kernels are spawned here")
def test_a_forked_kernel_is_like_one_that_is_spawned(few, tmp_path):
    """But for what it need not import."""
    look = LOOK.replace("WARM", "'wave'")
    _, out, err = ended(few("wave", "matplotlib.pyplot", a=look, b=look))
    forked = [json.loads(line[4:]) for line in out.splitlines() if line.startswith("LOOK")]
    code = f"from lib.workbook.make_notebooks import _run; from pathlib import Path; _run(Path({str(tmp_path)!r}, "
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


def ran(code: str) -> subprocess.CompletedProcess:
    code = f"import os; from lib.workbook import make_notebooks; Kernel = make_notebooks.Kernel\n{code}"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)


@pytest.mark.skipif(not make_notebooks.FORKS, reason="nothing is forked here")
def test_a_kernel_that_is_not_begun_ends_with_its_parent():
    done = ran("k = Kernel(); print(k.poll(), flush=True); k.told.close(); k.join(); print(k.wait(), k.poll())")
    assert done.stdout.splitlines() == ["None", "0 0"] and done.stderr == ""
    assert ran("Kernel(); os._exit(0)").returncode == 0  # else it would hold the pipe that is waited for


@pytest.mark.skipif(not make_notebooks.FORKS, reason="nothing is forked here")
def test_a_kernel_and_a_process_that_were_stopped_end():
    """They heed no other signal. A kernel leads a group, with all that it starts."""
    done = ran("""import multiprocessing, signal, time
make_notebooks.PATIENCE = 0.2
kernel, process = Kernel(), multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
process.start()
while os.getpgid(kernel.pid) != kernel.pid:
    time.sleep(0.01)
os.kill(kernel.pid, signal.SIGSTOP)
os.kill(process.pid, signal.SIGSTOP)
kernel.end()
kernel.join()
make_notebooks._end()
process.join()
print(kernel.wait())
""")
    assert done.stdout.splitlines() == ["-9"] and done.stderr == ""


# ---- one notebook ----------------------------------------------------------------------------------------------------


ERRORS = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom lib.base import errors\n"


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A workbook of one notebook whose last cell is ``tiny(source)``; where it is."""
    moved(monkeypatch, tmp_path)

    def write(source: str):
        written(tmp_path, "tiny", source)
        return tmp_path / "outputs" / "notebooks" / "smoke"

    return write


def run(jobs=3, outputs=None):
    make_notebooks.execute("tiny", jobs, Now("smoke", ["tiny"], outputs or places.ROOT / "outputs"))


def test_a_notebook_runs_once_for_what_it_is_made_from(tiny, capsys):
    folder = tiny("print('jobs', jobs)")
    now = Now("smoke", ["tiny"], places.ROOT / "outputs")
    tiny("print('and now', jobs)")  # one that changes while it runs is run again
    make_notebooks.execute("tiny", 3, now)
    assert "and now 3" in capsys.readouterr().out
    copy = nbformat.read(folder / "tiny.ipynb", 4)
    assert copy.cells[-1].outputs[0].text == "and now 3\n"
    for said in ("and now 4", ""):
        run(4)
        printed = capsys.readouterr().out
        assert said in printed and bool(printed) == bool(said)


def test_one_with_nothing_to_draw_is_asked_again(tiny, capsys):
    tiny(f"{ERRORS}raise errors.NotThere('train: nothing is there')")
    run()
    run()
    assert capsys.readouterr().out.count("not yet    tiny: train: nothing is there") == 2


def test_a_cell_that_fails_leaves_no_mark_and_says_its_line(tiny):
    folder = tiny(f"{ERRORS}raise errors.InputError('lr: mend it')")
    folder.mkdir(parents=True)
    (folder / ".tiny.done").write_text("12 34")
    with pytest.raises(make_notebooks.Failed, match=r"^tiny, cell 3:\nInputError: lr: mend it$"):
        run()
    assert not (folder / ".tiny.done").exists() and "lr: mend it" in (folder / "tiny.ipynb").read_text()


def test_kernels_share_no_port_and_leave_no_socket(tiny, capsys):
    """Of two that start at once on free ports, one may find its port taken."""
    tiny("from ipykernel.connect import get_connection_info; print(get_connection_info())")
    run()
    info = json.loads(capsys.readouterr().out.split("\n", 1)[1])
    assert info["transport"] == "ipc" and Path(info["ip"]).is_absolute() and not Path(info["ip"]).parent.exists()


def test_a_disk_that_cannot_be_written_is_said_in_one_line(tiny, small_disk):
    tiny("print(('x' * 99 + '\\n') * 1000)")  # the client takes its time for a line of so many
    with pytest.raises(DiskFull, match=r"no space left while writing .*tiny.ipynb"), small_disk.full(leave=40_000):
        run(1, small_disk.path)
    run(1, small_disk.path)
    tiny("another")
    with small_disk.read_only(), pytest.raises(InputError, match=r"outputs: .* cannot be written to"):
        run(1, small_disk.path)
