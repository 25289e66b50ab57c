"""Other ways to fit come as near to our optimum as they can, so that make bench holds ours against no straw men."""

import numpy as np
import pytest

from lib.fit import laws
from lib.fit.fits import fit, fit_chinchilla
from tests.fit.known import huber
from tests.fit.rivals import (
    MIDDLE,
    SCALE,
    STARTS,
    TIGHT,
    grid,
    lbfgs,
    misfit,
    projected,
    published_runs,
    refined,
    terms,
)


@pytest.fixture(scope="module")
def runs():
    return published_runs(4)


@pytest.fixture(scope="module")
def ours(runs):
    return fit_chinchilla(*runs)


def excess(theta, runs, ours) -> float:
    return misfit(theta, *runs) / ours.objective - 1


def test_all_have_our_objective_and_the_published_runs(runs, ours):
    assert [len(x) for x in runs] == [29] * 3
    assert ours.names == ("A", "B", "E", "alpha", "beta")
    assert misfit(ours.theta, *runs) == pytest.approx(ours.objective, rel=1e-12)


def test_projected_amplitudes_are_our_fit_with_the_exponents_held(runs):
    held = fit(laws.hold(laws.CHINCHILLA, alpha=0.25, beta=0.35), runs[:2], runs[2])
    x = terms(0.25, 0.35, *runs[:2])
    for passes, near in ((10, 1e-6), (100, 1e-12)):
        amplitudes, residuals = projected(x, runs[2], passes)
        assert huber(residuals) == pytest.approx(held.objective, rel=near)
        np.testing.assert_allclose(residuals, np.log(x @ amplitudes / runs[2]), atol=1e-12)


def test_a_grid_ends_within_its_step_and_refined_at_our_optimum(runs, ours):
    best = grid(*runs, step=0.01)
    assert np.abs(best[3:] - ours.theta[3:]).max() < 0.01
    assert 0 < excess(best, runs, ours) < 1e-3
    assert -1e-9 < excess(refined(*runs), runs, ours) <= excess(best, runs, ours)
    assert abs(excess(refined(*runs, passes=100), runs, ours)) < 1e-9


def test_many_tight_starts_end_at_our_optimum(runs, ours):
    assert len(STARTS) == 4500
    for starts in ([MIDDLE], STARTS[::47]):
        assert abs(excess(lbfgs(*runs, starts, SCALE, **TIGHT), runs, ours)) < 1e-9


def test_scipys_own_tolerances_stop_early(runs, ours):
    """They are absolute and the objective is small, as Besiroglu et al. (arXiv 2404.10102) found of the first fit."""
    assert excess(lbfgs(*runs, [MIDDLE]), runs, ours) > 0.5
    assert excess(lbfgs(*runs, STARTS[::47]), runs, ours) > 1e-6
