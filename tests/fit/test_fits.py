"""Fits find a known truth, no start of scipy's minimisers finds a better one, and what cannot be fitted is named."""

import numpy as np
import pytest

from lib.base.errors import InputError
from lib.fit import laws, optimum
from lib.fit.fits import bootstrap, fit_chinchilla, fit_joint, fit_parcae, fit_saturation, fit_unified
from lib.papers.isodepth.designs import PUBLISHED
from tests.fit.known import by_scipy, huber, iso_depth_grid, joint_arrays, unified_grid
from tests.lines import one_line

# ---- the truth -------------------------------------------------------------------------------------------------------


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


# ---- the optimum -----------------------------------------------------------------------------------------------------


def test_no_restart_of_scipy_finds_a_better_joint_law():
    arrays = joint_arrays(iso_depth_grid(0.005))
    best, ours = by_scipy(laws.JOINT, arrays, 12, truth=PUBLISHED), fit_joint(*arrays)
    assert ours.objective <= best * (1 + 1e-9) and best < ours.objective * 1.001
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
        assert "phi" not in bound.params and bound.objective > free.objective and bound.r2 < free.r2
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


# ---- what cannot be fitted -------------------------------------------------------------------------------------------


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
