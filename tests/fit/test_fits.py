"""Fits find a known truth, no start of scipy's minimisers finds a better one, and standard errors are the spread."""

import dataclasses
import functools
import math

import numpy as np
import pandas as pd
import pytest
import scipy.optimize

from lib.base.errors import InputError
from lib.base.statistics import percentile_interval
from lib.fit import fits, laws, optimum
from lib.fit.fits import (
    bootstrap,
    cell_signs,
    fit,
    fit_chinchilla,
    fit_joint,
    fit_parcae,
    fit_saturation,
    fit_unified,
    flipped,
    fresh_fits,
    halves,
    interval_bca,
    isoflop_optimum,
    noise_of,
    power_law,
    refits,
    resampled,
    residual_rank_test,
)
from lib.papers.isodepth.designs import PUBLISHED, published_grid
from tests.lines import one_line


def iso_depth_grid(noise=0.0, seed=0) -> pd.DataFrame:
    """The 116 runs of 000 with the losses of its law, and log-normal noise."""
    frame = published_grid()
    return frame.assign(loss=frame.loss * np.exp(np.random.default_rng(seed).normal(0, noise, len(frame))))


def joint_arrays(frame) -> tuple:
    return frame.n_once, frame.n_rec, frame.r, frame.D, frame.loss


def unified_grid(noise=0.0, seed=0, **changes) -> tuple:
    """540 points: 6 mu_rec x 5 token counts x 18 test-time loops (001)."""
    truth = dict(E=2.4, X=5000.0, x=0.5, Y=6386.0, y=0.448, Z=1.2, z=3.0, gamma=1.18) | changes
    points = [
        (1e8 * mu**0.6, D, mu, T)
        for mu in (2, 4, 6, 8, 10, 12)
        for D in 1e9 * 2.0 ** np.arange(5)
        for T in range(1, 19)
    ]
    inputs = tuple(np.array(x, dtype=float) for x in zip(*points, strict=True))
    loss = laws.unified().loss(truth, *inputs) * np.exp(np.random.default_rng(seed).normal(0, noise, len(points)))
    return (*inputs, loss), truth


# ---- the optimum


def test_without_noise_the_truth_is_found():
    frame = iso_depth_grid()
    assert len(frame) == 116
    joint = fit_joint(*joint_arrays(frame))
    assert joint.params == pytest.approx(PUBLISHED, rel=1e-8)
    assert joint.r2 == pytest.approx(1) and joint.objective < 1e-20 and not joint.at_bound and not joint.unidentified
    one = frame[frame.r == 1]
    plain = fit_chinchilla(one.n_once + one.n_rec, one.D, one.loss)
    assert plain.params == pytest.approx({k: v for k, v in PUBLISHED.items() if k != "phi"}, rel=1e-6)
    parcae = fit_parcae(one.n_once + one.n_rec, one.D, one.loss)
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


def huber(residuals, delta=1e-3):
    r = np.abs(residuals)
    return np.where(r <= delta, r * r / 2, delta * (r - delta / 2)).sum(-1)


def by_scipy(law, arrays, restarts, seed=0, objective=huber) -> float:
    """The best of many tight L-BFGS-B runs from uniform starts in the law's box, on the plain objective."""
    *inputs, loss = (np.asarray(a, dtype=float) for a in arrays)
    k = len(law.amplitudes)
    box = [*law.amplitudes.values(), *law.shapes.values()]

    def value(theta):
        """And its slopes by the differences that scipy takes by itself, all in one array."""
        moved = theta + np.vstack([np.zeros(len(theta)), 1e-8 * np.eye(len(theta))])
        p = dict(zip(law.shapes, moved.T[k:, :, None], strict=True))
        terms = [g + a for g, a in zip(law.log_terms(p, *inputs), moved.T[:k, :, None], strict=True)]
        values = 1e4 * objective(functools.reduce(np.logaddexp, terms) - np.log(loss))
        return values[0], (values[1:] - values[0]) / 1e-8

    random, best = np.random.default_rng(seed), np.inf
    for _ in range(restarts):
        start = [random.uniform(*bounds) for bounds in box]
        options = dict(maxiter=10_000, maxfun=100_000, ftol=1e-15, gtol=1e-10)
        best = min(
            best,
            scipy.optimize.minimize(value, start, jac=True, method="L-BFGS-B", bounds=box, options=options).fun / 1e4,
        )
    return best


