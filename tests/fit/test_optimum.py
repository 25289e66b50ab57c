"""The minimiser's gradient is that of its objective, and it ends below every start, where the gradient is zero."""

import dataclasses

import numpy as np
import pytest

from lib.fit import laws
from lib.fit.optimum import DELTA, STARTS, Problem, minimum, starts
from lib.papers.isodepth.designs import PUBLISHED
from tests.fit.known import iso_depth_grid


def problem(law=laws.JOINT, noise=0.01, delta=DELTA, sets=1) -> Problem:
    grid = iso_depth_grid()
    loss = grid["loss"].to_numpy() * np.exp(np.random.default_rng(0).normal(0, noise, (sets, len(grid))))
    weights = np.random.default_rng(1).integers(0, 3, (sets, len(grid))).astype(float)
    return Problem.of(law, [grid[name].to_numpy(float) for name in law.inputs], loss, delta, weights)


def theta(**changes) -> np.ndarray:
    p = {**PUBLISHED, **changes}
    shapes = [p[name] for name in ("alpha", "beta", "phi", "c") if name in p]
    return np.array([[*np.log([p["A"], p["B"], p["E"]]), *shapes]])


COUPLED = laws.coupled(laws.JOINT, "free")


@pytest.mark.parametrize("delta", [1e-3, np.inf])
@pytest.mark.parametrize(("law", "coupling"), [(laws.JOINT, {}), (COUPLED, {"c": 0.4}), (COUPLED, {"c": 1.7})])
def test_the_gradient_is_that_of_the_objective(law, coupling, delta):
    ours, at, step = problem(law, delta=delta), theta(phi=0.6, alpha=0.21, **coupling), 1e-6
    (gradient,), _, (J,) = ours.derivatives(at)
    numeric = np.zeros_like(gradient)
    for i in range(len(gradient)):
        ends = [ours.residuals(at + sign * step * np.eye(len(gradient))[i])[0] for sign in (1, -1)]
        numeric[i] = float(ours.value(ends[0][None])[0] - ours.value(ends[1][None])[0]) / (2 * step)
        np.testing.assert_allclose(J[i], (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5)


@pytest.mark.parametrize("delta", [1e-3, np.inf])
@pytest.mark.parametrize("coupling", [[], [0.4], [1.7]])
def test_the_hessian_is_that_of_the_objective_where_shapes_enter_linearly(coupling, delta):
    law = laws.coupled(laws.CHINCHILLA, "free" if coupling else 1)
    ours, step, at = problem(law, delta=delta), 1e-5, np.append(theta(alpha=0.21)[:, :5], [coupling], 1)
    _, (hessian,), _ = ours.derivatives(at)
    units = step * np.eye(at.shape[1])
    around = [ours.derivatives(at + sign * unit)[0][0] for unit in units for sign in (1, -1)]
    numeric = [(after - before) / (2 * step) for after, before in zip(around[::2], around[1::2], strict=True)]
    np.testing.assert_allclose(hessian, numeric, rtol=1e-4, atol=1e-6 * np.abs(hessian).max())


def test_starts_lie_in_the_box_and_the_minimum_below_them():
    ours = problem()
    begin, of = starts(ours)
    assert len(begin) > STARTS and not of.any() and ((ours.low <= begin) & (begin <= ours.high)).all()
    end, each = minimum(ours, begin, of), ours.take(of)
    assert ours.value(ours.residuals(end)) <= each.value(each.residuals(begin)).min()
    gradient, _, _ = ours.derivatives(end)
    assert np.abs(gradient).max() < 1e-8


def test_at_a_bound_the_others_end_where_they_do_with_the_parameter_held_there():
    ours = problem()
    high = ours.high.copy()
    high[:, 5] = 0.2  # phi, which the losses want higher
    bounded, held = dataclasses.replace(ours, high=high), problem(laws.hold(laws.JOINT, phi=0.2))
    end, alone = (minimum(one, *starts(one)) for one in (bounded, held))
    assert end[0, 5] == 0.2
    np.testing.assert_allclose(end, alone, rtol=1e-8)


@pytest.mark.parametrize("delta", [1e-3, np.inf])
def test_many_sets_at_once_end_where_each_does_by_itself(delta):
    """Each has its own losses, weights and box."""
    many = problem(delta=delta, sets=40)
    low, high = many.low.copy(), many.high.copy()
    low[::4, 5] = high[::4, 5] = np.linspace(0, 1, 10)  # phi of every fourth
    many = dataclasses.replace(many, low=low, high=high)
    together = minimum(many, *starts(many))
    for s in range(40):
        one = many.take(np.array([s]))
        alone = minimum(one, *starts(one))
        assert many.value(many.residuals(together))[s] == pytest.approx(one.value(one.residuals(alone))[0], rel=1e-9)
    assert (together[::4, 5] == np.linspace(0, 1, 10)).all() and np.std(together[1::4, 5]) > 0
