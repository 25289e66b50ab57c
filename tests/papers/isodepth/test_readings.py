"""Optima, frontiers, laws and phi are read off 000's grid as published, and off made-up runs as they were made."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from lib.fit.fits import Noise, fit_joint
from lib.fit.laws import JOINT
from lib.model.looped import LoopedLM
from lib.papers.isodepth import designs, readings
from lib.train.loop import train
from tests.cells import function
from tests.fit.known import iso_depth_grid
from tests.papers.isodepth.test_designs import P


@pytest.fixture(scope="module")
def published():
    return iso_depth_grid()


@pytest.fixture(scope="module")
def published_fit(published):
    return fit_joint(*readings.joint_arrays(published))


def at_phi(runs, phi):
    """The runs with the losses of the published law at another phi."""
    law = {**designs.PUBLISHED, "phi": phi}
    return runs.assign(loss=JOINT.loss(law, runs["n_once"], runs["n_rec"], runs["r"], runs["D"]))


def test_a_frame_of_runs(store):
    plan = designs.grid(P, [1], {1e9: [16, 24]}, [1])  # narrower ones take more steps
    results = [train(cfg, store) for cfg in plan.values()]
    frame = readings.frame(results, plan)
    assert frame["width"].tolist() == [16, 24] and (frame["N"] == frame["n_once"] + frame["n_rec"]).all()
    model = LoopedLM(results[1].config.model)
    tables = model.embed.weight.numel() + model.head.weight.numel()
    assert frame["N"][1] == sum(p.numel() for p in model.parameters()) - tables
    assert frame["loss"].tolist() == [r.summary["val_loss"] for r in results]
    assert readings.frame(results, plan, "diverged").empty
    lost = [results[0], dataclasses.replace(results[1], status="diverged")]
    assert readings.frame(lost, plan)["width"].tolist() == [16]
    (cell,) = readings.frame(lost, plan, "diverged")[["budget", "r", "N"]].to_dict("records")
    assert cell == {"budget": 1e9, "r": 1, "N": frame["N"][1]}


# ---- optima ----------------------------------------------------------------------------------------------------------


def test_optima_are_the_parabolas_minima(published):
    optima = readings.optima(published)
    assert len(optima) == 24 and optima["inside"].sum() > 15
    inside = optima[optima["inside"]].set_index(["budget", "r"])
    best = published.groupby(["budget", "r"])["loss"].min()
    assert (inside["loss"] <= best[inside.index] + 1e-3).all()
    # losses that fall with N have no optimum inside
    falling = published.assign(loss=4 - 0.1 * np.log(published["N"]))
    assert not readings.optima(falling)["inside"].any()


def test_gaps_are_against_the_plain_model_and_need_both_optima():
    optima = pd.DataFrame({"budget": [1.0, 1.0, 2.0, 2.0], "r": [1, 4, 1, 4], "loss": [2.0, 2.1, 1.8, 1.95]})
    optima["inside"] = [True, True, True, False]
    gaps = readings.frontier_gaps(optima)
    assert gaps.columns.tolist() == [4] and gaps[4][1.0] == pytest.approx(0.1) and np.isnan(gaps[4][2.0])


def test_a_d_is_the_exponent_of_the_optimal_parameters(published_fit):
    line = readings.allocations(published_fit, designs.published_families()[1], 1, [1e18, 2e18, 4e18])
    exponent = np.polyfit(np.log(line["budget"]), np.log(line["N"]), 1)[0]
    assert exponent == pytest.approx(readings.a_D(published_fit), abs=0.02)


def test_parabolas_of_looped_models_are_compared_from_one_r_to_the_next(published):
    bend = {1: 0.08, 2: 0.07, 4: 0.05, 8: 0.06}
    x = np.log(published["N"] / 1e8)
    runs = published.assign(loss=3 + published["r"].map(bend) * x**2 + 0.01 * x)
    assert readings.flatter(runs)["flatter"] == pytest.approx({"r = 2": 0.01, "r = 4": 0.02, "r = 8": -0.01})
    (fresh,) = readings.fresh_runs(runs, runs, 1, 0)
    pd.testing.assert_series_equal(fresh["loss"].sort_index(), runs["loss"], atol=1e-9)  # exact, no noise is left over


def test_fresh_runs_have_the_noise_of_cells_and_of_seeds(published):
    x, random = np.log(published["N"] / 1e8), np.random.default_rng(0)
    line = 3 + 0.05 * x**2
    runs = published.assign(loss=line + random.normal(0, 0.01, len(x)))
    fresh = pd.concat(readings.fresh_runs(runs, runs, 50, 0)).groupby(level=0)["loss"]
    assert fresh.std().mean() == pytest.approx(0.01, rel=0.2) and (fresh.mean() - line).abs().max() < 0.03
    few = runs[runs["width"].isin([640, 768, 896])]
    again = pd.concat([few.iloc[:1].assign(loss=loss) for loss in (2.0, 2.2, 2.4)])
    spread = pd.concat(readings.fresh_runs(few, again, 400, 0)).groupby(level=0)["loss"].std().median()
    assert spread > 0.05  # 2 degrees of freedom from the seeds, nothing but 1e-2 from the cells


# ---- each recurrence by its own law ----------------------------------------------------------------------------------


def test_each_recurrence_has_its_law_and_its_cost(published):
    laws = readings.own_laws(published)
    assert [*laws] == [1, 2, 4, 8] and not readings.own_laws(published.groupby("r").head(5))
    budgets = sorted(published["budget"].unique())
    optima = readings.law_optima(laws, designs.published_families(), budgets)
    assert [*optima.index] == [*range(24)] and optima["inside"].all()
    found = readings.cost_of_sharing(optima)
    gaps = {r: found[f"r = {r}"][""] for r in (2, 4, 8)}
    assert 0 < gaps[2] < gaps[4] < gaps[8] < 0.13
    assert found["from 2 to 4"][""] == pytest.approx(gaps[4] - gaps[2])
    assert found["from 4 to 8"][""] == pytest.approx(gaps[8] - gaps[4])
    assert len(found["everywhere"]) == 18 and min(found["everywhere"].values()) > 0
    assert np.mean([*found["everywhere"].values()]) == pytest.approx(np.mean([*gaps.values()]))
    assert found["fades"][""] > 0 and found["wider"][""] > 0 and 0 < found["fewer"][""] < 1.3
    for r in (2, 4, 8):  # both ways of one change
        assert found["flat"][f"r = {r}, up"] + found["flat"][f"r = {r}, down"] == pytest.approx(0.012)
        last, before = (found["everywhere"][f"r = {r}, {budget:.3g} FLOPs"] for budget in budgets[:-3:-1])
        assert found["flat"][f"r = {r}, up"] == pytest.approx(0.006 - (last - before)) and last < before
    assert found["tokens"][""] == pytest.approx(1.25 - 4 * found["wider"][""], abs=0.1)
    assert found["tokens"][""] == pytest.approx(found["fewer"][""] - found["fewer tokens"][""])
    found = readings.of_own_laws(laws)  # what they leave over
    assert max(found["unexplained"].values()) < 1e-6 and max(found["largest residual"].values()) < 1e-4
    assert found["a_D, r = 1"][""] == pytest.approx(0.36863 / (0.36863 + 0.19924), abs=1e-3)
    assert [*found["a_D"]] == [*found["a_D, larger"]] == ["r = 2", "r = 4", "r = 8"]
    assert found["a_D"]["r = 8"] - found["a_D, larger"]["r = 8"] == found["a_D, r = 1"][""]
    assert len(found["alpha"]) == 6 and [*found["alpha"].values()] == pytest.approx([0.0] * 6, abs=1e-3)  # one law's


def test_a_pairs_gap_has_the_noise_of_two_runs():
    one = pd.DataFrame({"r": [1, 4], "seed": 7, "loss": [2.0, 2.1]})
    gap, *draws = readings.matched_gap(one, Noise(1e-4, 10**6), 0)
    assert gap == pytest.approx(0.1) and np.mean(draws) == pytest.approx(0.1, abs=2e-3)
    assert np.std(draws) == pytest.approx(0.01 * np.hypot(2.0, 2.1), rel=0.05)
    four = pd.concat([one.assign(seed=seed) for seed in range(4)])
    lone = pd.DataFrame({"r": [1], "seed": 9, "loss": [5.0]})  # its partner blew up
    gap, *draws = readings.matched_gap(pd.concat([four, lone]), Noise(1e-4, 10**6), 0)
    assert gap == pytest.approx(0.1) and np.std(draws) == pytest.approx(0.005 * np.hypot(2.0, 2.1), rel=0.05)
    assert np.isnan(readings.matched_gap(lone, Noise(1e-4, 10**6), 0)).all()


# ---- the joint law ---------------------------------------------------------------------------------------------------


def test_held_at_one_the_published_law_fits_worse_than_at_zero(published):
    fits = readings.joint_fits(published, 3, 0)
    assert [one.params["phi"] for one in fits] == pytest.approx([0.459] * 4, abs=1e-5)  # exact, nothing is left over
    margin, *draws = readings.held_phi_margin(fits, published)
    assert draws == pytest.approx([margin] * 3, abs=1e-4) and 0 < margin < 0.1  # two R2 near 1


def test_the_quality_of_the_joint_law_is_read_on_every_grid(published):
    noise = np.random.default_rng(0).normal(0, 0.01, len(published))
    runs = published.assign(loss=published["loss"] + noise)
    fits = readings.joint_fits(runs, 30, 0)
    drawn = {name: {of: np.array(x) for of, x in own.items()} for name, own in
             readings.joint_quality(fits, runs, 0).items()}  # fmt: skip
    left = fits[0].predict(*readings.joint_arrays(runs)[:-1]) - runs["loss"]
    rms, largest, unexplained = (drawn[name][""] for name in ("rms", "largest residual", "unexplained"))
    assert rms[0] == pytest.approx(np.sqrt((left**2).mean())) and largest[0] == pytest.approx(left.abs().max())
    assert unexplained[0] == pytest.approx((left**2).mean() / runs["loss"].var(ddof=0))
    theirs = scipy.stats.spearmanr(left / runs["loss"], runs["N"]).statistic
    assert drawn["trend"]["N"][0] == pytest.approx(theirs, abs=0.01)
    wide = np.quantile(rms[1:], [0.025, 0.975]) / rms[0]
    assert wide == pytest.approx(np.sqrt(110 / scipy.stats.chi2.ppf([0.975, 0.025], 110)), rel=0.02)
    assert unexplained / unexplained[0] == pytest.approx((largest / largest[0]) ** 2)
    found, *draws = drawn["trend"]["D"]
    assert np.mean(draws) == pytest.approx(found, abs=0.1) and len(draws) == 30


def test_phi_drifts_where_the_halves_differ(published):
    fits = readings.joint_fits(published, 2, 0)
    np.testing.assert_allclose(readings.drift_of_phi(fits, published), 0, atol=1e-5)
    moved = published.copy()
    high = moved["budget"] > 2.2e18
    moved.loc[high, "loss"] = at_phi(moved[high], 0.7)["loss"] + 0.05  # a floor of its own, too
    whole = dataclasses.replace(fits[0], loss=moved["loss"].to_numpy())  # its law, their losses
    drifts = readings.drift_of_phi([whole, *fits[1:]], moved)
    np.testing.assert_allclose(drifts, 0.7 - 0.459, atol=1e-4)  # draws count from what was found
    counts = np.where(high & (published["r"] == 8), 0, 1)[None]  # what does not count does not move it
    moved.loc[counts[0] == 0, "loss"] = 9.0
    whole = dataclasses.replace(whole, loss=moved["loss"].to_numpy())
    (phis,) = readings.phi_of_parts([whole], [high.to_numpy()], counts)
    assert phis == pytest.approx([0.7], abs=1e-4)
    (phis,) = readings.phi_of_parts([whole], [~high.to_numpy()], free=whole.params)  # by itself
    assert phis == pytest.approx([0.459], abs=1e-4)


def test_a_shift_of_phi_is_found_with_and_without_the_other_constants(published, published_fit):
    moved = at_phi(published, 0.65)
    sets = {"baseline": published, "lanes": moved[(moved["budget"] != 1e18) | (moved["r"] != 8)]}  # a cell blew up
    for fitting in (fit_joint, function("phi_probes", "phi_alone")(published_fit)):
        shifts = readings.phi_shifts(readings.probe_draws(sets, fitting, 4, 0))
        assert shifts.loc["baseline", ["delta", "delta_low", "delta_high"]].tolist() == [0, 0, 0]
        found = shifts.loc["lanes", ["delta", "delta_low", "delta_high"]].tolist()
        assert found == pytest.approx([0.191] * 3, abs=1e-5)


def test_probes_move_phi_and_widths(published):
    sets = {"baseline": published, "lanes": at_phi(published, 0.65)}
    families = {name: designs.published_families()[4] for name in sets}
    budgets = sorted(designs.PUBLISHED_WIDTHS)[:2]
    drawn = readings.of_probes(readings.probe_draws(sets, fit_joint, 3, 0), families, 4, budgets)
    moves = drawn["lanes"] - drawn["baseline"]
    assert drawn["lanes"]["phi"][0] == pytest.approx(0.65)
    assert drawn["baseline"]["a_D"][0] == pytest.approx(0.649, abs=1e-3)
    assert moves["phi"].tolist() == pytest.approx([0.191] * 4, abs=1e-5) and (moves["width"] < 0).all()


def test_without_the_runs_that_do_not_fit_the_law_fits_better(published):
    runs = published.assign(loss=published["loss"] - 0.05 * (published["r"] == 2))
    fits = readings.probe_draws({"shifted": runs}, fit_joint, 20, 0)["shifted"]
    found = readings.without(fits, runs, 2)
    move, *moves = found["phi"]
    assert move == pytest.approx(0.459 - fits[0].params["phi"], abs=1e-4)
    assert found["r2"][0] == pytest.approx(1 - fits[0].r2, abs=1e-6)
    assert len(found["phi"]) == len(found["r2"]) == 21
    low, high = np.quantile(moves, [0.1, 0.9])
    assert low < move < high  # not about 0, with which the fresh grids are made


def test_the_worst_fitted_recurrence_is_told_by_its_residuals(published):
    noise = 0.01 * (-1) ** np.arange(len(published)) * np.where(published["r"] == 2, 4, 1)
    runs = published.assign(loss=published["loss"] * np.exp(-noise))
    fit = fit_joint(*readings.joint_arrays(runs))
    found = readings.worst_fitted(fit, runs, 2, 0)
    assert [*found] == ["r = 1", "r = 4", "r = 8"]
    residuals = pd.Series(fit.residuals, runs.index)
    rms = (residuals**2).groupby(runs["r"]).mean() ** 0.5
    assert found["r = 4"][0] == pytest.approx(np.log2(rms[2] / rms[4])) and found["r = 4"][0] > 1
    spread = 0.5 * np.log2(scipy.stats.f.ppf([0.025, 0.975], 29, 29))  # 29 runs each
    ends = np.quantile(found["r = 4"][1:], [0.025, 0.975]) - found["r = 4"][0]
    np.testing.assert_allclose(ends, spread, atol=0.05)


def test_gains_are_means_of_cells_with_the_noise_about_them():
    index = pd.MultiIndex.from_product([[1e9, 2e9], [2, 4], [8, 16, 24]], names=["budget", "r", "width"])
    gains = pd.Series(np.tile([0.1, 0.2, 0.3], 4), index)
    gains.iloc[-1] = np.nan  # a run that blew up
    found = readings.cell_means(gains, 0)
    sd = np.sqrt((3 * 0.02 + 0.005) / 7)
    for name, mean, n in (("r = 2, 1e+09 FLOPs", 0.2, 3), ("r = 4, 2e+09 FLOPs", 0.15, 2)):
        assert found[name][0] == pytest.approx(mean)
        low, high = np.quantile(found[name][1:], [0.025, 0.975])
        assert high - low == pytest.approx(2 * scipy.stats.t.ppf(0.975, 7) * sd / np.sqrt(n), rel=0.1)


def test_lanes_lead_where_they_beat_the_plain_model(published):
    plain = published["loss"] * np.where(published["r"] == 2, 0, 1)
    same = published[published["r"] == 1].set_index(["budget", "width"])["loss"]
    at = pd.MultiIndex.from_frame(published[["budget", "width"]])
    runs = published.assign(loss=np.where(published["r"] == 2, same.loc[at].to_numpy() + 0.005, plain))
    found, *draws = readings.lead_over_plain(runs, 2, 0)
    assert found == pytest.approx(0.01) and np.mean(draws) == pytest.approx(0.01, abs=1e-3)


# ---- what a law says -------------------------------------------------------------------------------------------------


def test_a_prediction_has_the_interval_of_fresh_laws(published, published_fit):
    A, B, _, *shapes = published_fit.theta
    floors = np.log(np.linspace(1.5, 1.6, 101))
    fresh = [dataclasses.replace(published_fit, theta=np.array([A, B, floor, *shapes])) for floor in floors]
    frame = readings.predicted(published.assign(loss=published["loss"] / 1.01), [published_fit, *fresh])
    np.testing.assert_allclose(frame["error (%)"], 1, rtol=1e-6)
    np.testing.assert_allclose(frame["high"] - frame["low"], 0.095, rtol=1e-6)


def test_what_a_recurrence_is_worth_at_the_published_phi():
    worth = readings.worth(designs.published_families(), 0.459).set_index("r")
    assert worth.loc[1].tolist() == [1, 1, 1]
    assert worth["unique"][4] == pytest.approx(0.41, abs=0.005)  # 410M for 1B
    assert worth["effective"][4] == pytest.approx(0.59, abs=0.01)  # with the injection; 0.58 without
    assert worth["flops"].max() < 1.07
    at_one = readings.worth(designs.published_families(), 1.0)
    assert at_one["effective"].between(1, 1.07).all()  # unrolled, all are the plain model and their injections
