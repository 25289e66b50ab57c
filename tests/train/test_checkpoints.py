"""A checkpoint gives back what was saved, says where it is, and holds nothing that runs."""

import os

import pytest
import safetensors.torch
import torch

from lib.store.runs import RunStore
from lib.train import checkpoints
from tests.runs import native_run, stopped


def test_what_is_saved_is_loaded(tmp_path):
    tensors, position = {"a": torch.rand(3, 2).T, "b": torch.ones((), dtype=torch.int64)}, {"step": 7, "key": "x"}
    checkpoints.save(tensors, position, tmp_path / "x")
    loaded, at = checkpoints.load(tmp_path / "x")
    assert at == position and checkpoints.step_of(tmp_path / "x") == 7
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())
    (tmp_path / "damaged").write_bytes(b"not this")
    os.mkfifo(tmp_path / "pipe")
    assert {checkpoints.step_of(tmp_path / name) for name in ("damaged", "nowhere", "pipe")} == {-1}


@pytest.mark.precision
def test_a_checkpoint_holds_no_pickle(tmp_path):
    store = RunStore(tmp_path / "runs")
    checkpoint = stopped(native_run(), store, at=3)
    assert len(safetensors.torch.load_file(checkpoint)) > 20 and checkpoints.step_of(checkpoint) == 2
    assert {p for p in store.path.rglob("*") if p.is_file() and p.suffix != ".lock"} == {checkpoint}
