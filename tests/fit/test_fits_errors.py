"""Fits of a power law are those of closed forms, and what a bound or the data leave open is named."""

import dataclasses
import math

import numpy as np
import pytest

from lib.fit import fits, laws
from lib.fit.fits import fit_chinchilla, fit_joint, fit_saturation
from lib.papers.isodepth.designs import PUBLISHED
from tests.fit.known import huber, iso_depth_grid, joint_arrays, line


@pytest.mark.long
def test_phi_is_unbiased():
    fits = [fit_joint(*joint_arrays(iso_depth_grid(0.005, seed))) for seed in range(60)]
    phis = np.array([f.params["phi"] for f in fits])
    assert abs(phis.mean() - PUBLISHED["phi"]) < 3.5 * phis.std(ddof=1) / math.sqrt(60)


# ---- closed forms: a power law is a straight line in logs ------------------------------------------------------------


def test_squares_of_a_power_law_are_linear_regression():
    T, loss, X = line()
    found = fit_saturation(T, loss, laws.POWER, objective="squares")
    theta = np.linalg.lstsq(X, np.log(loss))[0]
    assert found.theta == pytest.approx(theta) and found.params["Z"] == pytest.approx(np.exp(theta[0]))
    residuals = X @ theta - np.log(loss)
    assert found.residuals == pytest.approx(residuals, abs=1e-9)
    assert found.objective == pytest.approx(huber(residuals))
    assert found.predict(T) == pytest.approx(np.exp(X @ theta))
    assert found.r2 == pytest.approx(1 - np.sum((np.exp(X @ theta) - loss) ** 2) / np.sum((loss - loss.mean()) ** 2))
    assert found.at_bound == found.unidentified == ()


def test_at_hubers_optimum_the_clipped_residuals_balance():
    T, loss, X = line(noise=0.0013)
    found = fit_saturation(T, loss, laws.POWER)
    assert 5 < (np.abs(found.residuals) <= 1e-3).sum() < 25
    assert X.T @ np.clip(found.residuals, -1e-3, 1e-3) == pytest.approx(0, abs=1e-9)


def test_what_is_held_or_on_the_box_is_not_open():
    T, loss, _ = line()
    for values in ({"z": 0.4}, {"Z": 3.0, "z": 0.4}):
        held = fit_saturation(T, loss, laws.hold(laws.POWER, **values))
        assert held.at_bound == held.unidentified == ()
    found = fit_saturation(T, loss, dataclasses.replace(laws.POWER, shapes={"z": (0.5, 20.0)}))
    assert found.at_bound == ("z",) and found.params["z"] == 0.5
    table = fits.table({"boxed": found})
    assert table.loc["boxed", "on a bound"] == "z" and table.loc["boxed", "open"] == ""
    assert table.loc["boxed", "R2"] == found.r2 and table.loc["boxed", "objective"] == found.objective


# ---- what is open ----------------------------------------------------------------------------------------------------


def test_what_the_data_leave_open_is_named():
    # at a fixed number of tokens a parameter, A and B are one amplitude
    N = np.geomspace(1e7, 1e10, 30)
    noise = np.exp(np.random.default_rng(0).normal(0, 0.003, 30))
    found = fit_chinchilla(N, 20 * N, (1.7 + 400 * N**-0.3 + 400 * (20 * N) ** -0.3) * noise)
    assert found.unidentified
    assert not fit_joint(*joint_arrays(iso_depth_grid(0.002))).unidentified
