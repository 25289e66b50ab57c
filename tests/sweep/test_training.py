"""A sweep trains only what is missing, to the same numbers on any processes, its cost is of the right size, and what a
kill or a limit of time stops goes on."""

import itertools
import math
import signal
import subprocess
import time
from types import SimpleNamespace

import psutil
import pytest

from lib.base import files
from lib.base.errors import InputError
from lib.store.runs import RunStore
from lib.sweep import measurements, training
from lib.sweep.finished import at_depths, losses_by_depth
from lib.sweep.measurements import Asked
from lib.sweep.training import STOPPED, Job, flops_per_second, hours, missing, prepare_texts, sweep, train_until
from lib.train.loop import train
from tests.cases import Case, squared
from tests.lines import one_line
from tests.processes import ENDED, alive, python, until
from tests.runs import numbers, several, small_run, sweeping


def too_short(folder):
    """A run whose text is less than a row."""
    (folder / "short.txt").write_text("one\n\ntwo")
    return small_run(data={"source": str(folder / "short.txt"), "max_bytes": None})


def test_two_processes_train_what_one_would(tmp_path):
    one = sweep(several(), RunStore(tmp_path / "one" / "runs"), jobs=1)
    two = sweep(several(), RunStore(tmp_path / "two" / "runs"), jobs=2)
    assert [numbers(a) for a in one.results] == [numbers(b) for b in two.results]
    frame = two.frame()
    assert frame["train.seed"].tolist() == [0, 1, 2] and set(frame["status"]) == {"finished"}
    curves = two.curves()
    assert len(curves) == 18 and set(curves["key"]) == set(frame["key"])


def test_what_is_there_is_read_without_training_a_lock_or_a_write(store, monkeypatch, capsys):
    sweep(several(2), store, jobs=1)
    assert not [*store.path.parent.glob("**/*.lock")]
    monkeypatch.setattr(training, "work_through", lambda *args: pytest.fail("trained again"))
    monkeypatch.setattr(files, "need_folder", lambda path: pytest.fail("written to"))
    capsys.readouterr()
    asked = [*several(2), *several(1)]  # one of them twice
    assert sweep(asked, store).results == [train(cfg, store) for cfg in asked]
    assert capsys.readouterr().out.strip() == "all 2 runs are in the store"


def test_a_sweep_that_is_too_long_stops_before_training(store, monkeypatch):
    monkeypatch.setattr(training, "work_through", lambda *args: pytest.fail("trained"))
    huge = small_run(train={"steps": 10**9})
    with one_line("raise max_hours", starts="max_hours: "):
        sweep([huge], store, jobs=1, max_hours=0.5)


def test_a_text_that_does_not_fit_is_said_before_any_run_is_trained(store, tmp_path):
    with pytest.raises(InputError, match="less than one row"):
        sweep([*several(2), too_short(tmp_path)], store, jobs=2)
    assert store.frame().empty


def test_a_killed_sweep_continues_where_it_stopped(store):
    configs = several(6, steps=60)
    process = python(sweeping(configs, store.path, "jobs=2"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: len(missing(configs, store)) <= 4, running=lambda: process.poll() is None)  # drafts do not count
    of_it = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not any(map(alive, of_it)), ENDED)  # its workers end with it
    assert len(of_it) >= 3  # them, and the server they are forked from
    done = len(store.frame())
    assert 2 <= done < 6
    assert len(missing(configs, store)) == 6 - done
    assert len(sweep(configs, store, jobs=2).frame()) == 6


def test_a_text_is_prepared_once_for_all_of_its_runs(store, monkeypatch):
    prepared = []
    monkeypatch.setattr(training, "load_data", lambda cfg, store, show: prepared.append(cfg.data))
    longer = small_run(data={"max_bytes": 400_000})
    prepare_texts([*several(3), longer], store)
    assert prepared == [several(1)[0].planned.data, longer.planned.data]


