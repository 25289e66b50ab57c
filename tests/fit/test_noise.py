"""Draws of noise are as wide as what is known of it: percentiles are Student's t."""

import math

import numpy as np
import pytest
import scipy.stats

from lib.fit.noise import Noise


def test_noise_is_what_is_left_over_a_degree_of_freedom():
    noise = Noise.left_over([[0.1, -0.1], [0.2]], 1)
    assert noise == (pytest.approx(0.03), 2)
    nothing = Noise.left_over([[0.0, 0.0]], 2)
    assert math.isnan(nothing.variance) and nothing.freedom == 0
    assert np.isnan(nothing.draws(3, 2, np.random.default_rng(0))).all()


def test_percentiles_of_draws_are_students_t():
    draws = Noise(4.0, 3).draws(200_000, 2, np.random.default_rng(0))
    assert draws.shape == (200_000, 2)
    for share in (0.025, 0.2, 0.9):
        assert np.quantile(draws[:, 0], share) == pytest.approx(2 * scipy.stats.t.ppf(share, 3), rel=0.03)
    # the runs of a grid share its variance: a large one is large in all
    assert np.corrcoef(np.abs(draws).clip(0, 20).T)[0, 1] > 0.1 and abs(np.corrcoef(draws.clip(-20, 20).T)[0, 1]) < 0.02
