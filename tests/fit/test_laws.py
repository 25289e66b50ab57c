"""Every law is the formula its paper prints, and held parameters stay while the others are fitted."""

import numpy as np
import pytest

from lib.base.errors import InputError
from lib.fit import laws
from lib.fit.fits import fit

N, D = np.array([1e7, 1e8, 1e9]), np.array([3e9, 1e9, 5e8])


def test_chinchilla_and_parcae():
    p = dict(A=406.4, B=410.7, E=1.69, alpha=0.34, beta=0.28)
    expected = 1.69 + 406.4 * N**-0.34 + 410.7 * D**-0.28
    np.testing.assert_allclose(laws.CHINCHILLA.loss(p, N, D), expected)
    np.testing.assert_allclose(laws.PARCAE.loss(dict(A=406.4, B=410.7, E=1.69, a=0.34, b=0.28), N, D), expected)


def test_joint_is_chinchilla_on_effective_parameters():
    # 000, project page: the published constants
    p = dict(A=28.027, alpha=0.19924, B=915.82, beta=0.36863, E=1.56773, phi=0.459)
    once, rec, r = 0.3 * N, 0.7 * N, np.array([1, 4, 8])
    expected = laws.CHINCHILLA.loss(p, once + r**0.459 * rec, D)
    np.testing.assert_allclose(laws.JOINT.loss(p, once, rec, r, D), expected)
    at_one = laws.JOINT.loss(p | {"phi": 17.0}, once, rec, np.ones(3), D)
    np.testing.assert_allclose(at_one, laws.CHINCHILLA.loss(p, N, D))  # phi says nothing about a single loop
    floor = p["E"] + p["B"] * 1e9 ** -p["beta"]  # at one D its data term goes into the floor
    whole = laws.JOINT.loss(p, once, rec, r, np.full(3, 1e9))
    np.testing.assert_allclose(laws.JOINT_AT_ONE_D.loss(p | {"E": floor}, once, rec, r), whole)


def test_saturation_and_its_rivals():
    T, p = np.array([1.0, 2.0, 8.0]), dict(L_inf=2.5, Z=0.8, z=0.6)
    np.testing.assert_allclose(laws.SATURATION.loss(p, T), 2.5 + 0.8 * np.exp(-0.6 * T))
    np.testing.assert_allclose(laws.SHIFTED_POWER.loss(p, T), 2.5 + 0.8 * (1 + T) ** -0.6)
    np.testing.assert_allclose(laws.POWER_WITH_FLOOR.loss(p, T), 2.5 + 0.8 * T**-0.6)
    np.testing.assert_allclose(laws.POWER.loss(p, T), 0.8 * T**-0.6)


@pytest.mark.parametrize("z", [0.1, -0.2])
def test_a_power_that_falls_or_rises_slowly_lies_in_its_box(z):
    T = np.arange(1, 25.0)
    found = fit(laws.POWER, [T], 3 * T**-z)
    assert found.params == pytest.approx(dict(Z=3, z=z), rel=1e-6) and not found.at_bound


def test_the_unified_law_is_its_floor_and_its_decay():
    p = dict(E=2.4, X=5000.0, x=0.5, Y=6386.0, y=0.448, Z=1.2, z=3.0, gamma=1.18)
    mu, T = np.array([2.0, 8.0, 12.0]), np.array([1.0, 8.0, 3.0])
    floor = 2.4 + 5000 * N**-0.5 + 6386 * D**-0.448
    np.testing.assert_allclose(laws.unified().loss(p, N, D, mu, T), floor + 1.2 * np.exp(-3 * mu**-1.18 * T))
    np.testing.assert_allclose(
        laws.unified(1.0).loss(p | {"gamma": 1.0}, N, D, mu, T), floor + 1.2 * np.exp(-3 * T / mu)
    )


def test_phi_is_learned_from_more_than_one_r_and_held_from_one():
    inputs = [np.tile(N, 3), np.tile(N, 3), np.full(9, 4.0), np.repeat(D, 3)]
    losses = laws.JOINT.loss(dict(A=400.0, alpha=0.3, B=900.0, beta=0.35, E=1.7, phi=0.5), *inputs)
    with pytest.raises(InputError, match="r: is 4 in every point"):
        laws.JOINT.checked(inputs, losses)
    found, _ = laws.joint(0.5).checked(inputs, losses)
    assert np.array_equal(found, inputs)
    laws.joint(0.5).checked([0 * inputs[0], *inputs[1:]], losses)  # fully looped, it runs nothing once


def test_held_parameters_stay_and_the_others_are_fitted():
    sizes, tokens = np.repeat(np.geomspace(1e6, 1e9, 6), 2), np.tile([1e9, 1e10], 6)
    truth = dict(A=400.0, B=900.0, E=1.7, alpha=0.3, beta=0.35)
    losses = laws.CHINCHILLA.loss(truth, sizes, tokens)
    held = laws.hold(laws.CHINCHILLA, E=1.7, alpha=0.3)
    assert fit(held, (sizes, tokens), losses).params == pytest.approx(truth, rel=1e-6)
    wrong = fit(laws.hold(laws.CHINCHILLA, alpha=0.2), (sizes, tokens), losses)
    assert wrong.params["alpha"] == pytest.approx(0.2) and wrong.objective > 1e-9
    with pytest.raises(InputError, match="gamma: is not a parameter of the Chinchilla law"):
        laws.hold(laws.CHINCHILLA, gamma=1.0)
