"""Standard errors are the spread and those of closed forms, and what a bound or the data leave open is named."""

import dataclasses
import math

import numpy as np
import pytest

from lib.fit import fits, laws
from lib.fit.fits import fit, fit_chinchilla, fit_joint, fit_saturation
from lib.papers.isodepth.designs import PUBLISHED
from tests.fit.known import huber, iso_depth_grid, joint_arrays, line

# ---- the spread over noise -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def over_noise():
    """The joint law on sixty draws of the noise."""
    return [fit_joint(*joint_arrays(iso_depth_grid(0.005, seed))) for seed in range(60)]


@pytest.mark.long
def test_standard_errors_are_the_spread_over_noise(over_noise):
    for name in ("alpha", "beta", "phi"):
        spread = np.std([f.params[name] for f in over_noise], ddof=1)
        assert np.mean([f.stderr[name] for f in over_noise]) == pytest.approx(spread, rel=0.45), name


@pytest.mark.long
def test_phi_is_unbiased(over_noise):
    phis = np.array([f.params["phi"] for f in over_noise])
    assert abs(phis.mean() - PUBLISHED["phi"]) < 3.5 * phis.std(ddof=1) / math.sqrt(60)


HELD = ("A", "B", "E", "alpha", "beta")


def phi_alone(*arrays):
    held = laws.hold(laws.JOINT, **{name: PUBLISHED[name] for name in HELD})
    return fit(held, arrays[:-1], arrays[-1])


def test_held_parameters_have_no_error_and_phi_has_its_own():
    for ours in (phi_alone(*joint_arrays(iso_depth_grid(0.01, seed))) for seed in range(5)):
        assert all(ours.stderr[name] == 0 for name in HELD) and ours.stderr["phi"] > 0
        assert ours.unidentified == () == ours.at_bound
    few = [np.asarray(x)[:3] for x in joint_arrays(iso_depth_grid())]
    assert phi_alone(*few).params["phi"] == pytest.approx(PUBLISHED["phi"], rel=1e-6)


@pytest.mark.long
def test_the_error_of_phi_alone_is_its_spread_over_noise():
    found = [phi_alone(*joint_arrays(iso_depth_grid(0.01, seed))) for seed in range(60)]
    assert all(ours.stderr[name] == 0 for ours in found for name in HELD)
    assert all(ours.unidentified == () == ours.at_bound for ours in found)
    spread = np.std([ours.params["phi"] for ours in found])
    assert np.median([ours.stderr["phi"] for ours in found]) == pytest.approx(spread, rel=0.35)


# ---- closed forms: a power law is a straight line in logs ------------------------------------------------------------


def test_squares_of_a_power_law_are_linear_regression_with_whites_errors():
    T, loss, X = line()
    found = fit_saturation(T, loss, laws.POWER, objective="squares")
    inverse = np.linalg.inv(X.T @ X)
    theta = inverse @ X.T @ np.log(loss)
    assert found.theta == pytest.approx(theta) and found.params["Z"] == pytest.approx(np.exp(theta[0]))
    residuals = X @ theta - np.log(loss)
    assert found.residuals == pytest.approx(residuals, abs=1e-9)
    white = inverse @ (X.T * residuals**2) @ X @ inverse
    np.testing.assert_allclose(found.covariance, white, rtol=1e-6)
    assert found.stderr == pytest.approx({"Z": white[0, 0] ** 0.5, "z": white[1, 1] ** 0.5}, rel=1e-6)
    assert found.objective == pytest.approx(huber(residuals))
    assert found.predict(T) == pytest.approx(np.exp(X @ theta))
    assert found.r2 == pytest.approx(1 - np.sum((np.exp(X @ theta) - loss) ** 2) / np.sum((loss - loss.mean()) ** 2))
    assert found.at_bound == found.unidentified == () and found.names == ("Z", "z")


def test_hubers_errors_count_the_points_inside_delta():
    T, loss, X = line(noise=0.0013)
    found = fit_saturation(T, loss, laws.POWER)
    inside = np.abs(found.residuals) <= 1e-3
    assert 5 < inside.sum() < 25
    inverse = np.linalg.inv((X.T * inside) @ X)
    psi = np.clip(found.residuals, -1e-3, 1e-3)
    np.testing.assert_allclose(found.covariance, inverse @ (X.T * psi**2) @ X @ inverse, rtol=1e-5)
    assert X.T @ psi == pytest.approx(0, abs=1e-9)  # it is the optimum


