"""What a limit of time stops goes on to the same numbers, and an error of one run does not keep others from it."""

import itertools
import math
import time
from types import SimpleNamespace

import pytest

from lib.store.runs import RunStore
from lib.sweep import measurements, time_limit
from lib.sweep.finished import at_depths, losses_by_depth
from lib.sweep.measurements import Asked
from lib.sweep.time_limit import STOPPED, Job, train_until
from lib.train.loop import train
from tests.cases import Case, squared
from tests.runs import numbers, several, small_run


def test_what_the_limit_stops_goes_on_to_the_same_numbers(store, tmp_path, monkeypatch):
    (cfg,) = several(1, steps=40)
    train(small_run(train={"steps": 1}), store)  # the text
    looks = itertools.count()  # a clock that says how often it was looked at
    monkeypatch.setattr(time_limit, "time", SimpleNamespace(monotonic=lambda: next(looks)))
    monkeypatch.setattr(time_limit, "CHECKPOINT_SECONDS", 0.0)
    jobs = [Job(cfg), Job(*several(1))]
    assert train_until(20, jobs, store, 1) == {str(job): STOPPED for job in jobs}
    assert next(looks) == 22  # once by each run when it was time
    assert store.partial(cfg.key).exists() and store.find(cfg) is None
    monkeypatch.undo()
    assert train_until(math.inf, jobs[:1], store, 1) == {str(jobs[0]): ""}
    assert numbers(store.find(cfg)) == numbers(train(cfg, RunStore(tmp_path / "other" / "runs")))


# a module of its own: processes that import what they are given would wait for all that tests import
WHEN_DONE = """
import time
from pathlib import Path

class WhenDone:
    def __init__(self, begin, folders):
        self.begin, self.folders = begin, folders

    def __le__(self, now):
        assert self.begin <= now <= time.monotonic()  # processes have the same clock
        return all(Path(folder).exists() for folder in self.folders)
"""


def test_processes_take_the_runs_in_their_order_until_the_limit(store, tmp_path, monkeypatch):
    """It is time as soon as the first runs are done, however long processes take to begin."""
    quick, endless = several(2), several(3, steps=10**6)
    train(small_run(train={"steps": 1}), store)  # the text
    (tmp_path / "when_done.py").write_text(WHEN_DONE)
    monkeypatch.syspath_prepend(tmp_path)
    from when_done import WhenDone

    until = WhenDone(time.monotonic(), [store.path / cfg.key for cfg in quick])
    outcomes = train_until(until, [Job(cfg) for cfg in [*quick, *endless]], store, 2)
    assert [outcomes[f"run {cfg.key}"] for cfg in [*quick, *endless]] == ["", "", STOPPED, STOPPED, STOPPED]
    assert {result.key for result in store.runs()} >= {cfg.key for cfg in quick}


def test_a_run_that_cannot_be_trained_does_not_keep_others_from_it(store, tmp_path):
    (tmp_path / "short.txt").write_text("one\n\ntwo")
    bad = small_run(data={"source": str(tmp_path / "short.txt"), "max_bytes": None})
    jobs = [Job(bad), Job(*several(1))]
    outcomes = train_until(math.inf, jobs, store, 1)
    assert "less than one row" in outcomes[str(jobs[0])] and outcomes[str(jobs[1])] == ""


def test_the_process_that_trains_a_run_measures_what_is_asked_of_it(store, monkeypatch):
    (cfg,) = several(1)
    (case,) = at_depths([cfg], store, [1, 2])
    asked = Asked(losses_by_depth, case), Asked(squared, Case(x=3))
    outcomes = train_until(math.inf, [Job(cfg, asked[:1]), Job(None, asked[1:])], store, 1)
    assert outcomes == {f"run {cfg.key}": "", f"tests.cases.squared {asked[1].key}": ""}
    assert list(asked[0].found(store).measured) == ["1", "2"] and asked[1].found(store).measured == {"square": 9.0}
    monkeypatch.setattr(measurements, "provenance", lambda: pytest.fail("measured again"))
    assert train_until(math.inf, [Job(cfg, asked)], store, 1) == {f"run {cfg.key}": ""}


def test_what_is_asked_of_finished_runs_is_not_asked_of_one_that_diverged(store):
    cfg = small_run(train={"max_state_rms": 1e-3})
    (case,) = at_depths([cfg], store, [1])
    always, sometimes = Asked(losses_by_depth, case), Asked(squared, Case(x=3), of_finished=True)
    assert train_until(math.inf, [Job(cfg, (sometimes, always))], store, 1) == {f"run {cfg.key}": ""}
    assert store.get(cfg).status == "diverged" and always.found(store) and sometimes.found(store) is None
