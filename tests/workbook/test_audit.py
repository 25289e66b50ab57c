"""A run that is trained anew gives its record to the last digit here, and what does not agree is named and fails."""

import dataclasses
import math

import pytest

from lib.base import files
from lib.base.errors import InputError
from lib.store import records
from lib.store.runs import RunStore
from lib.sweep.training import sweep
from lib.workbook import audit
from tests.runs import several

HERE = "the same to the last digit"


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
    assert {one.text for one in compared} == {HERE} and all(one.same_class for one in compared)
    assert not list(outputs.glob(".audit*")) and not (outputs / "runs").exists()
    line = audit.last(outputs, "smoke")
    assert line.startswith(
        "Last audit: of 3 recorded runs 3 were drawn (seed 0), and 3 trained anew"
    ) and line.endswith("3 agree.")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda run: dataclasses.replace(run, status="diverged"), "it finished, and diverged when it was recorded"),
        (
            lambda run: dataclasses.replace(run, summary={**run.summary, "val_loss": run.summary["val_loss"] + 1e-12}),
            "val_loss is ",
        ),
        (
            lambda run: dataclasses.replace(
                run, metrics={**run.metrics, "loss": [x * (1 + 1e-6) for x in run.metrics["loss"]]}
            ),
            "loss of step 1 is ",
        ),
    ],
)
def test_a_digit_that_differs_is_named_and_fails(recorded, change, says):
    outputs = recorded(change)
    compared = audit.audit("smoke", 5.0, 0, 1, outputs)
    assert len(compared) == 3 and all(one.complaint.startswith(says) for one in compared)
    assert "0 agree. Run " in audit.last(outputs, "smoke")


def test_on_another_machine_losses_agree_first_and_last(recorded, trained):
    """And how far they are apart is said, of each run and of all."""
    spread = audit.spread(trained[0].config, audit.spreads(trained))
    shifts = dict(zip(sorted(run.key for run in trained), (0.0, 0.5, 1.5), strict=True))

    def elsewhere(run):
        losses = [run.metrics["loss"][0] * (1 + 1.2e-5 * shifts[run.key]), *run.metrics["loss"][1:]]
        end = run.summary["val_loss"] + shifts[run.key]
        return other(run, metrics={**run.metrics, "loss": losses}, summary={**run.summary, "val_loss": end})

    outputs = recorded(elsewhere)
    wide = audit.spread(trained[0].config, audit.spreads([elsewhere(run) for run in trained]))
    found = {one.key: one for one in audit.audit("smoke", 5.0, 0, 1, outputs)}
    for key, shift in shifts.items():
        one = found[key]
        assert not (one.complaint or one.same_class)
        assert one.first == pytest.approx(1.2e-5 * shift, abs=2e-7)  # curves are kept in fp32
        assert one.last == pytest.approx(shift / wide, rel=1e-6) and one.last < 2 and wide > spread
    assert found[max(shifts, key=shifts.get)].text == (
        f"agrees, on a machine of another class, its first losses to 2e-05, its end to {1.5 / wide:.2g} of the seeds' "
        "spread"
    )
    said = audit.summary(outputs, "smoke")
    assert said["first"] == max(one.first for one in found.values()) and said["last"] == pytest.approx(0.5 / wide)
    assert audit.last(outputs, "smoke").endswith(
        "Across classes first losses differ by up to 2e-05. "
        f"Across classes ends differ by {0.5 / wide:.2g} of the seeds' spread in the median."
    )


def test_how_far_a_run_is_off_is_nothing_where_it_has_no_number(trained):
    run = trained[0]
    assert audit.how_far(run, run, 0.1) == (0.0, 0.0) and audit.how_far(run, run, math.nan) == (0.0, None)
    assert audit.how_far(run, run, 0.0) == (0.0, None)  # seeds that end alike
    lost = dataclasses.replace(run, metrics={**run.metrics, "loss": [math.nan] * len(run.metrics["loss"])})
    assert audit.how_far(lost, lost, 0.1) == (None, 0.0)
    half = dataclasses.replace(
        run, metrics={**run.metrics, "loss": [run.metrics["loss"][0], *lost.metrics["loss"][1:]]}
    )
    assert audit.how_far(run, half, 0.1) == (None, 0.0)  # not the largest of those that there are
    assert audit.Outcome(run.key, False, "").text == "agrees, on a machine of another class"


def test_how_far_another_machine_may_be_off(trained):
    run = trained[0]
    losses, end = run.metrics["loss"], run.summary["val_loss"]
    spread = audit.spread(run.config, audit.spreads(trained))
    assert spread == pytest.approx(
        math.sqrt(
            sum((r.summary["val_loss"] - sum(s.summary["val_loss"] for s in trained) / 3) ** 2 for r in trained) / 2
        )
    )

    def off(first=1.0, last=0.0):
        metrics = {**run.metrics, "loss": [losses[0] * first, *losses[1:]]}
        return dataclasses.replace(run, metrics=metrics, summary={**run.summary, "val_loss": end + last})

    assert audit.difference(run, off(1 + 9e-5, 1.9 * spread), False, spread) == ""
    assert audit.difference(run, off(1 + 2e-4), False, spread).startswith("the loss of step 1 is ")
    assert "where seeds differ by" in audit.difference(run, off(last=2.1 * spread), False, spread)
    assert audit.difference(run, off(last=1.0), False, math.nan) == ""  # no cell has two seeds: its first losses agree
    assert audit.difference(run, off(1 + 2e-4), False, math.nan) != ""
    lost = {**run.metrics, "loss": [math.nan] * len(losses)}
    both = [dataclasses.replace(run, status="diverged", metrics=lost) for _ in range(2)]
    assert audit.difference(*both, False, spread) == ""


def test_a_cell_of_one_seed_has_the_median_spread_of_the_others(trained):
    lone = dataclasses.replace(trained[0], config=several(1, steps=9)[0])
    assert audit.spread(lone.config, audit.spreads([*trained, lone])) == audit.spread(
        trained[0].config, audit.spreads(trained)
    )
    assert math.isnan(audit.spread(lone.config, audit.spreads([lone])))


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
    for minutes in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match=r"^MINUTES: .* is no time to audit in, use a positive number"):
            audit.audit("smoke", minutes, 0, 1, tmp_path)
    assert audit.last(tmp_path, "smoke") == "" and not list(tmp_path.glob(".audit*"))


def test_the_command_prints_a_line_a_run_and_fails_where_one_does_not_agree(recorded, monkeypatch, capsys):
    outcomes = [audit.Outcome("a" * 16, True, ""), audit.Outcome("b" * 16, False, "val_loss is 1, and was 2")]
    for some, status in ((outcomes[:1], 0), (outcomes, 1)):
        monkeypatch.setattr(audit, "audit", lambda *args, some=some: some)
        with pytest.raises(SystemExit) as error:
            audit.main("smoke", "", "", 0)
        assert error.value.code == status
    said = capsys.readouterr().out
    assert f"run {'a' * 16}  {HERE}" in said and "1 of 2 runs agree with their records" in said


def test_a_damaged_note_of_an_audit_is_refused(recorded):
    outputs = recorded()
    audit.audit("smoke", 5.0, 0, 1, outputs)
    path = outputs / "audits" / "smoke.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    with pytest.raises(ValueError, match="has changed since it was written"):
        audit.last(outputs, "smoke")
    assert files.read_json(path)["seed"] == 1
