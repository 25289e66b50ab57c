"""Things are worked through in their order, by one process or several, and what is done of each is shown."""

import os
import re
import signal
import time

import pytest

from lib.sweep import jobs
from tests.processes import alive, until


def square(x, progress):
    progress(0.5)
    if x < 0:
        raise ValueError(f"{x} is negative")
    return x * x, os.getpid()


@pytest.mark.parametrize("at_once", [1, 2])
def test_results_come_in_the_order_of_things_and_each_is_shown_to_its_end(at_once):
    shown = {}
    found = jobs.work_through(square, [3, 1, 2], at_once, lambda i, share: shown.update({i: share}))
    assert [x for x, _ in found] == [9, 1, 4] and shown == {0: 1.0, 1: 1.0, 2: 1.0}
    assert ({pid for _, pid in found} == {os.getpid()}) == (at_once == 1)


@pytest.mark.parametrize("at_once", [1, 2])
def test_the_first_error_ends_all(at_once):
    with pytest.raises(ValueError, match="-1 is negative"):
        jobs.work_through(square, [3, -1, 2], at_once, lambda i, share: None)


def stop_itself(x, progress):
    if x == 0:
        os.kill(os.getpid(), signal.SIGSTOP)


def test_a_process_that_is_stopped_is_named_and_ends_with_an_interrupt(monkeypatch, capsys):
    monkeypatch.setattr(jobs, "SILENCE", 1.0)
    begin, said = time.monotonic(), []

    def show(i, share):
        said.append(capsys.readouterr().out)
        if time.monotonic() > begin + 60 or "computes nothing" in "".join(said):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jobs.work_through(stop_itself, [0, 1], 2, show)
    process = re.search(r"process (\d+), at 1 of 2, computes nothing", "".join(said))[1]
    until(lambda: not alive(int(process)), 10)


def test_a_bar_counts_what_each_thing_costs(capsys):
    with jobs.flop_bar([30.0, 10.0], "things") as show:
        show(0, 0.5)
        show(1, 1.0)
        show(0, 1.0)
    assert "40.0/40.0" in capsys.readouterr().err
