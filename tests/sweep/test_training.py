"""A sweep trains only what is missing, to the same numbers on any processes, and goes on after a kill or limit."""

import signal
import subprocess

import psutil
import pytest

from lib.base import files
from lib.base.errors import InputError
from lib.store.runs import RunStore
from lib.sweep import training
from lib.sweep.cost import missing
from lib.sweep.training import sweep
from lib.train.loop import train
from tests.lines import one_line
from tests.processes import ENDED, alive, python, until
from tests.runs import numbers, several, small_run, sweeping


def test_two_processes_train_what_one_would(tmp_path):
    one = sweep(several(), RunStore(tmp_path / "one" / "runs"), jobs=1)
    two = sweep(several(), RunStore(tmp_path / "two" / "runs"), jobs=2)
    assert [numbers(a) for a in one.results] == [numbers(b) for b in two.results]
    frame = two.frame()
    assert frame["train.seed"].tolist() == [0, 1, 2] and set(frame["status"]) == {"finished"}
    curves = two.curves()
    assert len(curves) == 18 and set(curves["key"]) == set(frame["key"])


def test_what_is_there_is_read_and_not_trained(store, monkeypatch, capsys):
    sweep(several(2), store, jobs=1)
    monkeypatch.setattr(training, "work_through", lambda *args: pytest.fail("trained again"))
    capsys.readouterr()
    again = sweep([*several(2), *several(1)], store)  # also when asked for twice
    assert len(again.results) == 3
    assert capsys.readouterr().out.strip() == "all 2 runs are in the store"


def test_finished_runs_are_read_without_a_lock_or_a_write(store, monkeypatch):
    sweep(several(2), store, jobs=1)
    assert not [*store.path.parent.glob("**/*.lock")]
    monkeypatch.setattr(files, "need_folder", lambda path: pytest.fail("written to"))
    assert sweep(several(2), store).results == [train(cfg, store) for cfg in several(2)]


def test_a_sweep_that_is_too_long_stops_before_training(store, monkeypatch):
    monkeypatch.setattr(training, "work_through", lambda *args: pytest.fail("trained"))
    huge = small_run(train={"steps": 10**9})
    with one_line("raise max_hours", starts="max_hours: "):
        sweep([huge], store, jobs=1, max_hours=0.5)


def test_a_text_that_does_not_fit_is_said_before_any_run_is_trained(store, tmp_path):
    (tmp_path / "short.txt").write_text("one\n\ntwo")
    short = small_run(data={"source": str(tmp_path / "short.txt"), "max_bytes": None})
    with pytest.raises(InputError, match="less than one row"):
        sweep([*several(2), short], store, jobs=2)
    assert store.frame().empty


def test_a_killed_sweep_continues_where_it_stopped(store):
    configs = several(6, steps=60)
    process = python(sweeping(configs, store.path, "jobs=2"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: len(list(store.path.glob("*/result.json"))) >= 2, running=lambda: process.poll() is None)
    of_it = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not any(map(alive, of_it)), ENDED)  # its workers end with it
    assert len(of_it) >= 3  # them, and the server they are forked from
    done = len(store.frame())
    assert 2 <= done < 6
    assert len(missing(configs, store)) == 6 - done
    assert len(sweep(configs, store, jobs=2).frame()) == 6