@pytest.mark.parametrize("seed", [0, 1])
def test_no_restart_of_scipy_finds_a_better_chinchilla(seed):
    frame = iso_depth_grid(0.005, seed)
    frame = frame[frame.r == 4]
    arrays = frame.n_once + frame.n_rec, frame.D, frame.loss
    best = by_scipy(laws.CHINCHILLA, arrays, 25)
    ours = fit_chinchilla(*arrays).objective
    assert ours <= best * (1 + 1e-9) and best < ours * 1.05  # scipy comes near: it is the same objective


def test_no_restart_of_scipy_finds_a_better_joint_law():
    arrays = joint_arrays(iso_depth_grid(0.005))
    best, ours = by_scipy(laws.JOINT, arrays, 12), fit_joint(*arrays)
    assert ours.objective <= best * (1 + 1e-9) and best < ours.objective * 1.05
    assert ours.objective == pytest.approx(huber(ours.residuals))


@pytest.mark.parametrize("make", ["chinchilla", "joint", "unified", "unified, gamma 1"])
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
        ours = fit_chinchilla(*arrays) if make == "chinchilla" else fit_joint(*arrays)
    *inputs, loss = (np.asarray(a, dtype=float) for a in arrays)
    problem = optimum.Problem(ours.law, inputs, loss, np.ones(len(loss)), optimum.DELTA)
    starts = random.uniform(problem.low, problem.high, (20, len(problem.low)))
    with np.errstate(all="ignore"):  # far corners of the box overflow
        ends = [optimum.newton(problem, start)[1] for start in starts]
    assert ours.objective <= np.nanmin(ends) * (1 + 1e-9)


@pytest.mark.parametrize("objective", ["absolute", "squares"])
def test_the_other_objectives_are_at_their_optimum(objective):
    frame = iso_depth_grid(0.005)
    frame = frame[frame.r == 2]
    arrays = frame.n_once + frame.n_rec, frame.D, frame.loss
    ours = fit_chinchilla(*arrays, objective=objective)
    other = {"absolute": lambda r: np.abs(r).sum(-1), "squares": lambda r: np.square(r).sum(-1)}[objective]
    assert other(ours.residuals) <= by_scipy(laws.CHINCHILLA, arrays, 10, objective=other) * (1 + 1e-6)
    assert other(ours.residuals) < other(fit_chinchilla(*arrays).residuals)
    if objective == "absolute":  # as many points are met exactly as there are parameters
        assert (np.abs(ours.residuals) < 1e-9).sum() >= 5


def test_a_published_fit_by_absolute_deviations_is_told_apart_from_hubers():
    # at a delta of 1e-3 and noise above it Huber's optimum is near that of absolute deviations, but not the same
    arrays = joint_arrays(iso_depth_grid(0.01))
    huber_, absolute = fit_joint(*arrays), fit_joint(*arrays, objective="absolute")
    assert huber_.objective < absolute.objective
    assert np.abs(absolute.residuals).sum() < np.abs(huber_.residuals).sum()


def test_a_restricted_phi_fits_worse_and_is_the_law_it_says():
    frame = iso_depth_grid(0.002)
    free = fit_joint(*joint_arrays(frame))
    for phi in (0.0, 1.0):
        bound = fit_joint(*joint_arrays(frame), phi=phi)
        assert "phi" not in bound.params and bound.objective > free.objective and bound.r2 < free.r2
        plain = fit_chinchilla(frame.n_once + frame.r**phi * frame.n_rec, frame.D, frame.loss)
        assert bound.objective == pytest.approx(plain.objective, rel=1e-8)


# ---- what a fit says of itself


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.assign(r=4), "r: is 4 in every point, the joint law needs at least two values"),
        (lambda f: f.head(6), "loss: 6 points cannot fit the 6 parameters of the joint law, give at least 7"),
        (lambda f: f.assign(loss=f.loss.where(f.index > 2)), "loss: 3 values are not finite"),
        (lambda f: f.assign(D=f.D.where(f.index > 0, 0)), "D: 0 is not positive"),
    ],
)
def test_bad_data_are_one_line(change, message):
    with one_line(message):
        fit_joint(*joint_arrays(change(iso_depth_grid(0.01))))


