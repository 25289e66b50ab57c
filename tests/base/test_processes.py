"""A pool has the processes asked for, fails in one line, and ends with a parent that is killed."""

import os
import time

import pytest
import torch

from lib.base import processes
from lib.base.errors import InputError
from tests.processes import ENDED, alive, python, until


def test_as_many_processes_as_asked_for_or_as_there_are_cores(monkeypatch):
    assert processes.processes(3) == 3
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert processes.processes(None) == processes.processes(0) == processes.cores() == len(os.sched_getaffinity(0))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert processes.processes(None) == 1  # a card is shared badly


def test_what_is_to_be_imported_first_is_there_when_a_process_begins():
    code = """
from lib.base import processes
processes.import_first("colorsys")
with processes.pool(1, int) as pool:
    print(*(pool.submit(eval, f"'{name}' in __import__('sys').modules").result() for name in ("colorsys", "chunk")))
"""
    assert python(code).communicate(timeout=240)[0].split() == ["True", "False"]


def test_an_error_stops_what_runs():
    begin = time.monotonic()
    with pytest.raises(ValueError, match="enough"), processes.pool(2, torch.set_num_threads, 1) as pool:
        pool.submit(os.getpid).result()
        pool.submit(time.sleep, 60)
        raise ValueError("enough")
    assert time.monotonic() - begin < 30


def test_a_process_that_is_killed_is_said_in_one_line():
    says = r"^jobs: a process was killed, .* start again, what was begun goes on"
    with pytest.raises(InputError, match=says), processes.pool(1, torch.set_num_threads, 1) as pool:
        pool.submit(os._exit, 1).result()


def test_processes_end_with_a_parent_that_is_killed():
    parent = python(
        "import os, time, torch\n"
        "from lib.base import processes\n"
        "if __name__ == '__main__':\n"
        "    with processes.pool(1, torch.set_num_threads, 1) as pool:\n"
        "        print(pool.submit(os.getpid).result(), flush=True)\n"
        "        pool.submit(time.sleep, 60).result()\n"
    )
    worker = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    until(lambda: not alive(worker), ENDED)
