"""Optima and exponents of iso-FLOP curves are those they were made with; one beyond the sizes does not count."""

import itertools

import numpy as np
import pandas as pd
import pytest

from lib.fit.isoflop import exponent, minimum, optima, parabolas


def curves(budgets=(1e9, 4e9, 16e9), sizes=(1e3, 2e3, 4e3, 8e3, 16e3)) -> pd.DataFrame:
    """Two architectures whose optimal size is C^0.5 / 10 and C^0.5 / 20, with L = 2 N*^-0.1, and F = 6 N."""
    cells = itertools.product({"wide": 10, "narrow": 20}.items(), budgets, sizes)
    rows = [(name, C, N, C**0.5 / share) for (name, share), C, N in cells]
    frame = pd.DataFrame(rows, columns=["architecture", "budget", "N", "best"]).eval("width = N**.5\nF = 6 * N")
    return frame.assign(loss=2 * frame["best"] ** -0.1 + 0.05 * np.log(frame["N"] / frame["best"]) ** 2)


def test_each_family_and_budget_has_its_own_optimum():
    found = optima(curves(), ["architecture", "budget"])
    assert found["architecture"].tolist() == ["wide"] * 3 + ["narrow"] * 3
    for row in found.itertuples():
        N = row.budget**0.5 / {"wide": 10, "narrow": 20}[row.architecture]
        assert (row.N, row.loss, row.width) == pytest.approx((N, 2 * N**-0.1, N**0.5))
        assert pytest.approx(row.budget / (6 * N)) == row.D and row.inside


def test_exponents_over_optima():
    wide = optima(curves(), ["architecture", "budget"])[:3]
    slope, (low, high) = exponent(wide, "N")
    assert (slope, low, high) == pytest.approx((0.5, 0.5, 0.5))
    assert exponent(wide, "loss", of="N")[0] == pytest.approx(-0.1)
    assert exponent(wide[:2], "N")[1] == (-np.inf, np.inf) and np.isnan(exponent(wide[:1], "N")[0])


def test_an_optimum_beyond_the_sizes_trained_does_not_count():
    found = optima(curves(sizes=(1e4, 2e4, 4e4)), ["architecture", "budget"])
    assert found["inside"].tolist() == [False, False, True, False, False, False]
    unnamed = optima(curves().replace({"budget": {4e9: np.nan}}), ["architecture", "budget"])  # a group of its own
    pd.testing.assert_frame_equal(unnamed.drop([1, 4]), optima(curves(), ["architecture", "budget"]).drop([1, 4]))


def test_a_minimum_says_whether_it_lies_between_what_was_tried():
    x = np.array([1.0, 2.0, 4.0, 8.0])
    found = minimum(x, (np.log(x) - np.log(3)) ** 2 + 2)
    assert (found.x, found.loss, found.inside) == (pytest.approx(3), pytest.approx(2), True)
    assert not minimum(x, (np.log(x) - np.log(20)) ** 2).inside
    for loss in (-np.log(x), -(np.log(x) ** 2), x * np.nan):  # a line, a parabola downwards, and what nobody knows
        assert np.isnan(minimum(x, loss)[:3]).all() and not minimum(x, loss).inside


def test_parabolas_go_through_what_is_one_and_count_their_coefficients():
    runs = curves().drop([0, 1, 5, 6, 7])  # three and two are left of two cells
    fitted, coefficients = parabolas(runs, ["architecture", "budget"])
    np.testing.assert_allclose(fitted, runs["loss"], rtol=1e-12)
    assert coefficients == 5 * 3 + 2
    kinked = runs.assign(x=runs["loss"] + (runs["N"] == 4e3))
    off = kinked["x"] - parabolas(kinked, ["architecture", "budget"], "x")[0]
    by = off.groupby([runs["architecture"], runs["budget"]])
    assert by.sum().abs().max() < 1e-12 and (by.std() > 0.1).sum() == 4  # what is left over has no level
