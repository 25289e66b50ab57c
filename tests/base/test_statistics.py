"""Intervals are Student's and the percentiles', and cover as often as they say."""

import math

import numpy as np
import pytest

from lib.base.statistics import mean_and_interval, percentile_interval


def test_the_interval_is_students():
    mean, low, high = mean_and_interval([1.0, 2.0, 3.0])
    assert (
        mean == 2 and high - mean == pytest.approx(4.302652 / math.sqrt(3)) and mean - low == pytest.approx(high - mean)
    )
    assert mean_and_interval([1.0]) == (1.0, -math.inf, math.inf)
    assert math.isnan(mean_and_interval([1.0, math.nan])[0]) and mean_and_interval([1.0, math.inf])[1] == -math.inf


def test_the_interval_covers_its_mean_nineteen_times_in_twenty():
    random = np.random.default_rng(0)
    inside = 0
    for _ in range(2000):
        _, low, high = mean_and_interval(random.normal(1.0, 2.0, size=3).tolist())
        inside += low <= 1.0 <= high
    assert 0.935 < inside / 2000 < 0.965


def test_percentiles_leave_out_as_much_on_either_side():
    draws = np.random.default_rng(0).permutation(1001) / 1000
    assert percentile_interval(draws) == pytest.approx((0.025, 0.975))
    assert percentile_interval(draws, 0.5) == pytest.approx((0.25, 0.75))
