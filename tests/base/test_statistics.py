"""Intervals are Student's and the percentiles', and cover as often as they say."""

import math

import numpy as np
import pytest
import scipy.stats

from lib.base import statistics
from lib.base.statistics import Comparison, Interval, all_of, mean_and_interval, percentile_interval, power, replicates


def test_the_interval_is_students():
    mean, low, high = mean_and_interval([1.0, 2.0, 3.0])
    assert (mean, high - mean, mean - low) == pytest.approx((2, 4.302652 / math.sqrt(3), 4.302652 / math.sqrt(3)))
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


def test_a_share_of_successes_has_wilsons_interval():
    low, high = statistics.wilson_interval([0.0, 0.22, 1.0], [50, 50, 8])
    theirs = [scipy.stats.binomtest(k, n).proportion_ci(method="wilson") for k, n in ((0, 50), (11, 50), (8, 8))]
    assert low == pytest.approx([one.low for one in theirs]) and high == pytest.approx([one.high for one in theirs])


NOISES = {
    "normal": lambda random, shape: random.normal(size=shape),
    "heavy-tailed": lambda random, shape: random.standard_t(3, size=shape),  # variance 3, no fourth moment
}


def outcomes(noise, k, n, means, trials=4000, seed=0):
    """(share of "all lie above 0", share of "one lies below 0") where the k comparisons have these means."""
    random = np.random.default_rng([seed, k, n])
    above = below = 0
    for _ in range(trials):
        x = NOISES[noise](random, (k, n)) + np.asarray(means)[:, None]
        found = all_of({str(i): row for i, row in enumerate(x)}).values()
        above += all(one.own.low > 0 for one in found)
        below += any(one.among.high < 0 for one in found)
    return above / trials, below / trials


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("k", "n"), [(1, 3), (3, 12), pytest.param(10, 3, marks=pytest.mark.long)])
def test_all_of_them_errs_at_most_one_time_in_forty_either_way(noise, k, n):
    _, below = outcomes(noise, k, n, [0.0] * k)  # no effect anywhere: the worst case for "one lies below"
    above, _ = outcomes(noise, k, n, [0.0] + [1e3] * (k - 1))  # one alone has none: the worst case for "all lie above"
    allowed = 0.025 + 3 * math.sqrt(0.025 * 0.975 / 4000)
    assert below < allowed and above < allowed


def test_all_of_them_is_what_each_of_them_is():
    found = all_of({"a": [1.0, 2.0, 3.0], "b": [4.0, 4.5, 5.0]})["a"]
    assert found == (mean_and_interval([1.0, 2.0, 3.0]), mean_and_interval([1.0, 2.0, 3.0], 0.975))
    draws = np.arange(1001) / 1000
    resampled = statistics.all_resampled({"a": 0.5, "b": 0.4}, {"a": draws, "b": draws})["b"]
    assert resampled == ((0.4, *percentile_interval(draws)), (0.4, *percentile_interval(draws, 0.975)))


@pytest.mark.parametrize(("effect", "spread", "n"), [(1.0, 1.0, 5), (0.5, 1.0, 12), (2.0, 1.0, 3)])
def test_power_is_how_often_the_interval_lies_above_zero(effect, spread, n):
    random = np.random.default_rng(0)
    found = np.mean([mean_and_interval(random.normal(effect, spread, n))[1] > 0 for _ in range(4000)])
    assert power(effect, spread, n) == pytest.approx(found, abs=3 * math.sqrt(0.25 / 4000))


def test_replicates_are_the_fewest_that_have_the_power():
    for effect, spread in ((1.0, 1.0), (0.3, 1.0), (5.0, 0.5)):
        n = replicates(effect, [spread])
        assert power(effect, spread, n) >= 0.8 > power(effect, spread, n - 1)
    assert replicates(1.0, [1.0]) == 10  # textbooks: 9.9 of a two-sided t-test at d = 1
    assert replicates(1.0, [1.0, 1.0, 1.0]) > replicates(1.0, [1.0, 0.1]) > replicates(1.0, [1.0]) - 1
    assert replicates(1.0, [0.0]) == 2
    assert replicates(1e-4, [1.0]) is None and replicates(0.0, [1.0]) is None and replicates(1.0, [math.nan]) is None


def test_fresh_means_scatter_as_the_predictive_distribution_says():
    """The mean of n fresh seeds lies around the mean of n by sqrt(2 / n) of the spread, by Student's t."""
    values = [0.0, 1.0, 2.0, 3.0]
    means = np.array([draw[""].mean() for draw in statistics.fresh_draws({"": values}, 20_000)])
    half = mean_and_interval(values)[2] - 1.5
    assert np.mean(np.abs(means - 1.5) < half * math.sqrt(2)) == pytest.approx(0.95, abs=0.01)


def test_a_fresh_grid_lies_around_this_one_by_two_errors():
    one = Interval(0.5, 0.5 - 1.959964, 0.5 + 1.959964)  # a standard error of 1
    found = statistics.fresh_resamples({"phi": Comparison(one, one)}, 20_000)
    means = np.array([draw["phi"].own.mean for draw in found])
    assert means.mean() == pytest.approx(0.5, abs=0.03) and means.std() == pytest.approx(math.sqrt(2), rel=0.02)
    assert all(draw["phi"].own.high - draw["phi"].own.low == pytest.approx(2 * 1.959964) for draw in found[:5])
