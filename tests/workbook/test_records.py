"""Records hold all of a run but its weights, stand in for it, and are trained cheapest first within a limit."""

import shutil

import pytest

from lib.base.errors import InputError
from lib.store import records as stored
from lib.store.runs import RunStore
from lib.sweep import measurements, training
from lib.sweep.finished import at_depths, losses_by_depth, run_model
from lib.sweep.measurements import Asked
from lib.sweep.training import sweep
from lib.train import loop
from lib.train.loop import train
from lib.workbook import plans, records
from lib.workbook.records import Grid, by_value, pack
from tests.cases import Case, squared
from tests.runs import records_alone, small_run


def runs(seeds=2, **train_changes):
    return [small_run(train={"seed": seed, **train_changes}) for seed in range(seeds)]


# ---- the order


def test_a_grid_comes_first_seed_first_and_cheapest_first():
    grid = [
        small_run(model={"mean_loops": loops}, train={"seed": seed, "steps": steps})
        for steps in (9, 3)
        for loops in (4, 2)
        for seed in ((5, 4) if steps == 3 else (7,))
    ]
    cells = [(cfg.train.steps, cfg.model.mean_loops, cfg.train.seed) for cfg in by_value([Grid(grid), Grid(grid)])]
    assert cells == [(3, 2, 5), (3, 4, 5), (9, 2, 7), (9, 4, 7), (3, 2, 4), (3, 4, 4)]


def test_the_cheapest_notebook_has_its_first_seeds_first():
    dear, cheap = [
        (small_run(train={"seed": 1, "steps": steps}), small_run(train={"seed": 2, "steps": steps})) for steps in (9, 3)
    ]
    small = small_run(train={"seed": 1, "steps": 2})
    assert by_value([Grid([small, *dear]), Grid([*cheap, small])]) == [small, cheap[0], dear[0], cheap[1], dear[1]]


def test_a_seed_that_tunes_has_all_its_runs_early():
    """The usual rate is tried on the tuning seed after all others; it is needed with the first of them."""
    usual = [small_run(train={"seed": seed, "steps": 3}) for seed in (1, 2, 7)]
    tried = small_run(train={"seed": 7, "steps": 4})
    assert by_value([Grid([*usual, tried], [[1, 2], [7]])]) == [usual[0], usual[2], tried, usual[1]]


def test_what_can_be_drawn_in_part_is_trained_part_by_part():
    """A dear run of the first part is trained before a cheap one of the second."""
    dear, cheap, last = [small_run(train={"seed": 1, "steps": steps}) for steps in (5, 3, 9)]
    assert by_value([Grid([dear]), Grid([dear, cheap, last])]) == [dear, cheap, last]


# ---- packing


def test_a_record_has_all_but_the_weights_and_no_path(store, tmp_path):
    text = tmp_path / "mine.txt"
    text.write_text("\n\n".join(f"document {i} says {i * i} things" * 5 for i in range(60)))
    cfg = small_run(data={"source": str(text), "max_bytes": None, "val_rows": 4})
    result = train(cfg, store)
    folder = tmp_path / "records" / "smoke"
    assert pack([cfg, *runs(1)], [], [], store, folder) == (1, 0)
    assert not any(str(tmp_path).encode() in path.read_bytes() for path in folder.rglob("*.parquet/*"))
    found = records_alone(folder, tmp_path).find(cfg)
    assert found.summary == result.summary and found.status == "finished"
    assert {"commit", "torch", "device", "python"} <= found.provenance.keys()
    assert found.metrics["loss"] == pytest.approx(result.metrics["loss"], rel=1e-7)


def test_a_run_is_packed_when_all_that_is_measured_on_it_has_been(store, tmp_path):
    """Its weights do not go with it, so that nobody could measure it later."""
    cfg, other = runs(2)
    train(cfg, store), train(other, store)
    (case,) = at_depths([cfg], store, [1, 2])
    asked = [Asked(losses_by_depth, case), Asked(squared, Case(x=2)), Asked(squared, Case(x=3))]
    asked[1].measure(store)
    folder, planned = tmp_path / "records", [{measurements.name(one.function): [one.key]} for one in asked]
    assert pack([cfg, other], asked, planned, store, folder) == (1, 1)
    record = records_alone(folder, tmp_path)
    assert record.find(cfg) is None and record.find(other).key == other.key and asked[1].found(record)
    asked[0].measure(store)
    assert [pack([cfg, other], asked, planned, store, folder) for _ in range(2)] == [(1, 1), (0, 0)]
    assert record.find(cfg).key == cfg.key and asked[0].found(record) == asked[0].found(store)
    assert asked[2].found(record) is None


