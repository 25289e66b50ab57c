"""Records hold all of a run but its weights, stand in for it, and are trained cheapest first within a limit."""

import itertools
import json
import math
import shutil

import pytest

from lib.base import files
from lib.base.errors import InputError
from lib.store.runs import RunStore
from lib.sweep import measurements, time_limit
from lib.sweep import training as sweeping
from lib.sweep.training import sweep
from lib.train.loop import train
from lib.workbook import plans, records
from lib.workbook.records import by_value, pack, pack_measured, reduced
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
    cells = [(cfg.train.steps, cfg.model.mean_loops, cfg.train.seed) for cfg in by_value([*grid, *grid])]
    assert cells == [(3, 2, 5), (3, 4, 5), (9, 2, 7), (9, 4, 7), (3, 2, 4), (3, 4, 4)]


@pytest.mark.parametrize("name", ["looping_isoflop", "isodepth_isoflop"])
def test_a_smaller_budget_is_complete_before_the_next_begins(name, plans_once):
    from lib.flops import count

    budgets = [
        cfg.tokens * count(cfg.model, cfg.data.context).flops_per_token_published
        for cfg in by_value(plans.planned(name, "gpu"))
    ]
    first = budgets[: 24 if name == "looping_isoflop" else 48]  # after them come further seeds, and what is held out
    assert all(later > 0.97 * earlier for earlier, later in itertools.pairwise(first))


# ---- packing


def test_a_reduced_curve_keeps_its_ends_and_what_was_rarely_measured():
    n, rare, nan = 600, {1, 300, 600}, math.nan
    steps = list(range(1, n + 1))
    metrics = {
        "step": steps,
        "loss": [1 / 3 + step for step in steps],
        "rho": [float(step) if step % 6 == 0 or step == 1 else nan for step in steps],
        "val_loss": [2.0 if step in rare else nan for step in steps],
    }
    few = reduced(metrics, points=125)
    assert len(few["step"]) == 125 and few["step"] == sorted(few["step"]) and few["step"][0] == 1
    assert few["step"][-1] == 600 and rare <= set(few["step"]) and {s for s in steps if s % 6 == 0} <= set(few["step"])
    assert few["loss"][0] == 1.333333 and isinstance(few["step"][0], int)
    fewer = reduced(metrics, points=12)
    assert len(fewer["step"]) == 12 and rare <= set(fewer["step"])
    gaps = [b - a for a, b in itertools.pairwise(fewer["step"])]
    assert max(gaps) < 4 * 600 / 12  # and evenly those of the rest
    short = {name: column[:5] for name, column in metrics.items()}
    assert reduced(short)["step"] == [1, 2, 3, 4, 5] and reduced({}) == {}


def test_a_record_has_all_but_the_weights_and_no_path(store, tmp_path):
    text = tmp_path / "mine.txt"
    text.write_text("\n\n".join(f"document {i} says {i * i} things" * 5 for i in range(60)))
    cfg = small_run(data={"source": str(text), "max_bytes": None, "val_rows": 4})
    result = train(cfg, store)
    store.note(result, "depth_losses", {"0": {"1": 0.1 + 0.2}})
    folder = tmp_path / "records" / "smoke"
    assert pack([cfg, *runs(1)], store, folder) == 1
    names = {"config.json", "result.json", "metrics.json", "checksums.json", "depth_losses.json"}
    assert {path.name for path in (folder / cfg.key).iterdir()} == names and len(list(folder.iterdir())) == 1
    assert not any(str(tmp_path) in path.read_text() for path in (folder / cfg.key).iterdir())
    record = records_alone(folder, tmp_path)
    found = record.find(cfg)
    assert found.summary == result.summary and found.status == "finished"
    assert {"commit", "torch", "device", "python"} <= found.provenance.keys()
    assert found.metrics["loss"] == pytest.approx(result.metrics["loss"], rel=1e-6)
    assert record.noted(found, "depth_losses") == {"0": {"1": 0.1 + 0.2}}


def test_packing_again_adds_what_was_noted_since_mends_and_keeps_the_first(store, tmp_path):
    cfg = runs(1)[0]
    result, folder = train(cfg, store), tmp_path / "records"
    assert pack([cfg], store, folder) == 1 and pack([cfg], store, folder) == 0
    store.note(result, "increments", {"norms": [1.0]})
    assert pack([cfg], store, folder) == 1
    place = folder / cfg.key
    assert (place / "increments.json").exists()
    (place / "result.json").write_text((place / "result.json").read_text()[:-1])
    assert pack([cfg], store, folder) == 1 and records_alone(folder, tmp_path).find(cfg).summary == result.summary
    theirs = RunStore(tmp_path / "theirs" / "runs")
    theirs.note(train(cfg, theirs), "increments", {"norms": [2.0]})
    assert pack([cfg], theirs, folder) == 0  # the same run of another machine
    assert files.read_checked(place / "increments.json") == {"norms": [1.0]}


