"""A finished run is found by what it is, and one that is damaged, misnamed or unfinished is never believed."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from lib.base.errors import InputError
from lib.store.runs import RunStore, curves
from lib.train.loop import train
from tests.lines import in_one_line
from tests.runs import made_up, same, small_run


def finish(store, cfg, **summary):
    return store.finish(made_up(cfg, **summary), lambda path: save_file({"x": torch.zeros(3)}, path))


def test_a_finished_run_is_found_by_what_it_is(store):
    cfg = small_run()
    assert store.find(cfg) is None
    finish(store, cfg)
    found = RunStore(store.path).find(small_run())
    assert same(found.summary, made_up(cfg).summary) and found.config == cfg.planned and found.path.name == cfg.key
    assert same(found.metrics, made_up(cfg).metrics)  # of 1/3, 0.1 + 0.2 and nan
    said = [f"{name}.json" for name in ("config", "metrics", "result")]
    assert {p.name for p in found.path.iterdir()} == {*said, "model.safetensors"}
    assert store.find(small_run(train={"seed": 1})) is None


def test_the_frame_has_one_row_a_run_with_its_config(store):
    for seed in (0, 1):
        finish(store, small_run(train={"seed": seed}), val_loss=2.0 + seed)
    frame = store.frame().sort_values("train.seed")
    assert frame["val_loss"].tolist() == [2.0, 3.0]
    assert frame["model.width"].tolist() == [32, 32] and frame["optim.lr"].tolist() == [4e-3, 4e-3]
    assert RunStore(store.path / "empty").frame().empty


def test_the_frame_leaves_out_what_cannot_be_read_and_what_is_no_finished_run(store, capsys):
    good, bad = finish(store, small_run()), finish(store, small_run(train={"seed": 1}))
    (bad.path / "result.json").write_text("{")
    (store.path / "note.txt").write_text("somebody's")
    (store.path / f"{good.key}.corrupt-1").mkdir()
    store.partial(good.key).write_bytes(b"half")
    assert store.frame()["key"].tolist() == [good.key]
    assert bad.path.is_dir()  # looking changes nothing
    in_one_line(capsys.readouterr().out, f"1 in {store.path} are left out ({bad.key}: ", "train them again")


def test_runs_of_another_recipe_are_left_alone(store, monkeypatch):
    finish(store, small_run())
    monkeypatch.setattr("lib.RECIPE", 99)
    assert store.frame().empty and store.find(small_run()) is None
    monkeypatch.undo()
    assert len(store.frame()) == 1


def test_a_finished_run_carries_no_path(store, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\n\ntwo\n")
    cfg = small_run(data={"source": str(path)})
    finish(store, cfg)
    assert str(tmp_path) not in (store.path / cfg.key / "config.json").read_text()
    assert store.find(cfg).config.data.source == "a.txt" and store.find(cfg).key == cfg.key
    hub = small_run(data={"source": "hf:org/name", "content": "0123456789abcdef"})
    assert hub.without_paths() == hub and small_run().without_paths() == small_run().planned


def test_a_run_that_another_machine_finished_meanwhile_is_kept(store):
    result = train(small_run(), store)
    before = {path.name: path.read_bytes() for path in result.path.iterdir()}
    again = store.finish(result, lambda path: path.write_bytes(b"other"))
    assert again.path == result.path and {p.name: p.read_bytes() for p in result.path.iterdir()} == before
    assert not list(store.path.glob("*.tmp")) and not list(store.path.glob(".*.tmp"))


def test_a_lock_sweeps_what_a_killed_process_left_of_this_run_alone(store):
    store.path.mkdir()
    mine, others = store.path / ".abc.partial.17.tmp", store.path / ".xyz.partial.17.tmp"
    mine.write_bytes(b"half"), others.write_bytes(b"half")
    with store.lock("abc") as held:
        assert held and not mine.exists() and others.exists()
        mine.write_bytes(b"being written")
        with store.lock("abc", wait=False) as second:
            assert not second and mine.exists()
    with store.lock("abc", wait=False) as held:
        assert held


def test_curves_have_one_row_a_logged_step(store):
    results = [finish(store, small_run(train={"seed": seed, "steps": 2}), loss=2.5) for seed in (0, 1)]
    found = curves(results)
    assert {*found.columns} == {"key", *results[0].metrics} and found.index.tolist() == [0, 1, 2, 3]
    assert found.key.tolist() == [results[0].key] * 2 + [results[1].key] * 2
    assert found.step.tolist() == [1, 2, 1, 2] and found.loss.tolist() == [1 / 3, 2.5] * 2
    assert curves([]).columns.tolist() == ["key", "step"] and len(curves([])) == 0


def test_weights_are_there_and_unchanged_or_one_line(store):
    result = finish(store, small_run())
    path = store.weights(result)
    assert path == result.path / "model.safetensors" and load_file(path)["x"].tolist() == [0, 0, 0]
    save_file({"x": torch.ones(3)}, path)
    with pytest.raises(InputError, match=r"^runs: .*model.safetensors has changed since it was written, remove .*$"):
        store.weights(result)
    with pytest.raises(InputError, match=rf"^runs: the record {result.key} has no weights to measure with"):
        store.weights(made_up(small_run()))