def test_a_run_that_diverged_is_packed_without_what_is_asked_of_finished_ones(store, tmp_path):
    fine, diverged = small_run(), small_run(train={"seed": 1, "max_state_rms": 1e-3})
    assert [train(cfg, store).status for cfg in (fine, diverged)] == ["finished", "diverged"]
    asked = [Asked(losses_by_depth, case, of_finished=True) for case in at_depths([fine, diverged], store, [1])]
    assert [one.run for one in records._missing(asked, [fine, diverged], store)] == [fine.key]
    assert pack([fine, diverged], asked, [], store, tmp_path / "records") == (1, 0)
    assert records_alone(tmp_path / "records", tmp_path).find(diverged).status == "diverged"


def test_the_weights_that_a_notebook_opens_stand_beside_its_records(tmp_path, capsys):
    (cfg,) = plans.plan("generate", "smoke").runs
    assert records.make(["generate"], "smoke", 5.0, 1, outputs=tmp_path) == 0
    folder = tmp_path / "records" / "smoke"
    (kept,) = (folder / "weights").iterdir()
    assert kept.name.startswith(f"{cfg.key}-") and kept.suffix == ".safetensors"
    trained, alone = RunStore(tmp_path / "runs"), records_alone(folder, tmp_path)
    before, after = (run_model(cfg, store).state_dict() for store in (trained, alone))
    assert before.keys() == after.keys() and all(before[name].equal(after[name]) for name in before)
    assert alone.named(cfg.key).key == cfg.key
    kept.write_bytes(kept.read_bytes()[:-1] + b"?")
    with pytest.raises(InputError, match=f"{kept.name} has changed since it was written, restore it, or remove it"):
        run_model(cfg, alone)
    kept.unlink()
    with pytest.raises(InputError, match=f"the record {cfg.key} has no weights"):
        run_model(cfg, alone)


# ---- make records


@pytest.fixture(autouse=True)
def few_notebooks(monkeypatch):
    """Those of which something is asked here, and one that measures on another's runs: all are planned each time."""
    some = ["generate", "instability", "isodepth_isoflop", "looping_isoflop", "test_time_saturation", "unified_law"]
    monkeypatch.setattr(plans, "names", lambda profile="": some)


def test_records_of_a_notebook_stand_in_for_its_runs(tmp_path, monkeypatch, capsys):
    assert records.make(["instability"], "smoke", 5.0, 1, outputs=tmp_path) == 0
    said = capsys.readouterr().out
    assert "6 of 6 runs are missing" in said and "6 runs finished, 0 are left" in said and "packed" in said
    configs = plans.plan("instability", "smoke").runs
    monkeypatch.setattr(training, "train", lambda *args: pytest.fail("trained again"))
    both = [
        sweep(configs, RunStore(tmp_path / "runs")),
        sweep(configs, records_alone(tmp_path / "records" / "smoke", tmp_path)),
    ]
    assert both[0].frame().equals(both[1].frame())
    assert not RunStore(tmp_path / "nothing" / "runs").runs()
    full, packed = (runs.curves() for runs in both)
    for quantity in ("loss", "rho", "state_norm"):
        assert packed.groupby("key")[quantity].max().to_dict() == pytest.approx(
            full.groupby("key")[quantity].max().to_dict(), rel=1e-6
        )
    shutil.rmtree(tmp_path / "runs")
    assert records.make(["instability"], "smoke", 5.0, 1, outputs=tmp_path) == 0  # a record is as good as a run
    assert "0 of 6 runs are missing" in capsys.readouterr().out and not (tmp_path / "runs").exists()


def test_machines_share_a_plan_without_a_run_in_common(tmp_path, capsys):
    """Each its part, and together all of it; their parts are merged by copying."""
    configs, shared = plans.plan("instability", "smoke").runs, []
    for i in (1, 2):
        outputs = tmp_path / f"machine{i}"
        assert records.make(["instability"], "smoke", None, 1, (i, 2), outputs) == 0
        shared.append({run.key for run in RunStore(outputs / "runs").runs()})
        shutil.copytree(outputs / "records", tmp_path / "records", dirs_exist_ok=True)
    assert not shared[0] & shared[1] and shared[0] | shared[1] == {cfg.key for cfg in configs}
    capsys.readouterr()
    assert records.make(["instability"], "smoke", None, 1, outputs=tmp_path) == 0
    assert f"plan       {len(configs)} of {len(configs)} runs, 100.0 % of its FLOPs" in capsys.readouterr().out