def test_bad_calls_are_one_line():
    frame = iso_depth_grid()
    with pytest.raises(InputError, match="D: has shape"):
        fit_joint(frame.n_once, frame.n_rec, frame.r, frame.D[:5], frame.loss)
    with pytest.raises(InputError, match="objective: 'cubes' is not known"):
        fit_joint(*joint_arrays(frame), objective="cubes")
    with pytest.raises(InputError, match="cells: there is only one"):
        bootstrap(fit_joint, joint_arrays(frame), np.zeros(116))
    with pytest.raises(InputError, match="cells: 3 labels for 116 points"):
        bootstrap(fit_joint, joint_arrays(frame), [1, 2, 3])
    with pytest.raises(InputError, match="cells: 117 labels for 116 points"):
        bootstrap(fit_joint, joint_arrays(frame), range(117))


# ---- how sure


# by one process, since they share its resamples


@pytest.fixture(scope="module")
def noisy():
    frame = iso_depth_grid(0.005, seed=7)
    cells = frame[["budget", "r"]]
    return frame, cells, bootstrap(fit_joint, joint_arrays(frame), cells, n=40, seed=1)


def test_a_bootstrap_is_a_function_of_its_seed(noisy):
    frame, cells, draws = noisy
    assert list(draws.columns) == ["A", "B", "E", "alpha", "beta", "phi"] and len(draws) == 40
    tuples = list(zip(frame.budget, frame.r, strict=True))
    again = bootstrap(fit_joint, joint_arrays(frame), tuples, n=5, seed=1)
    pd.testing.assert_frame_equal(again, draws.head(5))
    assert not bootstrap(fit_joint, joint_arrays(frame), cells, n=2, seed=2).equals(draws.head(2))


def test_every_resample_is_at_its_optimum(noisy):
    frame, cells, draws = noisy
    number = fits._numbered(cells, 116)
    random = np.random.default_rng(1)
    for i in range(6):
        weights = np.bincount(random.integers(24, size=24), minlength=24)[number]
        repeated = frame.loc[frame.index.repeat(weights)]  # the resample as a table of its own
        ours = fit_joint(*joint_arrays(repeated))
        assert draws["phi"][i] == pytest.approx(ours.params["phi"], abs=1e-5)


def test_intervals_cover_the_estimate_and_widen_with_the_level(noisy):
    frame, cells, draws = noisy
    phi = fit_joint(*joint_arrays(frame)).params["phi"]
    low, high = percentile_interval(draws["phi"])
    assert low < phi < high and 0.01 < high - low < 0.2
    assert percentile_interval(draws["phi"], 0.5)[0] > low
    bca = interval_bca(fit_joint, joint_arrays(frame), cells, draws, "phi")
    assert bca[0] < phi < bca[1] and bca != (low, high)


def test_bca_is_the_percentile_interval_where_nothing_is_skewed():
    """Efron's formula on a symmetric case: no bias, no acceleration."""
    random = np.random.default_rng(0)
    line = laws.Law("level", ("x",), {"A": (-5.0, 5.0)}, {}, lambda p, x: [0 * x])
    x, noise = np.arange(1.0, 41.0), random.normal(0, 0.01, 20)
    loss = 2 * np.exp(np.concatenate([noise, -noise]))

    def level(x, loss):
        return fit(line, [x], loss, objective="squares")

    draws = bootstrap(level, (x, loss), np.arange(40), n=400)
    plain, bca = percentile_interval(draws["A"]), interval_bca(level, (x, loss), np.arange(40), draws, "A")
    assert bca == pytest.approx(plain, abs=0.15 * (plain[1] - plain[0]))
    # of a mean, with its known standard error
    assert plain[1] - plain[0] == pytest.approx(2 * 1.96 * 2 * np.std(np.log(loss)) / math.sqrt(40), rel=0.15)


def test_halves_and_ranks():
    frame = iso_depth_grid(0.003, seed=3)
    low, high = halves(fit_joint, joint_arrays(frame), frame.budget)
    assert len(low.residuals) == 56 and len(high.residuals) == 60  # 000, App. F.3
    whole = fit_joint(*joint_arrays(frame))
    rho, p = residual_rank_test(whole, frame.D)
    assert abs(rho) < 0.3 and 0 < p <= 1
    tilted = frame.assign(loss=frame.loss * frame.D.rank() ** 0.01)
    flat = fit(laws.Law("level", ("D",), {"E": (-3, 2)}, {}, lambda p, D: [0 * D]), [tilted.D], tilted.loss)
    assert residual_rank_test(flat, tilted.D)[1] < 1e-3


