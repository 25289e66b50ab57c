"""Fits find a known truth and are those of closed forms, no start of scipy's minimisers finds a better one, and what
cannot be fitted, or is left open, is named."""

import dataclasses
import math

import numpy as np
import pytest
import scipy.optimize

from lib.base.errors import InputError
from lib.fit import fits, laws, optimum
from lib.fit.fits import bootstrap, fit_chinchilla, fit_joint, fit_saturation, fit_unified, isoflop_optimum, power_law
from lib.papers.isodepth.designs import PUBLISHED
from tests.fit.known import by_scipy, huber, iso_depth_grid, joint_arrays, line, unified_grid
from tests.lines import one_line


def test_without_noise_the_truth_is_found():
    frame = iso_depth_grid()
    assert len(frame) == 116
    joint = fit_joint(*joint_arrays(frame))
    assert joint.params == pytest.approx(PUBLISHED, rel=1e-8)
    assert joint.r2 == pytest.approx(1) and joint.objective < 1e-20 and not joint.at_bound and not joint.unidentified
    one = frame[frame.r == 1]
    plain = fit_chinchilla(one.n_once + one.n_rec, one.D, one.loss)
    assert plain.params == pytest.approx({k: v for k, v in PUBLISHED.items() if k != "phi"}, rel=1e-6)
    parcae = fits.fit_parcae(one.n_once + one.n_rec, one.D, one.loss)
    assert parcae.params["a"] == pytest.approx(PUBLISHED["alpha"], rel=1e-6)
    arrays, truth = unified_grid()
    assert fit_unified(*arrays).params == pytest.approx(truth, rel=1e-6)
    arrays, truth = unified_grid(z=0.2, gamma=-0.4)  # what was trained with fewer loops saturates later
    assert fit_unified(*arrays).params == pytest.approx(truth, rel=1e-6)
    T = np.arange(1, 25.0)
    for law in (laws.SATURATION, laws.SHIFTED_POWER, laws.POWER_WITH_FLOOR):
        p = dict(L_inf=2.5, Z=0.8, z=0.6)
        assert fit_saturation(T, law.loss(p, T), law).params == pytest.approx(p, rel=1e-7)
    assert fit_saturation(T, 3 * T**-0.1, laws.POWER).params == pytest.approx(dict(Z=3, z=0.1), rel=1e-7)


@pytest.mark.parametrize("c", [0.08, 0.4, 0.97, 2.7])
def test_without_noise_the_truth_is_found_where_terms_are_coupled(c):
    """Its constants hang together, so that losses are held to it. All of them also come back here."""
    frame, law = iso_depth_grid(), laws.coupled(laws.JOINT, "free")
    *inputs, _ = joint_arrays(frame)
    loss = law.loss({**PUBLISHED, "c": c}, *inputs)
    free, held = (fit_joint(*inputs, loss, coupling=coupling) for coupling in ("free", c))
    assert max(np.abs(free.residuals).max(), np.abs(held.residuals).max()) < 1e-10
    assert free.params == pytest.approx({**PUBLISHED, "c": c}, rel=1e-5) and not free.at_bound and not free.unidentified
    assert held.params["c"] == pytest.approx(c) and free.predict(*inputs) == pytest.approx(loss, rel=1e-10)
    one = frame["r"] == 1
    plain = fit_chinchilla(frame["N"][one], frame["D"][one], loss[one], coupling="free")
    assert np.abs(plain.residuals).max() < 1e-10


def test_coupled_terms_add_at_one_and_are_those_of_kaplan_at_beta():
    arrays = joint_arrays(iso_depth_grid(0.005))
    added, almost = fit_joint(*arrays), fit_joint(*arrays, coupling=1 + 1e-9)
    assert "c" not in added.params and almost.params.pop("c") == pytest.approx(1)
    assert almost.params == pytest.approx(added.params, rel=1e-5)
    assert almost.objective == pytest.approx(added.objective, rel=1e-6)
    assert fit_joint(*arrays, coupling="free").objective <= added.objective * (1 + 1e-9)
    p, (N, D) = dict(A=40.0, alpha=0.076, B=9.0, beta=0.103, E=1e-9), np.array([(1e6, 1e9), (1e9, 1e8)]).T
    kaplan = ((p["A"] ** (1 / p["beta"]) * N ** (-p["alpha"] / p["beta"])) + p["B"] ** (1 / p["beta"]) / D) ** p["beta"]
    law = laws.coupled(laws.CHINCHILLA, p["beta"])
    assert law.loss({**p, "c": p["beta"]}, N, D) == pytest.approx(kaplan, rel=1e-7)


