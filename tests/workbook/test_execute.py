"""make runs a notebook once for what it was made from, and says in one line how it failed or how long it takes."""

import json
from pathlib import Path

import nbformat
import pytest
import yaml

from lib.base.errors import DiskFull, InputError
from lib.workbook import execute, places
from lib.workbook.stale import Now
from tests.workbooks import ROOT, moved


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A workbook of one notebook whose last cell is ``tiny(source)``; where it is."""
    moved(monkeypatch, tmp_path)

    def write(source: str):
        cells = [nbformat.v4.new_code_cell("# Parameters\njobs: int = 0"), nbformat.v4.new_code_cell(source)]
        cells[0].metadata["tags"] = ["parameters"]
        notebook = nbformat.v4.new_notebook(cells=cells)
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        for folder in ("notebooks", "params/smoke"):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, tmp_path / "notebooks" / "tiny.ipynb")
        (tmp_path / "params/smoke/tiny.yaml").write_text(yaml.safe_dump({"jobs": 1}))
        (tmp_path / "params/claims.yaml").write_text("[]")
        return tmp_path / "outputs" / "notebooks" / "smoke"

    return write


def run(jobs=3, outputs=None):
    execute.execute("tiny", jobs, Now("smoke", ["tiny"], outputs or places.ROOT / "outputs"))


def test_a_notebook_runs_once_for_what_it_is_made_from(tiny, capsys):
    folder = tiny("print('jobs', jobs)")
    now = Now("smoke", ["tiny"], places.ROOT / "outputs")
    tiny("print('and now', jobs)")  # one that changes while it runs is run again
    execute.execute("tiny", 3, now)
    assert "and now 3" in capsys.readouterr().out
    copy = nbformat.read(folder / "tiny.ipynb", 4)
    assert copy.cells[-1].outputs[0].text == "and now 3\n"
    for said in ("and now 4", ""):
        run(4)
        printed = capsys.readouterr().out
        assert said in printed and bool(printed) == bool(said)


def test_one_with_nothing_to_draw_is_asked_again(tiny, capsys):
    tiny(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom lib.base.errors import NotThere\n"
        "raise NotThere('train: nothing is there')"
    )
    run()
    run()
    assert capsys.readouterr().out.count("not yet    tiny: train: nothing is there") == 2


def test_a_cell_that_fails_leaves_no_mark_and_says_its_line(tiny):
    folder = tiny(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom lib.base.errors import InputError\n"
        "raise InputError('lr: mend it')"
    )
    folder.mkdir(parents=True)
    (folder / ".tiny.done").write_text("12 34")
    with pytest.raises(execute.Failed, match=r"^tiny, cell 3:\nInputError: lr: mend it$"):
        run()
    assert not (folder / ".tiny.done").exists() and "lr: mend it" in (folder / "tiny.ipynb").read_text()


def test_a_kernel_that_is_killed_is_said_in_one_line(tiny):
    tiny("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(execute.Failed, match=r"^tiny: its kernel died, killed or out of memory; [^\n]*goes on$"):
        run()


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
