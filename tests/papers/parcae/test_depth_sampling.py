"""Rules are timed in turns, and overhead's interval covers the truth."""

import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lib.base.statistics import percentile_interval
from lib.config import ModelConfig
from lib.papers.parcae import depth_sampling
from tests.cells import function
from tests.runs import SMALL


def test_steps_are_timed_in_turns(monkeypatch):
    # by the processor's time, which does not tell what else a machine has to do
    monkeypatch.setattr(depth_sampling, "time", SimpleNamespace(perf_counter=time.process_time))
    cheap = ModelConfig(**{**SMALL, "mean_loops": 1, "depth": "fixed", "backprop_loops": "all"})
    dear = ModelConfig(**{**SMALL, "mean_loops": 24, "depth": "fixed", "backprop_loops": "all"})
    times = depth_sampling.seconds_per_step(
        {"cheap": cheap, "dear": dear}, rows=4, context=32, rounds=5, precision="fp32"
    )
    assert times.shape == (5, 2) and times["dear"].median() > 2 * times["cheap"].median() > 0


overhead = function("depth_sampling", "overhead")


def test_overhead_is_a_ratio_of_means_and_covers_what_the_depths_make_of_it():
    random = np.random.default_rng(1)
    covered = []
    for _ in range(1500):
        depths = random.poisson(8, size=(30, 1)), random.poisson(8, size=(30, 8)).mean(1, keepdims=True)
        seconds = pd.DataFrame(np.hstack(depths), columns=["per batch", "per sequence"]) + 4.0
        low, high = percentile_interval(overhead(seconds, "per sequence", "per batch", 500)[1])
        covered.append(low <= 0 <= high)
    assert 0.93 <= np.mean(covered) <= 0.97
    twice = pd.DataFrame({"a": [2.0, 4.0, 6.0], "b": [1.0, 2.0, 3.0]})
    ratio, draws = overhead(twice, "a", "b")
    assert ratio == pytest.approx(100) and draws == pytest.approx(100)
    assert np.isnan(overhead(twice[:1], "a", "b")[1]).all()
