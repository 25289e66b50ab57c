"""Several processes train what one does up to rounding, and continue each other's checkpoints."""

import json
import os
import subprocess
import sys

import pytest
import safetensors.torch

from lib.base.distributed import Ranks
from lib.base.errors import InputError
from lib.store.runs import RunStore
from lib.train.loop import train
from tests.runs import small_run, stopped
from tests.workbooks import ROOT

FP32 = {"precision": "fp32", "batch": 8, "steps": 4, "eval_every": 2}
MUON = {"name": "muon", "muon_lr": 0.01, "muon_weight_decay": 0.1}
#: rows that loop a different number of times, so that the two processes use a router a different number of times
EXPERTS = {"mlp": "swiglu", "experts": 4, "active_experts": 2, "mlp_width": 32, "balance_loss": 0.5}
LANES = {"injection": "hyper-connections", "depth": "fixed", "backprop_loops": "all", "state_init": "prelude"}
CASES = {
    "AdamW": small_run(train=FP32),
    "AdamW in passes": small_run(train={**FP32, "micro_batch": 4}, optim={"update_clipping": True}),
    "Muon": small_run(train=FP32, optim=MUON, model={"prelude": 2, "coda": 2}),
    "MuonH, hyper-connections": small_run(train=FP32, optim={"name": "muonh", "muon_lr": 0.01}, model=LANES),
    "MoE": small_run(train=FP32, model=EXPERTS),
    "MoE, Muon": small_run(train=FP32, model=EXPERTS, optim=MUON),
    "MoE in passes": small_run(train={**FP32, "micro_batch": 4}, model=EXPERTS),
    "loops computed again": small_run(train={**FP32, "checkpoint_loops": True, "seed": 1}),
}
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
#: what a process of torchrun does: in every job trains the cases, or stops each of them half-way
TOGETHER = """
import json, sys
from pathlib import Path
from lib.config import RunConfig, TrainConfig
from lib.base.distributed import here
from lib.store.runs import RunStore
from lib.train.loop import train

class Enough(Exception): pass

for cases, path, stop_at, compiled in json.loads(Path(sys.argv[1]).read_text()):
    TrainConfig.compiles_on = lambda cfg, device: compiled

    def stop(step, loss):
        if step == stop_at: raise Enough

    for name, config in cases.items():
        try:
            train(RunConfig(**config), RunStore(path), checkpoint_seconds=0.0, progress=stop)
        except Enough:
            pass
"""


def job(cases, store, stop_at=-1, compiled=False):
    return {name: cfg.model_dump(mode="json") for name, cfg in cases.items()}, str(store.path), stop_at, compiled


def together(folder, *jobs, processes=2):
    """Does jobs on several processes, one after the other."""
    script, todo = folder / "together.py", folder / "jobs.json"
    script.write_text(TOGETHER)
    todo.write_text(json.dumps(jobs))
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    done = subprocess.run([*run, script, todo], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Every case, trained by one process."""
    store = RunStore(tmp_path_factory.mktemp("alone") / "runs")
    return {name: train(cfg, store) for name, cfg in CASES.items()}


def assert_same(one, many):
    assert many.status == one.status == "finished"
    for name in one.metrics.keys() & {"loss", "val_loss", "grad_norm", "state_rms", "router_loss"}:
        assert many.metrics[name] == pytest.approx(one.metrics[name], rel=0, abs=1e-5, nan_ok=True), name
    ours, theirs = (safetensors.torch.load_file(result.path / "model.safetensors") for result in (one, many))
    assert ours.keys() == theirs.keys()
    for name in ours:  # as a whole: Adam moves a number whose gradient is rounding error as far as any other
        assert (theirs[name] - ours[name]).norm() <= 1e-4 * ours[name].norm(), name


CONTINUED = {name: CASES[name] for name in ("Muon", "MoE")}


@pytest.fixture(scope="module")
def by_two(tmp_path_factory):
    """All that two processes are asked for, at once: to start them takes longest. Stores by what was done there."""
    folder = tmp_path_factory.mktemp("together")
    stores = {name: RunStore(folder / name / "runs") for name in ("copied", "two first", "one first")}
    for cfg in CONTINUED.values():
        stopped(cfg, stores["one first"], at=2)
    stores["copied"].path.mkdir(parents=True)
    stores["copied"].partial(CASES["Muon"].key).write_bytes(b"no checkpoint")
    half, rest = job(CONTINUED, stores["two first"], stop_at=2), job(CONTINUED, stores["one first"])
    together(folder, job(CASES, stores["copied"]), half, rest)
    return stores


def test_two_processes_train_what_one_does(alone, by_two):
    for name, cfg in CASES.items():
        result = by_two["copied"].find(cfg)
        assert_same(alone[name], result)
        assert result.provenance["processes"] == 2 and "processes" not in alone[name].provenance
    assert len(list(by_two["copied"].path.glob("*.corrupt-1"))) == 1  # what was damaged is set aside by all


@pytest.mark.long
@pytest.mark.parametrize("compiled", [False, True])
def test_matrices_that_do_not_divide_among_three(tmp_path, compiled):
    cfg = small_run(train={**FP32, "batch": 6}, optim=MUON, model={"prelude": 2})
    one, store = train(cfg, RunStore(tmp_path / "alone" / "runs")), RunStore(tmp_path / "runs")
    together(tmp_path, job({"": cfg}, store, compiled=compiled), processes=3)
    assert_same(one, store.find(cfg))
    assert store.find(cfg).provenance["compiled"] == compiled


def test_a_checkpoint_of_two_processes_is_continued_by_one_and_the_other_way_round(alone, by_two):
    two_first, one_first = by_two["two first"], by_two["one first"]
    for name, cfg in CONTINUED.items():
        assert two_first.find(cfg) is None and two_first.partial(cfg.key).exists()
        steps = []
        assert_same(alone[name], train(cfg, two_first, progress=lambda step, loss, steps=steps: steps.append(step)))
        assert steps == [2, 3, 4]  # the checkpoint is written after a step's progress is told
        assert_same(alone[name], one_first.find(cfg))


def test_rows_that_do_not_divide_are_refused():
    assert [Ranks(rank, 2).rows(8, 16) for rank in (0, 1)] == [range(8, 12), range(12, 16)]
    with pytest.raises(InputError, match=r"^train.batch: 3 rows of a pass do not divide among 2 processes, .*\.?$"):
        Ranks(0, 2).rows(0, 3)
