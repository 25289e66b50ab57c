"""Other ways to fit come as near to our optimum as they can, so that make bench holds ours against no straw men."""

import numpy as np
import pytest

from lib.fit.fits import fit_chinchilla
from tests.fit.rivals import MIDDLE, SCALE, STARTS, TIGHT, grid, lbfgs, misfit, published_runs, refined


@pytest.fixture(scope="module")
def runs():
    return published_runs(4)


@pytest.fixture(scope="module")
def ours(runs):
    return fit_chinchilla(*runs)


def excess(theta, runs, ours) -> float:
    return misfit(theta, *runs) / ours.objective - 1


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