def test_a_limit_is_no_failure_and_says_how_to_go_on(tmp_path, capsys):
    assert records.make(["generate", "instability"], "smoke", 1e-9, 1, outputs=tmp_path) == 0
    said = capsys.readouterr().out
    assert (
        "0 runs finished, 7 are left, 0 failed; the same command goes on" in said and not (tmp_path / "runs").exists()
    )


def test_what_failed_is_named_and_the_status_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(training, "train", lambda cfg, *a, **k: (_ for _ in ()).throw(RuntimeError("out\nof memory")))
    assert records.make(["generate"], "smoke", None, 1, outputs=tmp_path) == 1
    said = capsys.readouterr().out
    assert "failed: out of memory" in said and "1 failed" in said


def test_what_a_notebook_measures_is_made_and_packed(tmp_path, monkeypatch, capsys):
    """Then its runs can go: the notebook finds their numbers."""
    assert records.make(["test_time_saturation"], "smoke", None, 1, outputs=tmp_path) == 0
    plan = plans.plan("test_time_saturation", "smoke")
    assert f"{len(plan.runs)} runs and " in (said := capsys.readouterr().out) and "measurements were packed" in said
    shutil.rmtree(tmp_path / "runs"), shutil.rmtree(tmp_path / "measured")
    record = records_alone(tmp_path / "records" / "smoke", tmp_path)
    assert plan.asked and all(one.found(record).measured for one in plan.asked)
    assert records.make(["test_time_saturation"], "smoke", None, 1, outputs=tmp_path) == 0
    assert "nothing to train" in capsys.readouterr().out


def test_what_another_notebook_measures_on_a_run_is_made_too(tmp_path):
    """Its weights go, whichever notebook was asked for."""
    assert records.make(["looping_isoflop"], "smoke", None, 1, outputs=tmp_path) == 0
    runs = {cfg.key for cfg in plans.plan("looping_isoflop", "smoke").runs}
    theirs = [one for one in plans.plan("unified_law", "smoke").asked if one.run in runs]
    record = records_alone(tmp_path / "records" / "smoke", tmp_path)
    assert theirs and all(one.found(record) for one in theirs)


def test_a_notebook_that_has_no_plan_is_named_where_it_was_not_asked_for(tmp_path, monkeypatch, capsys):
    planned = plans.plan

    def plan(name, *arguments, **changes):
        if name == "unified_law":
            raise RuntimeError("on\npurpose")
        return planned(name, *arguments, **changes)

    monkeypatch.setattr(plans, "plan", plan)
    assert records.make(["generate"], "smoke", 1e-9, 1, outputs=tmp_path) == 0
    assert "unified_law: has no plan (on purpose), what it measures is not made" in capsys.readouterr().out
    with pytest.raises(RuntimeError):
        records.make(["unified_law"], "smoke", 1e-9, 1, outputs=tmp_path)


def test_a_record_that_lacks_a_measurement_is_trained_once_more_for_it(store, tmp_path, monkeypatch):
    (cfg,) = runs(1)
    folder = tmp_path / "records" / "smoke"
    stored.add(folder, [train(cfg, store)], [])
    monkeypatch.setattr(plans, "plan", lambda name, profile, **changes: plans.Plan([cfg], {}, asked))
    elsewhere = RunStore(tmp_path / "outputs" / "runs", [tmp_path / "outputs" / "records" / "smoke"])
    shutil.copytree(tmp_path / "records", tmp_path / "outputs" / "records")
    asked = [Asked(losses_by_depth, case) for case in at_depths([cfg], elsewhere, [1, 2])]
    assert records.make(["generate"], "smoke", None, 1, outputs=tmp_path / "outputs") == 0
    assert asked[0].found(records_alone(tmp_path / "outputs" / "records" / "smoke", tmp_path)).measured


def test_a_run_whose_measurements_were_cut_off_is_measured_another_time(tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(measurements, "provenance", lambda: (_ for _ in ()).throw(RuntimeError("out of memory")))
        assert records.make(["test_time_saturation"], "smoke", None, 1, outputs=tmp_path) == 1
    said = capsys.readouterr().out
    assert "failed: out of memory" in said and "0 runs and 0 measurements were packed" in said
    monkeypatch.setattr(loop, "_Training", lambda *args: pytest.fail("trained again"))
    assert records.make(["test_time_saturation"], "smoke", None, 1, outputs=tmp_path) == 0
    assert "0 of " in (said := capsys.readouterr().out) and " 0 runs and" not in said


def test_a_machine_is_one_of_those_that_share(tmp_path):
    with pytest.raises(InputError, match=r"SHARD: 3/2 is no share of the runs, 2/2 is the last"):
        records.make(["instability"], "smoke", None, 1, (3, 2), tmp_path)
