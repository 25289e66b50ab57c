"""The optimum of a parabola in log x and power laws through points are those of closed forms, with their errors."""

import math

import numpy as np
import pytest
import scipy.optimize

from lib.base.errors import InputError
from lib.fit.fits import isoflop_optimum, power_law
from tests.lines import one_line


def test_the_optimum_of_a_parabola_in_log_x():
    x = np.geomspace(1e7, 1e9, 7)
    best, loss, stderr = isoflop_optimum(x, 3 + 0.02 * (np.log(x) - np.log(2e8)) ** 2)
    assert best == pytest.approx(2e8) and loss == pytest.approx(3) and stderr == pytest.approx(0, abs=1e-3)
    assert math.isnan(isoflop_optimum(x[:3], (np.log(x[:3]) - 18) ** 2)[2])


def test_the_stderr_of_an_optimum_is_that_of_a_parabola_around_it():
    x, random = np.array([1e7, 1.5e7, 4e7, 3e8, 1e9]), np.random.default_rng(1)  # not even in log x
    loss = 3 + 0.02 * np.log(x / 1.3e8) ** 2 + random.normal(0, 0.002, 5)
    found = isoflop_optimum(x, loss)
    start = np.log(found[0]), found[1], 0.02
    theta, covariance = scipy.optimize.curve_fit(
        lambda logs, best, least, a: least + a * (logs - best) ** 2, np.log(x), loss, start, ftol=1e-15, xtol=1e-15
    )
    assert found[:2] == pytest.approx((np.exp(theta[0]), theta[1]), rel=1e-6)
    assert found[2] == pytest.approx(np.exp(theta[0]) * covariance[0, 0] ** 0.5, rel=1e-4)
    assert all(math.isfinite(number) for number in isoflop_optimum(x[:4], loss[:4]))
    # in other units of x it is the same optimum
    assert isoflop_optimum(x * 1e3, loss) == pytest.approx((found[0] * 1e3, found[1], found[2] * 1e3), rel=1e-6)


def test_an_optimum_may_lie_outside_the_points_but_not_beyond_reason():
    x = np.exp([0.0, 1, 2, 3])
    for a in (0.02, 1, 20):
        assert isoflop_optimum(x, a * (np.log(x) + 50) ** 2)[0] == pytest.approx(np.exp(-50), rel=1e-3)
        for away in (150, -150):
            with pytest.raises(InputError, match="has no minimum"):
                isoflop_optimum(x, a * (np.log(x) - away) ** 2)


def test_power_laws():
    x = np.geomspace(1, 1e6, 9)
    assert power_law(x, 3 * x**0.52)[:2] == pytest.approx((3, 0.52))
    random = np.random.default_rng(0)
    found = [power_law(x, 3 * x**0.52 * np.exp(random.normal(0, 0.1, 9))) for _ in range(300)]
    assert np.sqrt(np.mean([f[2] ** 2 for f in found])) == pytest.approx(np.std([f[1] for f in found]), rel=0.15)
    assert math.isnan(power_law([1, 2], [1, 4])[2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: isoflop_optimum([1, 1, 2], [1, 2, 2]), "needs three different points with a loss each, there are 2"),
        (lambda: isoflop_optimum([1, 2, 3, 4], [1, 2, 2, 1]), "loss: has no minimum over these x, widen"),
        (lambda: isoflop_optimum([1, 2, 3], [1, np.nan, 2]), "x: values must be positive and losses finite"),
        (lambda: power_law([1, 2, 3], [1, 2]), "a power law needs two points"),
        (lambda: power_law([1, 0], [1, 2]), "x: values must be positive and finite"),
        (lambda: power_law([2, 2], [1, 3]), "x: is 2 in every point"),
    ],
)
def test_bad_points_are_one_line(call, message):
    with one_line(message):
        call()
