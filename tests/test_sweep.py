"""A sweep trains only what is missing, to the same numbers on any processes, and goes on after a kill or limit."""

import itertools
import json
import math
import signal
import subprocess
import time
from types import SimpleNamespace

import pytest

from lib import sweep as sweeping
from lib.errors import InputError
from lib.flops import count
from lib.store import RunStore
from lib.sweep import STOPPED, plan, sweep, train_until
from lib.train import train
from tests.lines import one_line
from tests.processes import ENDED, alive, python, until
from tests.runs import numbers, records_alone, small_run


def runs(n=3, **train_changes):
    return [small_run(train={"seed": seed, **train_changes}) for seed in range(n)]


def test_two_processes_train_what_one_would(tmp_path):
    one = sweep(runs(), RunStore(tmp_path / "one" / "runs"), jobs=1)
    two = sweep(runs(), RunStore(tmp_path / "two" / "runs"), jobs=2)
    assert [numbers(a) for a in one.results] == [numbers(b) for b in two.results]
    frame = two.frame()
    assert frame["train.seed"].tolist() == [0, 1, 2] and set(frame["status"]) == {"finished"}
    curves = two.curves()
    assert len(curves) == 18 and set(curves["key"]) == set(frame["key"])


def test_what_is_there_is_read_and_not_trained(store, monkeypatch, capsys):
    sweep(runs(2), store, jobs=1)
    monkeypatch.setattr(sweeping, "_train_all", lambda *args: pytest.fail("trained again"))
    capsys.readouterr()
    again = sweep([*runs(2), *runs(1)], store)  # also when asked for twice
    assert len(again.results) == 3
    assert capsys.readouterr().out.strip() == "all 2 runs are in the store"


def test_the_plan_says_what_is_missing_and_what_it_costs(store):
    train(runs()[0], store)
    todo = plan(runs(), store, jobs=2)
    per_run = 6 * 4 * 32 * count(runs()[0].model, 32).flops_per_token
    assert (todo.runs, len(todo.missing), todo.jobs) == (3, 2, 2)
    assert todo.flops == pytest.approx(2 * per_run)
    assert 0 < todo.hours < 0.1 and "2 of 3 runs are missing" in str(todo)


def test_the_estimate_is_of_the_right_size(store, monkeypatch):
    # by the processor's time, which does not tell what else a machine has to do
    monkeypatch.setattr(sweeping, "time", SimpleNamespace(perf_counter=time.process_time))
    train(small_run(train={"steps": 1}), store)  # the tokens, and torch's first use
    ratios = []
    for seed in range(3):
        cfg = small_run(train={"steps": 40, "seed": seed})
        estimate = plan([cfg], store, jobs=1).hours * 3600
        begin = time.process_time()
        train(cfg, store)
        ratios.append((time.process_time() - begin) / estimate)
    assert 1 / 3 < sorted(ratios)[1] < 3


def test_the_longest_run_comes_first(store):
    short, long = small_run(train={"steps": 3}), small_run(train={"steps": 9})
    assert plan([short, long], store).missing == [long, short]


def test_a_sweep_that_is_too_long_stops_before_training(store, monkeypatch):
    monkeypatch.setattr(sweeping, "_train_all", lambda *args: pytest.fail("trained"))
    huge = small_run(train={"steps": 10**9})
    with one_line("raise max_hours", starts="max_hours: "):
        sweep([huge], store, jobs=1, max_hours=0.5)


def test_jobs_must_be_a_number_of_processes(store):
    with pytest.raises(InputError, match="jobs: 0 processes train nothing"):
        plan(runs(), store, jobs=0)


def test_a_large_model_is_timed_on_a_small_one():
    big = small_run(model={"width": 128, "mlp_width": 512, "recur": 4}, train={"batch": 4096})
    begin = time.process_time()
    assert sweeping.flops_per_second(big) > 1e9
    assert time.process_time() - begin < 20