# ---- optima and power laws


def test_the_optimum_of_a_parabola_in_log_x():
    x = np.geomspace(1e7, 1e9, 7)
    best, loss, stderr = isoflop_optimum(x, 3 + 0.02 * (np.log(x) - np.log(2e8)) ** 2)
    assert best == pytest.approx(2e8) and loss == pytest.approx(3) and stderr == pytest.approx(0, abs=1e-3)
    assert math.isnan(isoflop_optimum(x[:3], (np.log(x[:3]) - 18) ** 2)[2])


def test_the_stderr_of_an_optimum_is_its_spread():
    x, random = np.geomspace(1e7, 1e9, 7), np.random.default_rng(0)
    found = [isoflop_optimum(x, 3 + 0.02 * np.log(x / 1.3e8) ** 2 + random.normal(0, 0.002, 7)) for _ in range(400)]
    assert np.sqrt(np.mean([f[2] ** 2 for f in found])) == pytest.approx(np.std([f[0] for f in found]), rel=0.15)


def test_power_laws():
    x = np.geomspace(1, 1e6, 9)
    assert power_law(x, 3 * x**0.52)[:2] == pytest.approx((3, 0.52))
    random = np.random.default_rng(0)
    found = [power_law(x, 3 * x**0.52 * np.exp(random.normal(0, 0.1, 9))) for _ in range(300)]
    assert np.sqrt(np.mean([f[2] ** 2 for f in found])) == pytest.approx(np.std([f[1] for f in found]), rel=0.15)
    assert math.isnan(power_law([1, 2], [1, 4])[2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: isoflop_optimum([1, 2], [1, 2]), "a parabola needs three different points"),
        (lambda: isoflop_optimum([1, 2, 3, 4], [1, 2, 2, 1]), "loss: has no minimum over these x, widen"),
        (lambda: isoflop_optimum([1, 2, -3], [1, 2, 2]), "x: values must be positive"),
        (lambda: power_law([1], [1]), "a power law needs two points"),
        (lambda: power_law([1, 2], [1, 0]), "x: values must be positive"),
        (lambda: power_law([2, 2], [1, 3]), "x: is 2 in every point"),
    ],
)
def test_bad_points_are_one_line(call, message):
    with one_line(message):
        call()


def test_the_delta_of_hubers_loss_is_the_callers():
    frame = iso_depth_grid(0.02)
    frame = frame[frame.r == 2]
    arrays = frame.n_once + frame.n_rec, frame.D, frame.loss
    ours = fit_chinchilla(*arrays, delta=1e-2)
    best = by_scipy(laws.CHINCHILLA, arrays, 10, objective=lambda r: huber(r, 1e-2))
    assert huber(ours.residuals, 1e-2) <= best * (1 + 1e-9)
    assert ours.objective > fit_chinchilla(*arrays).objective  # which is always that of 1e-3
    with pytest.raises(InputError, match="delta: 0 is no width"):
        fit_chinchilla(*arrays, delta=0.0)


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


def test_a_fully_looped_family_has_nothing_that_runs_once():
    frame = iso_depth_grid()
    truth = dict(PUBLISHED, phi=0.3)
    loss = laws.JOINT.loss(truth, 0 * frame.n_once, frame.n_rec, frame.r, frame.D)
    found = fit_joint(0 * frame.n_once, frame.n_rec, frame.r, frame.D, loss)
    assert found.params == pytest.approx(truth, rel=1e-6)


def test_a_resample_that_cannot_identify_the_law_is_drawn_again():
    frame = iso_depth_grid().query("budget == 1e18")
    single = next(s for s in range(1000) if len({*np.random.default_rng(s).integers(4, size=4)}) == 1)  # comes first
    assert len(bootstrap(fit_joint, joint_arrays(frame), frame["r"], n=3, seed=single)) == 3
    for seed in (0, single):
        found = resampled(laws.JOINT, joint_arrays(frame), frame["r"], 40, seed)
        assert len(found) == 40 and all(frame["r"][weights > 0].nunique() > 1 for weights in found)
    with pytest.raises(InputError, match="resamples: 0 give no interval"):
        bootstrap(fit_joint, joint_arrays(frame), frame["r"], n=0)


