"""What a limit of time stops goes on to the same numbers, and an error of one run does not keep others from it."""

import itertools
import math
import time
from types import SimpleNamespace

from lib.store.runs import RunStore
from lib.sweep import texts, time_limit
from lib.sweep.time_limit import STOPPED, train_until
from lib.train.loop import train
from tests.runs import numbers, several, small_run


def test_what_the_limit_stops_goes_on_to_the_same_numbers(store, tmp_path, monkeypatch):
    (cfg,) = several(1, steps=40)
    train(small_run(train={"steps": 1}), store)  # the text
    looks = itertools.count()  # a clock that says how often it was looked at
    for module in (time_limit, texts):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(looks)))
    monkeypatch.setattr(time_limit, "CHECKPOINT_SECONDS", 0.0)
    assert train_until(20, [cfg, *several(1)], store, 1) == {cfg.key: STOPPED, several(1)[0].key: STOPPED}
    assert next(looks) == 22  # once by each run when it was time
    assert store.partial(cfg.key).exists() and store.find(cfg) is None
    monkeypatch.undo()
    assert train_until(math.inf, [cfg], store, 1) == {cfg.key: ""}
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
    outcomes = train_until(until, [*quick, *endless], store, 2)
    assert list(map(outcomes.get, [cfg.key for cfg in [*quick, *endless]])) == ["", "", STOPPED, STOPPED, STOPPED]
    assert {result.key for result in store.runs()} >= {cfg.key for cfg in quick}


def test_a_run_that_cannot_be_trained_does_not_keep_others_from_it(store, tmp_path):
    (tmp_path / "short.txt").write_text("one\n\ntwo")
    bad = small_run(data={"source": str(tmp_path / "short.txt"), "max_bytes": None})
    outcomes = train_until(math.inf, [bad, *several(1)], store, 1)
    assert "less than one row" in outcomes[bad.key] and outcomes[several(1)[0].key] == ""
