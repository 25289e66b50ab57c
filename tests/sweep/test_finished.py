"""Losses by depth are measured once, and read where they are kept and from records; counts of a text are in closed form
what it says."""

import math

import pytest

from lib.base.errors import InputError
from lib.config import DataConfig
from lib.data.rows import token_store, validation_batch
from lib.store import records
from lib.store.runs import RunStore
from lib.sweep import finished
from lib.sweep.finished import OfText, counted, held_out, ngram_limit
from lib.sweep.measurements import Asked, measure
from lib.sweep.training import sweep
from tests.lines import one_line
from tests.runs import depth_losses, records_alone, small_run


def test_losses_by_depth_are_measured_once_and_kept(store, tmp_path, monkeypatch):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(f"document {i} says {i * i} things" * 5 for i in range(60)))
    cfg = small_run(data={"source": str(path), "max_bytes": None, "val_rows": 4})  # a text of the user's own
    result = sweep([cfg], store, jobs=1).results[0]
    _, rows = finished.trained_model(cfg, store)
    assert rows.shape == (4, 33)
    frame = depth_losses([cfg, cfg], store, [4, 1, 8])
    assert frame["T"].tolist() == [1, 4, 8] and set(frame["key"]) == {cfg.key}
    at_mean = frame.set_index("T")["loss"][cfg.model.mean_loops]
    assert at_mean == pytest.approx(result.summary["val_loss"], rel=1e-5)
    assert depth_losses([cfg], store, [1], state_seed=7)["loss"][0] != frame["loss"][0]
    monkeypatch.setattr(finished, "depth_sweep", lambda *args: pytest.fail("measured again"))
    assert depth_losses([cfg], store, [8, 1, 4, 4]).equals(frame)
    (case,) = finished.at_depths([cfg], store, [1, 4, 8])
    folder = tmp_path / "records"
    records.add(folder, [result], [Asked(finished.losses_by_depth, case).found(store)])
    record = records_alone(folder, tmp_path)
    assert depth_losses([cfg], record, [1, 4, 8]).equals(frame)
    with pytest.raises(InputError, match=f"runs: the record {cfg.key} has no weights to measure with, train it here"):
        depth_losses([cfg], record, [2, 8])
    with pytest.raises(InputError, match=f"runs: there is no run {cfg.key}"):
        depth_losses([cfg], RunStore(tmp_path / "empty" / "runs"), [1])
    monkeypatch.undo()
    path.write_text("\n\n".join(f"document {i} says something else" * 5 for i in range(60)))
    for read in (lambda: finished.trained_model(cfg, store), lambda: depth_losses([cfg], store, [2])):
        with one_line(starts="data.content:"):  # a text that has changed since the run was planned
            read()


def test_counts_of_a_text_are_there_when_it_is_gone(tmp_path):
    """Documents of 30 bytes in which a and b take turns: a byte is one of two, and after its neighbour no surprise."""
    path, store = tmp_path / "a.txt", RunStore(tmp_path / "runs")
    path.write_text("\n".join(["ab" * 15] * 20))
    data = DataConfig(source=str(path), val_fraction=0.1, context=8, val_rows=3).known()
    asked = {
        "counted": (counted, OfText.of(data, store)),
        "rows": (held_out, OfText.of(data, store)),
        "unigram": (ngram_limit, OfText.of(data, store, 1)),
        "bigram": (ngram_limit, OfText.of(data, store, 2)),
    }
    first = {name: measure(function, [case], store)[0] for name, (function, case) in asked.items()}
    assert first["counted"] == {"training": 18 * 30, "held out": 2 * 30}
    assert first["unigram"]["nats"] == pytest.approx(math.log(2))
    assert first["bigram"]["nats"] == pytest.approx(0, abs=1e-12)
    assert first["rows"] == {"rows": validation_batch(data, token_store(data, store.tokens)).tolist()}
    path.unlink()
    assert first == {name: measure(function, [case], store)[0] for name, (function, case) in asked.items()}