def test_residuals_change_their_sign_cell_by_cell():
    frame = iso_depth_grid(0.01)
    point, inputs = fit_joint(*joint_arrays(frame)), joint_arrays(frame)[:-1]
    signs = cell_signs(frame[["budget", "r"]], 4000, 0)
    cells = frame.groupby(["budget", "r"]).ngroup().to_numpy()
    assert signs.shape == (4000, 116) and all(len({*signs[0, cells == cell]}) == 1 for cell in range(24))
    assert len({*np.abs(signs[0])}) == 1 and len({*np.sign(signs[0])}) == 2
    assert np.quantile(np.abs(signs[:, 0]), 0.5) > 1  # Student's t of 23 degrees of freedom: beyond 1 on the whole
    assert np.mean(signs[:, 0] * signs[:, -1]) == pytest.approx(0, abs=0.06)
    whole, turned = flipped(point, inputs, np.array([np.ones(116), -np.ones(116)]))
    left = fit_joint(*joint_arrays(frame), objective="squares").residuals * np.sqrt(116 / 110)
    assert np.log(whole.loss) == pytest.approx(np.log(point.predict(*inputs)) + left)
    assert np.log(turned.loss) == pytest.approx(np.log(point.predict(*inputs)) - left)
    (again,) = refits(point, inputs, [turned.loss])
    assert again.params == turned.params and point.free == 6 and fit_joint(*joint_arrays(frame), phi=1.0).free == 5
    with pytest.raises(InputError, match="cells: there is only one"):
        cell_signs([1, 1], 2)


def test_a_law_is_given_all_its_inputs():
    with pytest.raises(InputError, match="inputs: 1 arrays for the Chinchilla law, give N, D"):
        fit(laws.CHINCHILLA, [[1, 2]], [1, 2])


def test_fresh_grids_have_the_law_and_the_noise_of_the_one_that_was_seen():
    frame = iso_depth_grid(0.01)
    own = {r: (cell.n_once + cell.n_rec, cell.D, cell.loss) for r, cell in frame.groupby("r")}
    found = {r: fit_chinchilla(*arrays) for r, arrays in own.items()}
    assert found[1].loss == pytest.approx(frame[frame.r == 1].loss.to_numpy())
    assert found[1].largest_residual == pytest.approx(np.abs(found[1].predict(*own[1][:2]) - own[1][2]).max())
    inputs = {r: arrays[:2] for r, arrays in own.items()}
    noise = noise_of(found, inputs)
    assert noise.freedom == 116 - 4 * 5 and noise.variance**0.5 == pytest.approx(0.01, rel=0.15)
    grids = fresh_fits(found, inputs, 5, 1)
    assert [*grids[0]] == [1, 2, 4, 8] and grids[0][1].loss.tolist() != grids[1][1].loss.tolist()
    shifts = np.concatenate([np.log(g[r].loss / found[r].predict(*inputs[r])) for g in grids for r in g])
    assert shifts.std() == pytest.approx(0.01, rel=0.2) and abs(shifts.mean()) < 2e-3
    again = fresh_fits(found, inputs, 5, 1)
    assert again[4][8].params == grids[4][8].params
    exact = {1: fit_chinchilla(*inputs[1], found[1].predict(*inputs[1]))}
    assert fresh_fits(exact, inputs, 1)[0][1].params == pytest.approx(exact[1].params, rel=1e-6)


def test_a_table_of_fits_says_what_is_open():
    frame = iso_depth_grid()
    table = fits.table({"free": fit_joint(*joint_arrays(frame)), "phi = 1": fit_joint(*joint_arrays(frame), phi=1.0)})
    assert table.loc["free", "phi"] == pytest.approx(PUBLISHED["phi"]) and np.isnan(table.loc["phi = 1", "phi"])
    assert table.columns[-4:].tolist() == ["objective", "R2", "on a bound", "open"]


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


# ---- closed forms: a power law is a straight line in logs


def line(n=30, noise=0.01, seed=0) -> tuple:
    """T [n], losses of 3 T^-0.4 with noise in logs, and the design matrix of (log Z, z)."""
    T = np.geomspace(1, 40, n)
    loss = 3 * T**-0.4 * np.exp(np.random.default_rng(seed).normal(0, noise, n))
    return T, loss, np.stack([np.ones(n), -np.log(T)], axis=1)


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
    T, loss, X = line(noise=0.004)
    found = fit_saturation(T, loss, laws.POWER, delta=3e-3)
    inside = np.abs(found.residuals) <= 3e-3
    assert 5 < inside.sum() < 25
    inverse = np.linalg.inv((X.T * inside) @ X)
    psi = np.clip(found.residuals, -3e-3, 3e-3)
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