def test_a_text_that_has_changed_since_its_runs_were_planned_is_not_tokenised(store, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("one text\n\n" * 60)
    data = {"source": str(path), "max_bytes": None, "val_rows": 4}
    cfg = small_run(data=data)
    before = cfg.key
    path.write_text("another text\n\n" * 60)
    later = small_run(data=data)
    assert later.key != before
    with one_line(starts="data.content:"):
        prepare_texts([cfg, later], store)
    prepare_texts([later], store)


# ---- what it costs ---------------------------------------------------------------------------------------------------


def test_it_says_what_is_missing_and_what_it_costs(store):
    train(several()[0], store)
    todo = missing([*several(), *several()], store)
    assert todo == several()[1:]
    assert 0 < hours(todo, 2) < 0.1


def test_the_estimate_is_of_the_right_size(store, monkeypatch):
    # by the processor's time, which does not tell what else a machine has to do
    monkeypatch.setattr(training, "time", SimpleNamespace(perf_counter=time.process_time))
    train(small_run(train={"steps": 1}), store)  # the tokens, and torch's first use
    ratios = []
    for cfg in several(steps=40):
        estimate = hours([cfg], 1) * 3600
        begin = time.process_time()
        train(cfg, store)
        ratios.append((time.process_time() - begin) / estimate)
    assert 1 / 3 < sorted(ratios)[1] < 3


@pytest.mark.parametrize("rule", [{"fill": True}, {"on_top": True}])
def test_a_sampler_that_adds_loops_is_timed_at_its_mean_and_a_large_model_on_a_small_one(rule):
    begin = time.process_time()
    for size in ({"batch": 4}, {"batch": 4096}):
        assert flops_per_second(small_run(model=rule, train=size)) > 0
    assert time.process_time() - begin < 20


# ---- until a limit of time -------------------------------------------------------------------------------------------


def test_what_the_limit_stops_goes_on_to_the_same_numbers(store, tmp_path, monkeypatch):
    (cfg,) = several(1, steps=40)
    train(small_run(train={"steps": 1}), store)  # the text
    looks = itertools.count()  # a clock that says how often it was looked at
    monkeypatch.setattr(training, "time", SimpleNamespace(monotonic=lambda: next(looks)))
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    jobs = [Job(cfg), Job(*several(1))]
    assert train_until(20, jobs, store, 1) == {str(job): STOPPED for job in jobs}
    assert next(looks) == 22  # once by each run when it was time
    assert store.partial(cfg.key).exists() and store.find(cfg) is None
    monkeypatch.undo()
    assert train_until(math.inf, jobs[:1], store, 1) == {str(jobs[0]): ""}
    assert numbers(store.find(cfg)) == numbers(train(cfg, RunStore(tmp_path / "other" / "runs")))


class WhenDone:
    def __init__(self, begin, folders):
        self.begin, self.folders = begin, folders

    def __le__(self, now):
        assert self.begin <= now <= time.monotonic()  # processes have the same clock
        return all(folder.exists() for folder in self.folders)


def test_processes_take_the_runs_in_their_order_until_the_limit(store):
    """It is time as soon as the first runs are done, however long processes take to begin."""
    quick, endless = several(2), several(3, steps=10**6)
    train(small_run(train={"steps": 1}), store)  # the text
    limit = WhenDone(time.monotonic(), [store.path / cfg.key for cfg in quick])
    outcomes = train_until(limit, [Job(cfg) for cfg in [*quick, *endless]], store, 2)
    assert [outcomes[f"run {cfg.key}"] for cfg in [*quick, *endless]] == ["", "", STOPPED, STOPPED, STOPPED]
    assert {result.key for result in store.runs()} >= {cfg.key for cfg in quick}


def test_a_run_that_cannot_be_trained_does_not_keep_others_from_it(store, tmp_path):
    jobs = [Job(too_short(tmp_path)), Job(*several(1))]
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
