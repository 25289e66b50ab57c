"""Bootstraps, halves and ranks of residuals say how sure a fit is, and groups may share one of its parameters."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from lib.base.errors import InputError
from lib.fit import fits, laws
from lib.fit.fits import (
    Noise,
    bootstrap,
    cell_signs,
    fit,
    fit_chinchilla,
    fit_joint,
    fit_saturation,
    fresh_fits,
    refits,
)
from tests.fit.coverage import of_laws, of_optima
from tests.fit.known import iso_depth_grid, joint_arrays, line


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
    number, _ = fits.numbered(cells, 116)
    random = np.random.default_rng(1)
    for i in range(6):
        weights = np.bincount(random.integers(24, size=24), minlength=24)[number]
        repeated = frame.loc[frame.index.repeat(weights)]  # the resample as a table of its own
        ours = fit_joint(*joint_arrays(repeated))
        assert draws["phi"][i] == pytest.approx(ours.params["phi"], abs=1e-5)


def test_a_resample_that_cannot_identify_the_law_is_drawn_again():
    frame = iso_depth_grid().query("budget == 1e18")
    single = next(s for s in range(1000) if len({*np.random.default_rng(s).integers(4, size=4)}) == 1)  # comes first
    assert len(bootstrap(fit_joint, joint_arrays(frame), frame["r"], n=3, seed=single)) == 3
    for seed in (0, single):
        found = fits.resampled(laws.JOINT, joint_arrays(frame), frame["r"], 40, seed)
        assert len(found) == 40 and all(frame["r"][weights > 0].nunique() > 1 for weights in found)
    with pytest.raises(InputError, match="resamples: 0 lies outside"):
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
    whole, turned = fits.flipped(point, np.array([np.ones(116), -np.ones(116)]))
    left = fit_joint(*joint_arrays(frame), objective="squares").residuals * np.sqrt(116 / 110)
    assert np.log(whole.loss) == pytest.approx(np.log(point.predict(*inputs)) + left)
    assert np.log(turned.loss) == pytest.approx(np.log(point.predict(*inputs)) - left)
    (again,) = refits(point, [turned.loss])
    assert again.params == pytest.approx(turned.params, rel=1e-9)
    assert point.free == 6 and fit_joint(*joint_arrays(frame), phi=1.0).free == 5
    with pytest.raises(InputError, match="cells: give one label for each of 2 points"):
        cell_signs([1, 1], 2)


def test_fresh_grids_have_the_law_and_the_noise_of_the_one_that_was_seen():
    frame = iso_depth_grid(0.01)
    own = {r: (cell.n_once + cell.n_rec, cell.D, cell.loss) for r, cell in frame.groupby("r")}
    found = {r: fit_chinchilla(*arrays) for r, arrays in own.items()}
    assert found[1].off == pytest.approx(found[1].predict(*own[1][:2]) - own[1][2].to_numpy())
    inputs = {r: arrays[:2] for r, arrays in own.items()}
    noise = fits.noise_of(found)
    assert noise.freedom == 116 - 4 * 5 and noise.variance**0.5 == pytest.approx(0.01, rel=0.15)
    grids = fresh_fits(found, 5, 1)
    assert [*grids[0]] == [1, 2, 4, 8] and grids[0][1].loss.tolist() != grids[1][1].loss.tolist()
    shifts = np.concatenate([np.log(g[r].loss / found[r].predict(*inputs[r])) for g in grids for r in g])
    assert shifts.std() == pytest.approx(0.01, rel=0.2) and abs(shifts.mean()) < 2e-3
    again = fresh_fits(found, 5, 1)
    assert again[4][8].params == grids[4][8].params
    exact = {1: fit_chinchilla(*inputs[1], found[1].predict(*inputs[1]))}
    assert fresh_fits(exact, 1)[0][1].params == pytest.approx(exact[1].params, rel=1e-6)
    unknown = refits(exact[1], [exact[1].loss, np.r_[np.nan, exact[1].loss[1:]]])
    assert unknown[0].params == pytest.approx(exact[1].params, rel=1e-6)
    assert np.isnan([*unknown[1].params.values()]).all()  # and no number that reads as known


def test_what_is_on_the_box_has_no_interval():
    boxed = dataclasses.replace(laws.POWER, shapes={"z": (0.5, 20.0)})
    draws = bootstrap(lambda *arrays: fit_saturation(*arrays, boxed), line()[:2], range(30), n=5)
    assert draws["z"].isna().all() and draws["Z"].std() > 0


def test_intervals_hold_the_truth_as_often_as_is_stated():
    normal, students = of_optima(7, 1500)
    for share, stated in ((normal, 0.873), (students, 0.949)):
        assert abs(share - stated) < 3 * (stated * (1 - stated) / 1500) ** 0.5


@pytest.mark.long
def test_intervals_of_a_law_hold_it_as_often_as_is_stated():
    shares = of_laws("five budgets, 35", 100)
    for way, stated in (("bootstrap", 0.975), ("fresh_fits", 0.94), ("flipped", 0.89)):
        assert (np.abs(shares.loc[way] - stated) < 3.5 * (stated * (1 - stated) / 100) ** 0.5).all(), shares


def test_a_cut_makes_the_halves_as_equal_as_it_can():
    assert [half.sum() for half in fits.split(iso_depth_grid().budget)] == [56, 60]  # 000, App. F.3
    low, high = fits.split([1, 1, 1, 2, 3, 3])
    assert low.tolist() == [True] * 3 + [False] * 3 and (high == ~low).all()
    with pytest.raises(InputError, match="by: 1 values make no halves"):
        fits.split([4, 4])


LADDER = laws.POWER_WITH_FLOOR
TRUTH = {"a": dict(L_inf=1.7, Z=1.65, z=0.11), "b": dict(L_inf=1.7, Z=1.6, z=0.12), "c": dict(L_inf=1.7, Z=1.5, z=0.1)}
INPUTS = {name: (np.geomspace(0.3, 100, 8 - i),) for i, name in enumerate(TRUTH)}


def noisy_groups():
    random = np.random.default_rng(0)
    return {
        name: LADDER.loss(p, *INPUTS[name]) * np.exp(random.normal(0, 1e-3, len(INPUTS[name][0])))
        for name, p in TRUTH.items()
    }


def shared(name, losses):
    (found,) = fits.sharing([{group: fit(LADDER, INPUTS[group], loss) for group, loss in losses.items()}], name)
    return found


@pytest.mark.parametrize("name", ["L_inf", "z"])
def test_no_other_value_fits_all_groups_better(name):
    losses = noisy_groups()
    found = shared(name, losses)
    best = sum(one.objective for one in found.values())
    value = found["a"].params[name]
    for other in value * np.array([0.3, 0.9, 0.99, 0.999, 1.001, 1.01, 1.05, 1.15]):
        held = laws.hold(LADDER, **{name: float(other)})
        assert sum(fit(held, INPUTS[group], losses[group]).objective for group in TRUTH) >= best * (1 - 1e-6)
    alone = sum(fit(LADDER, INPUTS[group], losses[group]).objective for group in TRUTH)
    assert best >= alone * (1 - 1e-9)


def test_each_group_is_at_its_own_optimum_with_what_is_shared():
    losses = noisy_groups()
    for name, one in shared("z", losses).items():
        held = fit(one.law, INPUTS[name], losses[name])  # at this z each group is at its own optimum
        assert one.objective == pytest.approx(held.objective, rel=1e-6) and one.free == 2
        assert one.loss == pytest.approx(losses[name], rel=1e-12)
        assert one.predict(*INPUTS[name]) == pytest.approx(losses[name] * np.exp(one.residuals), rel=1e-9)


def test_noise_is_what_is_left_over_a_degree_of_freedom():
    noise = Noise.left_over([[0.1, -0.1], [0.2]], 1)
    assert noise == (pytest.approx(0.03), 2)
    nothing = Noise.left_over([[0.0, 0.0]], 2)
    assert np.isnan(nothing.variance) and nothing.freedom == 0
    assert np.isnan(nothing.draws(3, 2, np.random.default_rng(0))).all()


def test_percentiles_of_draws_are_students_t():
    draws = Noise(4.0, 3).draws(200_000, 2, np.random.default_rng(0))
    assert draws.shape == (200_000, 2)
    for share in (0.025, 0.2, 0.9):
        assert np.quantile(draws[:, 0], share) == pytest.approx(2 * scipy.stats.t.ppf(share, 3), rel=0.03)
    # the runs of a grid share its variance: a large one is large in all
    assert np.corrcoef(np.abs(draws).clip(0, 20).T)[0, 1] > 0.1 and abs(np.corrcoef(draws.clip(-20, 20).T)[0, 1]) < 0.02