def test_a_fit_shows_itself_in_five_lines():
    arrays, cells = joint_arrays(iso_depth_grid(0.005)), range(116)
    fit = fit_joint(*arrays)
    draws = bootstrap(fit_joint, arrays, cells, n=20).assign(E=np.nan)  # whose error is not known, as of one at a bound
    plain, between = (str(one).splitlines() for one in (fit, fit.between(draws)))
    assert len(plain) == len(between) == 5 and "[" not in "".join(plain)
    low, high = np.percentile(draws["phi"], [2.5, 97.5])
    assert f"phi = {fit.params['phi']:.4g} [{low:.4g}, {high:.4g}]" in between[1] and "E = " in between[1]
    assert between[1].count("[") == 5 and laws.JOINT.formula in plain[0] and "n = 116" in plain[2]


@pytest.mark.parametrize("restarts", [12, pytest.param(500, marks=pytest.mark.long)])
def test_no_restart_of_scipy_finds_a_better_joint_law(restarts):
    arrays = joint_arrays(iso_depth_grid(0.005))
    best, ours = by_scipy(laws.JOINT, arrays, restarts, truth=PUBLISHED), fit_joint(*arrays)
    assert ours.objective <= best * (1 + 1e-9) and best < ours.objective * 1.001
    assert ours.objective == pytest.approx(huber(ours.residuals))


