"""The minimiser's gradient is that of its objective, and it ends below every start, where the gradient is zero."""

import numpy as np
import pytest

from lib.fit import laws
from lib.fit.optimum import DELTA, Problem, minimum, newton, starts
from lib.papers.isodepth.designs import PUBLISHED, published_grid


def problem(law=laws.JOINT, noise=0.01, delta=DELTA) -> Problem:
    grid = published_grid()
    loss = grid["loss"].to_numpy() * np.exp(np.random.default_rng(0).normal(0, noise, len(grid)))
    weights = np.random.default_rng(1).integers(0, 3, len(grid)).astype(float)
    return Problem(law, [grid[name].to_numpy(float) for name in law.inputs], loss, weights, delta)


def theta(**changes) -> np.ndarray:
    p = {**PUBLISHED, **changes}
    return np.array([*np.log([p["A"], p["B"], p["E"]]), p["alpha"], p["beta"], p["phi"]])


def test_residuals_are_the_laws_log_loss_minus_the_datas():
    ours = problem(noise=0.0)
    np.testing.assert_allclose(ours.residuals(theta()), 0, atol=1e-12)
    np.testing.assert_allclose(
        ours.residuals(theta(E=0.5)), np.log(laws.JOINT.loss({**PUBLISHED, "E": 0.5}, *ours.inputs)) - ours.log_loss
    )


@pytest.mark.parametrize("delta", [1e-3, np.inf])
def test_the_gradient_is_that_of_the_objective(delta):
    ours, at, step = problem(delta=delta), theta(phi=0.6, alpha=0.21), 1e-6
    gradient, _, J = ours.derivatives(at)
    numeric = np.zeros_like(at)
    for i in range(len(at)):
        ends = [ours.residuals(at + sign * step * np.eye(len(at))[i]) for sign in (1, -1)]
        numeric[i] = (ours.value(ends[0]) - ours.value(ends[1])) / (2 * step)
        np.testing.assert_allclose(J[i], (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5)


def test_huber_is_a_square_inside_and_a_line_outside():
    ours = problem()
    ours.weights = np.array([1.0, 2.0])
    small, large = DELTA / 2, 10 * DELTA
    assert ours.value(np.array([small, -large])) == pytest.approx(small**2 / 2 + 2 * DELTA * (large - DELTA / 2))


def test_starts_lie_in_the_box_and_the_minimum_below_them():
    ours = problem()
    begin = starts(ours)
    assert all(((ours.low <= start) & (start <= ours.high)).all() for start in begin)
    end = minimum(ours, begin)
    assert ours.value(ours.residuals(end)) <= min(ours.value(ours.residuals(start)) for start in begin)
    gradient, _, _ = ours.derivatives(end)
    assert np.abs(gradient).max() < 1e-8


def test_parameters_without_room_stay_where_they_are():
    held = laws.hold(laws.JOINT, **{name: value for name, value in PUBLISHED.items() if name != "phi"})
    ours = problem(held, noise=0.0)
    end, value = newton(ours, theta(phi=-1.0))
    np.testing.assert_allclose(end, theta(), rtol=1e-8)
    assert value < 1e-20
