"""What many tests need: a small run on real text, and a store to keep it in."""

import subprocess
import sys
from pathlib import Path

import pytest

from lib.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig
from lib.store import RunStore

ROOT = Path(__file__).parent.parent

SMALL = dict(width=32, heads=2, mlp_width=64, context=32, mean_loops=4, backprop_loops=2, depth="poisson")


def small_run(model=None, data=None, optim=None, train=None) -> RunConfig:
    """A run of a few steps on the first 300 kB of the default text; the arguments change fields."""
    return RunConfig(
        model=ModelConfig(**{**SMALL, **(model or {})}),
        data=DataConfig(**{"context": 32, "val_rows": 16, "max_bytes": 300_000, **(data or {})}),
        optim=OptimConfig(**{"lr": 4e-3, **(optim or {})}),
        train=TrainConfig(**{"steps": 6, "batch": 4, **(train or {})}),
    )


@pytest.fixture
def store(tmp_path) -> RunStore:
    return RunStore(tmp_path / "runs")


def python(code: str, **options) -> subprocess.Popen:
    """A fresh interpreter running ``code``, as another user's process would."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, **options}
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, **options)


@pytest.fixture
def style():
    """The look of figures, and none of them left open."""
    from matplotlib import pyplot

    from lib import plots

    plots.use_style("smoke")
    yield
    pyplot.close("all")
