"""A permutation's p-value is what counting all signs gives, and errs as often as it says."""

import itertools

import numpy as np
import pytest

from lib.base.permutation import p_above


def test_all_signs_are_counted():
    values = [0.3, -0.1, 0.5, 0.2]
    means = [np.dot(signs, values) for signs in itertools.product((1, -1), repeat=4)]
    assert p_above(values) == np.mean([mean >= sum(values) - 1e-12 for mean in means]) == 2 / 16
    assert p_above([1.0] * 6) == 1 / 64 and p_above([-1.0] * 6) == 1.0
    assert p_above([3.0, 3.1, 2.9], at=2.0) == 1 / 8 and p_above([0.0, 0.0]) == 1.0


def test_many_numbers_are_sampled_and_agree_with_the_count():
    random = np.random.default_rng(0)
    values = random.normal(0.4, 1.0, 13)
    signs = 1 - 2 * (np.arange(2**13)[:, None] >> np.arange(13) & 1)
    exact = np.mean(signs @ values >= values.sum() - 1e-12)
    assert p_above(values) == pytest.approx(exact, abs=4 * np.sqrt(exact / 4096))


@pytest.mark.parametrize("noise", ["normal", "cauchy"])
def test_it_errs_one_time_in_forty(noise):
    random = np.random.default_rng(0)
    draw = random.normal if noise == "normal" else lambda size: random.standard_cauchy(size)
    share = np.mean([p_above(draw(size=8)) <= 0.025 for _ in range(3000)])
    assert 0.01 < share <= 0.025 + 3 * np.sqrt(0.025 / 3000)
