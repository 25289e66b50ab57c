"""Runs of a few steps, what is compared of them, and ways to stop one."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch

import lib
from lib.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig
from lib.store.result import ENDS, FOLLOWED, WHO, RunResult
from lib.store.runs import RunStore
from lib.sweep.finished import at_depths, depth_frame, losses_by_depth
from lib.sweep.measurements import measure
from lib.train.loop import train

SMALL = dict(width=32, heads=2, mlp_width=64, context=32, mean_loops=4, backprop_loops=2, depth="poisson")


def small_run(model=None, data=None, optim=None, train=None) -> RunConfig:
    """A run of a few steps in fp32 on the first 300 kB of the default text; the arguments change fields."""
    return RunConfig(
        model=ModelConfig(**{**SMALL, **(model or {})}),
        data=DataConfig(**{"context": 32, "val_rows": 16, "max_bytes": 300_000, **(data or {})}),
        optim=OptimConfig(**{"lr": 4e-3, **(optim or {})}),
        train=TrainConfig(**{"steps": 6, "batch": 4, "precision": "fp32", **(train or {})}),
    )


def native_run(train=None, **parts) -> RunConfig:
    """The same in this machine's precision."""
    return small_run(train={"precision": "auto", **(train or {})}, **parts)


def text_config(**changes) -> DataConfig:
    """The first 300 kB of the default text in short rows; the arguments change fields."""
    return DataConfig(**{"context": 32, "val_rows": 8, "max_bytes": 300_000, **changes})


def numbers(result):
    """Everything but the clock."""
    metrics = {k: [None if x != x else x for x in v] for k, v in result.metrics.items() if k != "tokens_per_s"}
    return metrics, {k: v for k, v in result.summary.items() if k != "seconds"}, result.status


def same_weights(a, b):
    a, b = (safetensors.torch.load_file(r.path / "model.safetensors") for r in (a, b))
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


# ---- runs that nobody trained ----------------------------------------------------------------------------------------


def ended(cfg: RunConfig, loss: float | None) -> SimpleNamespace:
    """What a sweep finds of a run; None: it diverged."""
    status, summary = ("diverged", {}) if loss is None else ("finished", {"val_loss": loss})
    return SimpleNamespace(key=cfg.key, config=cfg, status=status, summary=summary)


def made_up(cfg: RunConfig, status: str = "finished", **summary) -> RunResult:
    """As a training leaves it, with numbers that no decimal of few digits is; some of its end may be given."""
    done = cfg.train.steps
    ends = {column.name: 0.1 + 0.2 for column in ENDS} | {"rho": math.nan, "steps_done": done, "tokens": cfg.tokens}
    ends |= summary
    metrics = {name: [*[1 / 3] * (done - 1), ends.get(name, 1.0)] for name in FOLLOWED}
    metrics |= {"step": [*range(1, done + 1)], "val_loss": [*[math.nan] * (done - 1), ends["val_loss"]]}
    made = {"recipe": lib.RECIPE, "attention": "x", "text": {"documents": 3, "parts": [{"folder": "."}]}}
    return RunResult(cfg.planned, status, ends, metrics, {**made, "compiled": False, **WHO_MADE_UP})


WHO_MADE_UP = dict.fromkeys(WHO, "x")


def untrained(cfg: RunConfig, store: RunStore, **summary) -> RunResult:
    """A made-up run in a store."""
    return store.finish(made_up(cfg, **summary), lambda path: safetensors.torch.save_file({}, path))


# ---- runs that end early ---------------------------------------------------------------------------------------------


def stopped(cfg: RunConfig, store: RunStore, at: int = 4) -> Path:
    """Trains until it is stopped in step ``at``; the checkpoint that it leaves, which is of the step before."""

    def stop(step, loss):
        if step == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(cfg, store, checkpoint_seconds=0, progress=stop)
    return store.partial(cfg.key)


def sweeping(configs: list[RunConfig], runs: Path, how: str) -> str:
    """A program that trains them in a store."""
    listed = [cfg.model_dump(mode="json") for cfg in configs]
    lines = ["from lib.config import RunConfig", "from lib.store.runs import RunStore"]
    lines += ["from lib.sweep.training import sweep", "if __name__ == '__main__':"]
    return "\n".join([*lines, f"    sweep([RunConfig(**c) for c in {listed!r}], RunStore({str(runs)!r}), {how})\n"])


# ---- records ---------------------------------------------------------------------------------------------------------


def records_alone(records: Path, place: Path) -> RunStore:
    """A store that has nothing itself but reads these records; what it writes goes below ``place``."""
    return RunStore(place / "nothing" / "runs", records=[records])


def depth_losses(configs, store, depths, state_seed=0):
    """Losses by depth of runs in a store, measured here where they are not known: a frame."""
    cases = at_depths(configs, store, depths, state_seed)
    return depth_frame(cases, measure(losses_by_depth, cases, store, jobs=1))


def several(n=3, **train_changes) -> list[RunConfig]:
    """Small runs that differ in their seed."""
    return [small_run(train={"seed": seed, **train_changes}) for seed in range(n)]


def same(a, b) -> bool:
    """Whether two values are the same to the last digit; so are two nans, and 1 is not 1.0."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)