@pytest.fixture
def short(tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("one\n\ntwo")
    return small_run(data={"source": str(path), "max_bytes": None})


def test_a_text_that_does_not_fit_is_said_before_any_run_is_trained(store, short):
    with pytest.raises(InputError, match="less than one row"):
        sweep([*runs(2), short], store, jobs=2)
    assert store.frame().empty


def test_an_error_in_a_worker_is_the_callers_error(store, short):
    with pytest.raises(InputError, match="less than one row"):
        sweeping._train_all([short, *runs(1)], store, jobs=2)


def below(pid: int) -> list[int]:
    """The processes that a process started, and those that they did."""
    table = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True).stdout
    children = [child for child, parent in (map(int, line.split()) for line in table.splitlines()) if parent == pid]
    return children + [other for child in children for other in below(child)]


def test_a_killed_sweep_continues_where_it_stopped(store):
    configs = runs(6, steps=60)
    listed = json.dumps([cfg.model_dump(mode="json") for cfg in configs])
    code = f"""
import json
from lib.config import RunConfig
from lib.store import RunStore
from lib.sweep import sweep
if __name__ == "__main__":
    configs = [RunConfig(**c) for c in json.loads({listed!r})]
    sweep(configs, RunStore({str(store.path)!r}), jobs=2)
"""
    process = python(code, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: len(list(store.path.glob("*/result.json"))) >= 2, running=lambda: process.poll() is None)
    of_it = below(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not any(map(alive, of_it)), ENDED)  # its workers end with it
    assert len(of_it) >= 3  # them, and the server they are forked from
    done = len(store.frame())
    assert 2 <= done < 6
    assert len(plan(configs, store).missing) == 6 - done
    assert len(sweep(configs, store, jobs=2).frame()) == 6


def test_losses_by_depth_are_measured_once_and_kept_beside_the_run(store, tmp_path, monkeypatch):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(f"document {i} says {i * i} things" * 5 for i in range(60)))
    cfg = small_run(data={"source": str(path), "max_bytes": None, "val_rows": 4})  # a text of the user's own
    result = sweep([cfg], store, jobs=1).results[0]
    frame = sweeping.depth_losses([cfg, cfg], store, [4, 1, 8])
    assert frame["T"].tolist() == [1, 4, 8] and set(frame["key"]) == {cfg.key}
    at_mean = frame.set_index("T")["loss"][cfg.model.mean_loops]
    assert at_mean == pytest.approx(result.summary["val_loss"], rel=1e-5)
    other = sweeping.depth_losses([cfg], store, [1], state_seed=7)["loss"][0]
    assert other != frame["loss"][0]
    monkeypatch.setattr(sweeping, "depth_sweep", lambda *args: pytest.fail("measured again"))
    assert sweeping.depth_losses([cfg], store, [1, 8])["loss"].tolist() == frame["loss"][[0, 2]].tolist()
    (result.path / "model.safetensors").unlink()
    record = records_alone(store.path, tmp_path)
    assert sweeping.depth_losses([cfg], record, [8])["loss"].tolist() == frame["loss"][[2]].tolist()
    with pytest.raises(InputError, match=r"depths: the record .* has no weights to measure"):
        sweeping.depth_losses([cfg], record, [2, 8])
    with pytest.raises(InputError, match=f"runs: there is no run {cfg.key}"):
        sweeping.depth_losses([cfg], RunStore(tmp_path / "empty" / "runs"), [1])


def test_what_the_limit_stops_goes_on_to_the_same_numbers(store, tmp_path, monkeypatch):
    (cfg,) = runs(1, steps=40)
    train(small_run(train={"steps": 1}), store)  # the text
    looks = itertools.count()  # a clock that says how often it was looked at
    monkeypatch.setattr(sweeping, "time", SimpleNamespace(monotonic=lambda: next(looks)))
    monkeypatch.setattr(sweeping, "CHECKPOINT_SECONDS", 0.0)
    assert train_until(20, [cfg, *runs(1)], store, 1) == {cfg.key: STOPPED, runs(1)[0].key: STOPPED}
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
    quick, endless = runs(2), runs(3, steps=10**6)
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
    outcomes = train_until(math.inf, [bad, *runs(1)], store, 1)
    assert "less than one row" in outcomes[bad.key] and outcomes[runs(1)[0].key] == ""
