"""Sampled depths have means that differ from what they are called, and overhead's interval covers the truth."""

import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lib.base.statistics import percentile_interval
from lib.config import ModelConfig
from lib.papers.parcae import depth_sampling
from tests.runs import SMALL


def test_the_means_are_not_what_they_are_called():
    sampled = dict(mean_loops=8, backprop_loops=4, depth="poisson")
    table = depth_sampling.distributions(
        {
            "correction": ModelConfig(**sampled),
            "fill": ModelConfig(**sampled, fill=True),
            "fill, lognormal": ModelConfig(mean_loops=4, backprop_loops=2, depth="lognormal-poisson", fill=True),
        }
    )
    assert table.loc["correction", "mean T"] == pytest.approx(8.0003, abs=1e-4)
    assert table.loc["correction", "sd T"] ** 2 == pytest.approx(7.995, abs=1e-3)
    assert table.loc["fill", "mean T"] == pytest.approx(8) and table.loc["fill", "sd T"] == pytest.approx(2)
    assert table.loc["fill, lognormal", "mean T"] == pytest.approx(5)  # called 4
    assert table["mean k"].tolist()[1:] == pytest.approx([4, 2]) and table.loc["correction", "mean k"] < 4
    assert table.loc["fill", "5 %"] > table.loc["correction", "5 %"]


def test_a_spike_is_what_stands_out_of_the_second_half():
    losses = np.linspace(4, 2, 200)
    assert depth_sampling.highest_spike(losses) < 0.2  # a slope is none
    early, late = losses.copy(), losses.copy()
    early[20] += 3
    late[150] += 0.7
    assert depth_sampling.highest_spike(early) == pytest.approx(depth_sampling.highest_spike(losses))
    assert depth_sampling.highest_spike(late) == pytest.approx(0.7, abs=0.02)


def test_steps_are_timed_in_turns(monkeypatch):
    # by the processor's time, which does not tell what else a machine has to do
    monkeypatch.setattr(depth_sampling, "time", SimpleNamespace(perf_counter=time.process_time))
    cheap = ModelConfig(**{**SMALL, "mean_loops": 1, "depth": "fixed", "backprop_loops": "all"})
    dear = ModelConfig(**{**SMALL, "mean_loops": 24, "depth": "fixed", "backprop_loops": "all"})
    times = depth_sampling.seconds_per_step({"cheap": cheap, "dear": dear}, rows=4, context=32, rounds=5)
    assert times.shape == (5, 2) and times["dear"].median() > 2 * times["cheap"].median() > 0


def test_overhead_is_a_ratio_of_means_and_covers_what_the_depths_make_of_it():
    random = np.random.default_rng(1)
    covered = []
    for _ in range(1500):
        depths = random.poisson(8, size=(30, 1)), random.poisson(8, size=(30, 8)).mean(1, keepdims=True)
        seconds = pd.DataFrame(np.hstack(depths), columns=["per batch", "per sequence"]) + 4.0
        low, high = percentile_interval(depth_sampling.overhead(seconds, "per sequence", "per batch", 500)[1])
        covered.append(low <= 0 <= high)
    assert 0.93 <= np.mean(covered) <= 0.97
    twice = pd.DataFrame({"a": [2.0, 4.0, 6.0], "b": [1.0, 2.0, 3.0]})
    ratio, draws = depth_sampling.overhead(twice, "a", "b")
    assert ratio == pytest.approx(100) and draws == pytest.approx(100)
    assert np.isnan(depth_sampling.overhead(twice[:1], "a", "b")[1]).all()
