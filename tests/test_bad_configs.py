"""A bad field of a config or a preset is refused in one line with a remedy; more of them stand in test_config.py."""

import math

import pytest

from lib.base.processes import processes
from lib.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig
from lib.presets import optimizer, preset
from tests.lines import refused
from tests.runs import small_run

pytestmark = pytest.mark.precision

NAN = math.nan

CONFIGS = [
    (lambda: ModelConfig(vocab_size=5 * 10**9), "vocab_size: 5000000000 does not fit tokens of 32 bits", "use at most"),
    (lambda: ModelConfig(width=2**70), "width:", "less than or equal to"),
    (lambda: ModelConfig(width=64.0), "width:", "valid integer (got 64.0)"),
    (lambda: ModelConfig(width=True), "width:", "valid integer (got True)"),
    (lambda: ModelConfig(prelude=10**9), "prelude:", "less than or equal to"),
    (lambda: ModelConfig(mean_loops=10**12), "mean_loops:", "less than or equal to"),
    (lambda: ModelConfig(backprop_loops="quarter"), "backprop_loops", "'half' or 'all'"),
    (lambda: ModelConfig(injection="add", state_init="prelude"), "state_init:", "use 'zero'"),
    (lambda: ModelConfig(value_embeddings=True, width=16), "value_embeddings:", "widen it"),
    (lambda: ModelConfig(softcap=NAN), "softcap:", "finite number"),
    (lambda: ModelConfig(init_std=0.5), "init_std:", "use init='normal'"),
    (lambda: OptimConfig(lr="1e-3"), "lr:", "valid number (got '1e-3')"),
    (lambda: OptimConfig(betas=(0.9,)), "betas.1:", "add it"),
    (lambda: OptimConfig(betas=(NAN, 0.9)), "betas.0:", "finite number"),
    (lambda: OptimConfig(reference_depth=6), "reference_depth:", "use scaling='depth-loop'"),
    (lambda: OptimConfig(name="muonh", muon_cautious=True), "name:", "leave muon_*"),
    (lambda: OptimConfig(momentum=0.9), "momentum:", "remove it or correct its spelling"),
    (lambda: TrainConfig(precision="fp16"), "precision:", "'fp32', 'bf16', 'bf16-mixed' or 'auto'"),
    (lambda: TrainConfig(steps=0), "steps:", "greater than or equal to 1"),
    (lambda: TrainConfig(seed=-1), "seed:", "greater than or equal to 0"),
    (lambda: TrainConfig(batch=8, micro_batch=16), "micro_batch: 16", "use a divisor"),
    (lambda: DataConfig(val_fraction=NAN), "val_fraction:", "finite number"),
    (lambda: DataConfig(max_bytes=0), "max_bytes:", "greater than or equal to 1"),
    (lambda: DataConfig(content="../../elsewhere"), "content:", "match pattern"),
    (lambda: RunConfig(model=None), "model:", "valid dictionary or instance of ModelConfig"),
    (lambda: RunConfig(steps=3), "steps:", "remove it or correct its spelling"),
    (lambda: small_run().replace(lr=3.0), "lr:", "remove it or correct its spelling"),
    (lambda: small_run(optim={"cooldown_steps": 7}), "optim.warmup_steps:", "shorten them"),
    (lambda: small_run(data={"context": 64}), "model.context: 32", "raise it"),
    (lambda: preset("parcae-140M"), "preset: 'parcae-140M' is not known", "use one of parcae-140m"),
    (lambda: preset(None), "preset: None is not known", "use one of"),
    (lambda: preset("parcae-140m", widht=3), "widht:", "correct its spelling"),
    (lambda: optimizer("parcae-140m", 0), "steps: 0", "at least 1"),
    (lambda: processes(-1), "jobs: -1", "at least 1"),
]


@pytest.mark.parametrize(("make", "words"), [(make, words) for make, *words in CONFIGS])
def test_a_config(make, words):
    refused(make, *words)