def test_a_weight_counts_a_point_that_often():
    random = np.random.default_rng(0)
    loss, predicted, weights = random.normal(3, 1, 20), random.normal(3, 1, 20), random.integers(0, 4, 20)
    assert fits.r2(predicted, loss, weights) == pytest.approx(fits.r2(predicted.repeat(weights), loss.repeat(weights)))
    assert fits.r2(loss, loss) == 1 and fits.r2(np.full(20, loss.mean()), loss) == pytest.approx(0)
    T, loss, X = line()
    point = fit_saturation(T, loss, laws.POWER, objective="squares")
    weights = random.integers(0, 3, len(T))
    refit = fits._refit(point, (T, loss), weights)
    theta = np.linalg.lstsq(X * np.sqrt(weights)[:, None], np.log(loss) * np.sqrt(weights))[0]
    assert refit == pytest.approx({"Z": np.exp(theta[0]), "z": theta[1]}, rel=1e-7)


def test_bca_is_scipys_on_the_same_resamples():
    random = np.random.default_rng(3)
    loss = np.exp(random.exponential(0.5, 25))  # skewed
    flat = laws.Law("level", ("x",), {"A": (-5.0, 5.0)}, {}, lambda p, x: [0 * x])

    def mean(x, axis=-1):
        return np.exp(np.log(x).mean(axis))

    def level(x, loss):
        return fit(flat, [x], loss, objective="squares")

    with np.errstate(all="ignore"):
        drawn = scipy.stats.bootstrap((loss,), mean, n_resamples=999, method="percentile", rng=random)
        draws = pd.DataFrame({"A": drawn.bootstrap_distribution})
        for confidence in (0.95, 0.6):
            for method, ours in (
                ("percentile", percentile_interval(draws["A"], confidence)),
                ("BCa", interval_bca(level, (np.arange(1, 26), loss), np.arange(25), draws, "A", confidence)),
            ):
                theirs = scipy.stats.bootstrap(
                    (loss,), mean, n_resamples=0, bootstrap_result=drawn, method=method, confidence_level=confidence
                ).confidence_interval
                assert ours == pytest.approx(tuple(theirs), rel=1e-6), method


@pytest.mark.parametrize("side", [-1, 1])
def test_bca_of_resamples_that_all_lie_on_one_side_takes_half_a_resample_for_the_other(side):
    flat = laws.Law("level", ("x",), {"A": (-5.0, 5.0)}, {}, lambda p, x: [0 * x])
    loss = 2 * np.exp(np.array([-0.01, 0.01, -0.01, 0.01]))

    def level(x, loss):
        return fit(flat, [x], loss, objective="squares")

    draws = pd.DataFrame({"A": 2 + side * np.linspace(0.1, 1, 50)})
    bias = -side * scipy.stats.norm.ppf(1 - 0.5 / 50)
    # the skew of the estimates with a point left out is known: of exp(-0.01 / 3) and exp(0.01 / 3), twice each
    left_out = 2 * np.exp(np.array([1, -1, 1, -1]) * 0.01 / 3)
    away = left_out.mean() - left_out
    skew = (away**3).sum() / (6 * (away**2).sum() ** 1.5)
    z = bias + scipy.stats.norm.ppf([0.025, 0.975])
    expected = np.quantile(draws["A"], scipy.stats.norm.cdf(bias + z / (1 - skew * z)))
    found = interval_bca(level, (np.arange(1, 5), loss), np.arange(4), draws, "A")
    assert found == pytest.approx(tuple(expected), abs=1e-6)


def test_a_cut_makes_the_halves_as_equal_as_it_can():
    low, high = fits.split([1, 1, 1, 2, 3, 3])
    assert low.tolist() == [True] * 3 + [False] * 3 and (high == ~low).all()
    low, high = fits.split([5.0, 1, 1, 9, 9, 9, 9])
    assert low.tolist() == [True, True, True, False, False, False, False] and (high == ~low).all()
    with pytest.raises(InputError, match=r"^by: is 4 in every point, there are no halves$"):
        fits.split([4, 4])