@pytest.mark.parametrize("make", ["chinchilla", "joint", "coupled joint", "unified", "unified, gamma 1"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_newton_from_anywhere_in_the_box_finds_nothing_better(make, seed):
    """The same minimiser from random starts instead of the grid's: no other optimum is lower."""
    random = np.random.default_rng(seed)
    if make.startswith("unified"):
        arrays, _ = unified_grid(0.002, seed)
        ours = fit_unified(*arrays, gamma=1.0 if "gamma" in make else None)
    else:
        frame = iso_depth_grid(0.01, seed)
        frame = frame[frame.r == 8] if make == "chinchilla" else frame
        arrays = (frame.n_once + frame.n_rec, frame.D, frame.loss) if make == "chinchilla" else joint_arrays(frame)
        coupling = "free" if "coupled" in make else 1
        ours = fit_chinchilla(*arrays) if make == "chinchilla" else fit_joint(*arrays, coupling=coupling)
    *inputs, loss = (np.asarray(a, dtype=float) for a in arrays)
    problem = optimum.Problem.of(ours.law, inputs, np.tile(loss, (20, 1)), optimum.DELTA)
    starts = random.uniform(problem.low, problem.high)
    with np.errstate(all="ignore"):  # far corners of the box overflow
        _, ends = optimum.newton(problem, starts)
    assert ours.objective <= np.nanmin(ends) * (1 + 1e-9)


def test_a_restricted_phi_fits_worse_and_is_the_law_it_says():
    frame = iso_depth_grid(0.002)
    free = fit_joint(*joint_arrays(frame))
    for phi in (0.0, 1.0):
        bound = fit_joint(*joint_arrays(frame), phi=phi)
        assert bound.params["phi"] == pytest.approx(phi) and bound.objective > free.objective and bound.r2 < free.r2
        plain = fit_chinchilla(frame.n_once + frame.r**phi * frame.n_rec, frame.D, frame.loss)
        assert bound.objective == pytest.approx(plain.objective, rel=1e-8)


#: validation losses of nine small Parcae models (001's isoFLOP set-up): mu_rec, N, D, then T = 1, 2, 4, 6, 8, 12, 24
MEASURED = np.array(
    [
        (2, 77312, 226816, 1.7985, 1.7986, 1.8030, 1.8035, 1.8036, 1.8036, 1.8036),
        (2, 77312, 635392, 1.5988, 1.5977, 1.5981, 1.5981, 1.5981, 1.5981, 1.5981),
        (2, 77312, 1815040, 1.4622, 1.4619, 1.4619, 1.4619, 1.4619, 1.4619, 1.4619),
        (4, 104192, 174592, 1.8694, 1.8397, 1.8395, 1.8402, 1.8403, 1.8404, 1.8404),
        (4, 104192, 489472, 1.6617, 1.6430, 1.6423, 1.6425, 1.6425, 1.6425, 1.6425),
        (4, 104192, 1397760, 1.4909, 1.4782, 1.4775, 1.4775, 1.4775, 1.4775, 1.4775),
        (8, 157952, 119808, 2.0138, 1.9448, 1.9354, 1.9353, 1.9353, 1.9353, 1.9353),
        (8, 157952, 335360, 1.8069, 1.7158, 1.7005, 1.6998, 1.6998, 1.6998, 1.6998),
        (8, 157952, 957440, 1.6607, 1.5394, 1.5180, 1.5171, 1.5171, 1.5171, 1.5172),
    ]
)


def test_a_law_fits_at_least_as_well_as_one_that_it_contains():
    """On these curves the best cells of the grid all lie in one valley, and the optimum in another."""
    mu, N, D, losses = *MEASURED[:, :3].T, MEASURED[:, 3:]
    T = np.array([1, 2, 4, 6, 8, 12, 24])
    inputs = [np.repeat(x, len(T)) for x in (N, D, mu)]
    free, one, none = (
        fit_unified(*inputs, np.tile(T, len(mu)), losses.ravel(), gamma=gamma).objective for gamma in (None, 1.0, 0.0)
    )
    assert free <= one * (1 + 1e-9) and free <= none * (1 + 1e-9)


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


def test_what_the_data_leave_open_is_named():
    # at a fixed number of tokens a parameter, A and B are one amplitude
    N = np.geomspace(1e7, 1e10, 30)
    noise = np.exp(np.random.default_rng(0).normal(0, 0.003, 30))
    found = fit_chinchilla(N, 20 * N, (1.7 + 400 * N**-0.3 + 400 * (20 * N) ** -0.3) * noise)
    assert found.unidentified
    assert not fit_joint(*joint_arrays(iso_depth_grid(0.002))).unidentified


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
    assert math.isnan(isoflop_optimum(x[:3], loss[[0, 2, 4]] + (np.log(x[:3]) - 17) ** 2)[2])
    # in other units of x it is the same optimum
    assert isoflop_optimum(x * 1e3, loss) == pytest.approx((found[0] * 1e3, found[1], found[2] * 1e3), rel=1e-6)
    exact = isoflop_optimum(x, 3 + 0.02 * (np.log(x) - np.log(2e8)) ** 2)
    assert exact == (pytest.approx(2e8), pytest.approx(3), pytest.approx(0, abs=1e-3))


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


BAD_CELLS = [np.zeros(116), [1, 2, 3], range(117), [None, *range(115)], [[1]] * 116, 5]
LEVEL = [4.7554e10, 6.27204e10, 6.27218e10, 7e10, 1e11, 3e11, 4e11, 9e11]  # two of them close, which rounding tells


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: fit_joint(*joint_arrays(f.assign(r=4))), "r: is 4 in every point, the joint law needs at least two"),
        (lambda f: fit_joint(*joint_arrays(f.assign(loss=2.1))), "loss: is 2.1 in every point"),
        (lambda f: fit_joint(*joint_arrays(f.head(6))), "loss: 6 points cannot fit the 6 parameters of the joint law"),
        (lambda f: fit_joint(*joint_arrays(f), objective="cubes"), "objective: 'cubes' is not known"),
        *((lambda f, x=x: bootstrap(fit_joint, joint_arrays(f), x), "cells: ") for x in BAD_CELLS),
        (lambda f: bootstrap(fit_joint, joint_arrays(f), f[["r"]][::-1]), "loss, cells: indices differ"),
        (lambda _: isoflop_optimum([1, 1, 2], [1, 2, 2]), "needs three different points, there are 2"),
        (lambda _: isoflop_optimum([1, 2, 2 + 1e-15], [1, 2, 2]), "needs three different points, there are 2"),
        (lambda _: isoflop_optimum([1, 2, 3, 4], [1, 2, 2, 1]), "loss: has no minimum over these x, widen"),
        *((lambda _, n=n: isoflop_optimum(LEVEL[:n], [1 / 3] * n), "loss: has no minimum") for n in range(3, 9)),
        (lambda _: power_law([1, 2, 3], [1, 2]), "x, y: have shapes [(3,), (2,)]"),
        (lambda _: power_law([2, 2], [1, 3]), "x: 2 points at 1 values"),
    ],
)
def test_what_has_no_fit_is_one_line(call, message):
    with one_line(message):
        call(iso_depth_grid(0.01))


@pytest.mark.long
def test_phi_is_unbiased():
    found = [fit_joint(*joint_arrays(iso_depth_grid(0.005, seed))) for seed in range(60)]
    phis = np.array([one.params["phi"] for one in found])
    assert abs(phis.mean() - PUBLISHED["phi"]) < 3.5 * phis.std(ddof=1) / math.sqrt(60)