def test_two_peoples_records_are_merged_by_copying_what_is_not_there(tmp_path):
    first, second, third = runs(3)
    folders = []
    for who, configs in (("ann", [first, second]), ("ben", [second, third])):
        store = RunStore(tmp_path / who / "runs")
        sweep(configs, store, jobs=1)
        folders.append(tmp_path / who / "records")
        pack(configs, store, folders[-1])
        measurements.measure(squared, [Case(x=len(folders))], store, jobs=1)
        pack_measured({measurements.name(squared): {measurements.key(Case(x=len(folders))): 1.0}}, store, folders[-1])
    seconds = json.loads((folders[0] / second.key / "result.json").read_text())["summary"]["seconds"]
    for path in folders[1].rglob("*.json"):
        place = folders[0] / path.relative_to(folders[1])
        if not place.exists():  # cp -rn
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
    merged = records_alone(folders[0], tmp_path)
    assert {result.key for result in merged.runs()} == {cfg.key for cfg in (first, second, third)}
    assert merged.find(second).summary["seconds"] == seconds
    assert [measurements.found(squared, Case(x=x), merged)["square"] for x in (1, 2)] == [1, 4]


def test_measurements_are_packed_once_and_found(store, tmp_path):
    measurements.measure(squared, [Case(x=2), Case(x=3)], store, jobs=1)
    asked = {
        measurements.name(squared): {measurements.key(Case(x=x)): 1.0 for x in (2, 4)}
    }  # one of them was never made
    assert (
        pack_measured(asked, store, tmp_path / "records") == 1
        and pack_measured(asked, store, tmp_path / "records") == 0
    )
    elsewhere = records_alone(tmp_path / "records", tmp_path)
    assert measurements.measure(squared, [Case(x=2)], elsewhere, jobs=1) == [{"square": 4}]
    assert measurements.found(squared, Case(x=3), elsewhere) is None


# ---- make records


def test_records_of_a_notebook_stand_in_for_its_runs(tmp_path, monkeypatch, capsys):
    assert records.make(["instability"], "smoke", 5.0, 1, tmp_path) == 0
    said = capsys.readouterr().out
    assert "6 of 6 runs are missing" in said and "6 runs finished, 0 are left" in said and "packed" in said
    configs = plans.planned("instability", "smoke")
    monkeypatch.setattr(sweeping, "_train_all", lambda *args: pytest.fail("trained again"))
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
    assert records.make(["instability"], "smoke", 5.0, 1, tmp_path) == 0  # a record is as good as a run
    assert "0 of 6 runs are missing" in capsys.readouterr().out and not (tmp_path / "runs").exists()


def test_a_limit_is_no_failure_and_says_how_to_go_on(tmp_path, capsys):
    assert records.make(["generate", "instability"], "smoke", 1e-9, 1, tmp_path) == 0
    said = capsys.readouterr().out
    assert "0 runs finished, 7 are left; the same command goes on" in said and not (tmp_path / "runs").exists()


def test_what_failed_is_named_and_the_status_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(time_limit, "train", lambda cfg, *a, **k: (_ for _ in ()).throw(RuntimeError("out\nof memory")))
    assert records.make(["generate"], "smoke", None, 1, tmp_path) == 1
    said = capsys.readouterr().out
    assert "failed: out of memory" in said and "1 failed" in said


@pytest.mark.parametrize("minutes", [0.0, -1.0, math.inf, math.nan])
def test_a_limit_is_a_positive_time(minutes, tmp_path):
    with pytest.raises(InputError, match=r"MINUTES: .* use a positive number"):
        records.make(["instability"], "smoke", minutes, 1, tmp_path)


def test_the_command_complains_in_one_line_and_an_interrupt_is_none(monkeypatch, capsys):
    with pytest.raises(SystemExit, match="name: there is no notebook 'nothing'"):
        records.main(["nothing"], "smoke", "", 1)
    monkeypatch.setattr(records, "make", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(SystemExit) as error:
        records.main([], "smoke", "8", 0)
    assert error.value.code == 130 and "goes on from its checkpoints" in capsys.readouterr().out