def test_ranks_of_residuals_in_order_are_one():
    found = fit_saturation(*line()[:2], laws.POWER)
    order = np.argsort(np.argsort(found.residuals))
    assert residual_rank_test(found, order**3)[0] == pytest.approx(1)
    assert residual_rank_test(found, -order)[0] == pytest.approx(-1) and residual_rank_test(found, -order)[1] < 1e-9


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
    # in other units of x it is the same optimum
    assert isoflop_optimum(x * 1e3, loss) == pytest.approx((found[0] * 1e3, found[1], found[2] * 1e3), rel=1e-6)


def test_an_optimum_may_lie_outside_the_points_but_not_beyond_reason():
    x = np.exp([0.0, 1, 2, 3])
    for a in (0.02, 1, 20):
        assert isoflop_optimum(x, a * (np.log(x) + 50) ** 2)[0] == pytest.approx(np.exp(-50), rel=1e-3)
        for away in (150, -150):
            with pytest.raises(InputError, match="has no minimum"):
                isoflop_optimum(x, a * (np.log(x) - away) ** 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: isoflop_optimum([1, 1, 2], [1, 2, 2]),
            "a parabola needs three different points with a loss each, there are 2",
        ),
        (lambda: isoflop_optimum([1, 2, 3, 4], [1, 2, 3]), "a parabola needs three different points"),
        (lambda: isoflop_optimum([1, 2, np.inf], [1, 2, 2]), "x: values must be positive and losses finite"),
        (lambda: isoflop_optimum([1, 2, 3], [1, np.nan, 2]), "x: values must be positive and losses finite"),
        (lambda: isoflop_optimum([1, 2, 0], [1, 2, 2]), "x: values must be positive and losses finite"),
        (lambda: power_law([1, 2, 3], [1, 2]), "a power law needs two points"),
        (lambda: power_law([1, 0], [1, 2]), "x: values must be positive and finite"),
        (lambda: power_law([1, np.inf], [1, 2]), "x: values must be positive and finite"),
        (lambda: power_law([1, 2], [1, np.inf]), "x: values must be positive and finite"),
    ],
)
def test_points_without_a_logarithm_or_a_partner_are_one_line(call, message):
    with one_line(message):
        call()


def test_a_power_law_through_three_points_has_its_error():
    x, y = np.array([1.0, 2, 4]), np.array([3.0, 5, 14])
    coefficients, covariance = np.polyfit(np.log(x), np.log(y), 1, cov=True)
    coef, exponent, stderr = power_law(x, y)
    assert (coef, exponent) == pytest.approx((np.exp(coefficients[1]), coefficients[0]))
    assert stderr == pytest.approx(covariance[0, 0] ** 0.5)


def test_two_cells_are_enough_and_are_drawn_whole():
    T, loss, _ = line(8)
    cells = np.arange(8) % 2
    found = resampled(laws.POWER, (T, loss), cells, 60, seed=4)
    assert {tuple(weights) for weights in found} == {(1,) * 8, (2, 0) * 4, (0, 2) * 4}
    draws = bootstrap(lambda T, loss: fit_saturation(T, loss, laws.POWER), (T, loss), cells, n=1)
    assert len(draws) == 1 and list(draws.columns) == ["Z", "z"]
    three = resampled(laws.POWER, (T, loss), np.arange(8) // 3, 200, seed=4)
    assert all(weights[0] == weights[1] == weights[2] and weights[6] == weights[7] for weights in three)
    assert all(weights[0] + weights[3] + weights[6] == 3 for weights in three)
    assert np.mean(three, axis=0) == pytest.approx(1, abs=0.2)


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


def test_the_units_of_an_input_leave_nothing_open():
    T, noise = np.linspace(1e6, 5e7, 30), np.random.default_rng(0).normal(0, 0.01, 30)
    decay = laws.Law("decay", ("T",), {"Z": (-5.0, 5.0)}, {"z": (0.0, 1e-5)}, lambda p, T: [-p["z"] * T])
    found = fit_saturation(T, 3 * np.exp(-2e-8 * T + noise), decay, objective="squares")
    X = np.stack([np.ones(30), -T / 1e7], axis=1)
    inverse = np.linalg.inv(X.T @ X)
    white = inverse @ (X.T * found.residuals**2) @ X @ inverse
    assert found.unidentified == () == found.at_bound
    assert found.stderr == pytest.approx({"Z": white[0, 0] ** 0.5, "z": white[1, 1] ** 0.5 / 1e7}, rel=1e-5)
