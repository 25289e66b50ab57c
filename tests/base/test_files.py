"""A file appears whole or not at all, and the lock of a killed process is free."""

import os
import signal
import threading
import time

import pytest

from lib.base import files
from tests.lines import one_line
from tests.processes import python


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "a.txt"
    with files.replacing(path) as draft:
        draft.write_text("first")
        assert not path.exists()
    with pytest.raises(RuntimeError), files.replacing(path) as draft:
        draft.write_text("second")
        raise RuntimeError
    assert path.read_text() == "first"
    assert os.listdir(path.parent) == ["a.txt"]


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    path = tmp_path / "lock"
    code = "import sys, time; from pathlib import Path; from lib.base import files\n"
    code += f"with files.lock(Path({str(path)!r})): print('held', flush=True), time.sleep(60)"
    holder = python(code)
    assert holder.stdout.readline().strip() == "held"
    with files.lock(path, wait=False) as mine:
        assert not mine
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with files.lock(path, wait=False) as mine:
        assert mine


def test_a_lock_whose_file_goes_is_still_one_processes(tmp_path):
    """Who waits on a file that its holder removes does not hold the lock beside the one who made the file anew."""
    path, inside, worst = tmp_path / "lock", [], []

    def work():
        for _ in range(50):
            with files.lock(path, stays=False):
                inside.append(1)
                worst.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(worst) == 1 and len(worst) == 200 and not path.exists()


def test_files_that_belong_together_are_those_of_one_process(tmp_path):
    """Whoever looks between two writers sees both files of one of them."""
    code = f"""
from pathlib import Path
from lib.base.files import replacing_together
folder = Path({str(tmp_path)!r})
print("ready", flush=True)
while not (folder / "enough").exists():
    with replacing_together(folder / "a", folder / "b") as drafts:
        for draft in drafts:
            draft.write_text("NAME")
"""
    writers = [python(code.replace("NAME", name)) for name in ("one", "two")]
    for writer in writers:
        assert writer.stdout.readline().strip() == "ready"
    seen, looks, give_up = set(), 0, time.monotonic() + 240
    while looks < 300 or len(seen) < 2:
        assert time.monotonic() < give_up and [writer.poll() for writer in writers] == [None, None]
        with files.lock(tmp_path / ".lock"):
            if (tmp_path / "b").exists():
                seen.add(((tmp_path / "a").read_text(), (tmp_path / "b").read_text()))
                looks += 1
    (tmp_path / "enough").touch()
    assert [writer.wait(timeout=240) for writer in writers] == [0, 0]
    assert seen == {("one", "one"), ("two", "two")}
    before = [(tmp_path / name).read_text() for name in ("a", "b")]
    with pytest.raises(ZeroDivisionError), files.replacing_together(tmp_path / "a", tmp_path / "b") as drafts:
        drafts[0].write_text("after")
        raise ZeroDivisionError
    assert [(tmp_path / name).read_text() for name in ("a", "b")] == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "a", "b", "enough"]


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, says in (("pipe", "is no file"), (".", "is no file"), ("x" * 999, "does not exist")):
        with one_line(says, "check the path", starts="field: "):
            files.need_file("field", tmp_path / name)
