"""Optima and exponents of iso-FLOP curves are those they were made with, those of a law are those of a fine search."""

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest

from lib.fit import isoflop
from lib.fit.fits import fit_joint
from lib.fit.isoflop import exponent, minimum, optima, parabolas
from lib.presets import preset
from tests.fit.known import iso_depth_grid, joint_arrays
from tests.lines import one_line


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


@pytest.fixture(scope="module")
def published():
    return fit_joint(*joint_arrays(iso_depth_grid()))


@pytest.fixture(scope="module")
def families():
    return {r: isoflop.sizes([preset(f"isodepth-s{s}-r{r}") for s in range(6, 36, 2)]) for r in (1, 2, 4, 8)}


def test_a_looped_410m_costs_a_billion_and_is_worth_580m():
    # 000, App. F.4: blocks of one unit, 20 of them plain; injection n_b / 6 left out of the effective ratio there
    worth = isoflop.effective_parameters(4, 4, 4, 0.46) / 20
    assert worth == pytest.approx(0.58, abs=0.005)
    assert pytest.approx(0.41, abs=0.005) == (8 + 1 / 6) / 20
    assert isoflop.effective_parameters(4, 4, 4, 1.0) == 20  # all unrolled


@pytest.mark.parametrize("r", [1, 4])
def test_the_compute_optimal_width_is_that_of_a_fine_search(published, families, r):
    best = isoflop.compute_optimal(published, families[r], r, 4.64e18)
    widths = np.geomspace(384, 2176, 4001)
    table = families[r]
    names = ("n_once", "n_rec", "flops")
    once, rec, flops = (np.exp(np.interp(np.log(widths), np.log(table.width), np.log(table[c]))) for c in names)
    losses = published.predict(once, rec, np.full(4001, r), 4.64e18 / flops)
    assert losses.min() - 1e-6 < best["loss"] <= losses.min() + 1e-12
    assert best["width"] == pytest.approx(widths[losses.argmin()], rel=2e-3)
    flops = np.exp(np.interp(np.log(best["width"]), np.log(table.width), np.log(table.flops)))
    assert best["D"] * flops == pytest.approx(4.64e18)
    assert not best["at_edge"] and isoflop.compute_optimal(published, table, r, 1e15)["at_edge"]
    assert isoflop.compute_optimal(published, table[::-1], r, 4.64e18) == best
    level = dataclasses.replace(published, theta=published.theta * np.array([1, 1, 1, 0, 0, 1]))
    with one_line("fit: its loss is the same at every width"):
        isoflop.compute_optimal(level, table, r, 4.64e18)