def test_what_is_held_or_on_the_box_has_no_variance_and_the_others_have_theirs():
    T, loss, _ = line()
    held = fit_saturation(T, loss, laws.hold(laws.POWER, z=0.4), objective="squares")
    assert held.stderr["z"] == 0 and held.at_bound == held.unidentified == ()
    assert held.stderr["Z"] == pytest.approx(np.sqrt(np.sum(held.residuals**2)) / len(T), rel=1e-6)
    bound = fit_saturation(T, loss, laws.hold(laws.POWER, Z=3.0, z=0.4), objective="squares")
    assert not bound.covariance.any()
    boxed = dataclasses.replace(laws.POWER, shapes={"z": (0.5, 20.0)})
    found = fit_saturation(T, loss, boxed, objective="squares")
    assert found.at_bound == ("z",) and found.params["z"] == 0.5
    assert found.stderr["z"] == 0 and found.stderr["Z"] == pytest.approx(np.linalg.norm(found.residuals) / len(T))
    table = fits.table({"boxed": found})
    assert table.loc["boxed", "on a bound"] == "z" and table.loc["boxed", "open"] == ""
    assert table.loc["boxed", "R2"] == found.r2 and table.loc["boxed", "objective"] == found.objective


def test_the_units_of_an_input_leave_nothing_open():
    T, noise = np.linspace(1e6, 5e7, 30), np.random.default_rng(0).normal(0, 0.01, 30)
    decay = laws.Law("decay", ("T",), {"Z": (-5.0, 5.0)}, {"z": (0.0, 1e-5)}, lambda p, T: [-p["z"] * T])
    found = fit_saturation(T, 3 * np.exp(-2e-8 * T + noise), decay, objective="squares")
    X = np.stack([np.ones(30), -T / 1e7], axis=1)
    inverse = np.linalg.inv(X.T @ X)
    white = inverse @ (X.T * found.residuals**2) @ X @ inverse
    assert found.unidentified == () == found.at_bound
    assert found.stderr == pytest.approx({"Z": white[0, 0] ** 0.5, "z": white[1, 1] ** 0.5 / 1e7}, rel=1e-5)


# ---- what is open ----------------------------------------------------------------------------------------------------


def test_an_optimum_on_the_box_is_named():
    frame = iso_depth_grid()
    loss = laws.JOINT.loss({**PUBLISHED, "phi": 4.0}, frame.n_once, frame.n_rec, frame.r, frame.D)
    found = fit_joint(frame.n_once, frame.n_rec, frame.r, frame.D, loss)
    assert "phi" in found.at_bound and found.params["phi"] == pytest.approx(3)


def test_what_the_data_leave_open_is_named():
    # at a fixed number of tokens a parameter, A and B are one amplitude
    N = np.geomspace(1e7, 1e10, 30)
    noise = np.exp(np.random.default_rng(0).normal(0, 0.003, 30))
    found = fit_chinchilla(N, 20 * N, (1.7 + 400 * N**-0.3 + 400 * (20 * N) ** -0.3) * noise)
    assert found.unidentified
    assert not fit_joint(*joint_arrays(iso_depth_grid(0.002))).unidentified


def test_two_terms_of_one_shape_leave_their_amplitudes_open_and_nothing_else():
    T = np.geomspace(1, 40, 30)
    loss = (2 + 3 * T**-0.8) * np.exp(np.random.default_rng(0).normal(0, 0.003, 30))
    box = (-5.0, 5.0)
    shape = {"z": (0.0, 3.0)}
    one = laws.Law("one", ("T",), {"E": box, "A": box}, shape, lambda p, T: [0 * T, -p["z"] * np.log(T)])
    two = laws.Law(
        "two", ("T",), {"E": box, "A": box, "B": box}, shape, lambda p, T: [0 * T] + [-p["z"] * np.log(T)] * 2
    )
    alone, twins = (fit_saturation(T, loss, law, objective="squares") for law in (one, two))
    assert twins.unidentified == ("A", "B") and alone.unidentified == ()
    assert twins.params["A"] + twins.params["B"] == pytest.approx(alone.params["A"], rel=1e-5)
    for name in ("E", "z"):  # what the data do determine is as sure as with one of the two
        assert twins.params[name] == pytest.approx(alone.params[name], rel=1e-5)
        assert twins.stderr[name] == pytest.approx(alone.stderr[name], rel=1e-3)


def test_a_table_of_fits_says_what_is_open():
    frame = iso_depth_grid()
    table = fits.table({"free": fit_joint(*joint_arrays(frame)), "phi = 1": fit_joint(*joint_arrays(frame), phi=1.0)})
    assert table.loc["free", "phi"] == pytest.approx(PUBLISHED["phi"]) and np.isnan(table.loc["phi = 1", "phi"])
    assert table.columns[-4:].tolist() == ["objective", "R2", "on a bound", "open"]
