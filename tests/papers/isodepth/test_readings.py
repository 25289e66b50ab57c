"""Optima, frontiers, laws and phi are read off 000's grid as published, and off made-up runs as they were made."""

import numpy as np
import pandas as pd
import pytest

from lib.fit.fits import fit_chinchilla, fit_joint
from lib.fit.frontier import with_phi
from lib.fit.laws import JOINT
from lib.model.looped import LoopedLM
from lib.papers.isodepth import designs, readings
from lib.train.loop import train
from tests.papers.isodepth.test_designs import P


@pytest.fixture(scope="module")
def published():
    return designs.published_grid()


@pytest.fixture(scope="module")
def published_fit(published):
    return fit_joint(*readings.joint_arrays(published))


def at_phi(runs, phi):
    """The runs with the losses of the published law at another phi."""
    law = {**designs.PUBLISHED, "phi": phi}
    return runs.assign(loss=JOINT.loss(law, runs["n_once"], runs["n_rec"], runs["r"], runs["D"]))


# ---- the runs, and the noise of one ----------------------------------------------------------------------------------


def test_a_frame_of_runs(store):
    plan = designs.grid(P, [1], {1e9: [16, 24]}, [1])  # narrower ones take more steps
    results = [train(cfg, store) for cfg in plan.values()]
    frame = readings.frame(results, plan)
    assert frame["width"].tolist() == [16, 24] and (frame["N"] == frame["n_once"] + frame["n_rec"]).all()
    model = LoopedLM(results[1].config.model)
    tables = model.embed.weight.numel() + model.head.weight.numel()
    assert frame["N"][1] == sum(p.numel() for p in model.parameters()) - tables
    assert frame["loss"].tolist() == [r.summary["val_loss"] for r in results]


def test_seed_noise_is_the_t_interval_of_a_run():
    rows = [
        (1.0, r, 8, seed, loss)
        for r, losses in ((1, (2.0, 2.1, 2.2)), (8, (3.0, 3.1, 3.2)), (2, (5.0,)))
        for seed, loss in enumerate(losses)
    ]
    frame = pd.DataFrame(rows, columns=["budget", "r", "width", "seed", "loss"])
    assert readings.seed_noise(frame) == pytest.approx(2.776445 * 0.1)  # 4 degrees of freedom
    assert readings.seed_noise(frame[frame["r"] == 2]) == np.inf


# ---- optima ----------------------------------------------------------------------------------------------------------


def test_optima_are_the_parabolas_minima(published):
    optima = readings.optima(published)
    assert len(optima) == 24 and (optima["budget"] / optima["D"] > 0).all()
    for _, row in optima.iterrows():
        cell = published[(published["budget"] == row["budget"]) & (published["r"] == row["r"])]
        assert row["loss"] <= cell["loss"].min() + 1e-3
        assert row["inside"] == (cell["N"].min() <= row["N"] <= cell["N"].max())
        if row["inside"]:
            assert cell["width"].min() <= row["width"] <= cell["width"].max()
            F = np.interp(np.log(row["N"]), np.log(cell["N"].sort_values()), np.log(cell.sort_values("N")["F"]))
            assert row["D"] == pytest.approx(row["budget"] / np.exp(F))
    # losses that fall with N have no optimum inside
    falling = published.assign(loss=4 - 0.1 * np.log(published["N"]))
    assert not readings.optima(falling)["inside"].any()


def test_gaps_are_against_the_plain_model_and_need_both_optima():
    optima = pd.DataFrame(
        {
            "budget": [1.0, 1.0, 2.0, 2.0],
            "r": [1, 4, 1, 4],
            "loss": [2.0, 2.1, 1.8, 1.95],
            "inside": [True, True, True, False],
        }
    )
    gaps = readings.frontier_gaps(optima)
    assert gaps.columns.tolist() == [4] and gaps[4][1.0] == pytest.approx(0.1) and np.isnan(gaps[4][2.0])


def test_a_d_is_the_exponent_of_the_optimal_parameters(published_fit):
    line = readings.allocations(published_fit, designs.published_families()[1], 1, [1e18, 2e18, 4e18])
    exponent = np.polyfit(np.log(line["budget"]), np.log(line["N"]), 1)[0]
    assert exponent == pytest.approx(readings.a_D(published_fit), abs=0.02)
    assert readings.a_D({"alpha": 0.2, "beta": 0.3}) == pytest.approx(0.6)


def test_a_d_of_exact_losses_has_a_narrow_interval(published):
    plain = published[published["r"] == 1]
    low, high = readings.a_D_interval(plain, 4, 0)
    fitted = readings.a_D(fit_chinchilla(plain["N"], plain["D"], plain["loss"]))
    assert low == pytest.approx(fitted, abs=1e-4) and high == pytest.approx(fitted, abs=1e-4)


# ---- the joint law ---------------------------------------------------------------------------------------------------


def test_held_at_one_the_published_law_fits_worse_than_at_zero(published):
    margin, (low, high) = readings.held_phi_margin(published[::2], 5, 0)
    assert low <= high and 0 < margin < 0.1  # two R2 near 1
    r2_low, r2_high = readings.r2_interval(published[::3], 4, 0)
    assert r2_low == pytest.approx(1) and r2_high == pytest.approx(1)


def test_phi_drifts_where_the_halves_differ(published):
    still = readings.drift_of_phi(published, 3, 0)
    np.testing.assert_allclose(still, 0, atol=1e-6)
    moved = published.copy()
    high = moved["budget"] > 2.2e18
    moved.loc[high, "loss"] = at_phi(moved[high], 0.7)["loss"]
    np.testing.assert_allclose(readings.drift_of_phi(moved, 3, 0), 0.7 - 0.459, atol=1e-5)


def test_a_shift_of_phi_is_found_with_and_without_the_other_constants(published, published_fit):
    moved = at_phi(published, 0.65)
    sets = {"baseline": published, "lanes": moved[(moved["budget"] != 1e18) | (moved["r"] != 8)]}  # a cell blew up
    for fitting in (fit_joint, readings.phi_alone(published_fit)):
        shifts = readings.phi_shifts(sets, fitting, 4, 0)
        assert shifts.loc["baseline", ["delta", "delta_low", "delta_high"]].tolist() == [0, 0, 0]
        found = shifts.loc["lanes", ["delta", "delta_low", "delta_high"]].tolist()
        assert found == pytest.approx([0.191] * 3, abs=1e-5)


# ---- what a law says -------------------------------------------------------------------------------------------------


def test_a_prediction_has_its_bootstraps_interval(published, published_fit):
    draws = pd.DataFrame([{**designs.PUBLISHED, "E": e} for e in np.linspace(1.5, 1.6, 101)])
    frame = readings.predicted(published.assign(loss=published["loss"] / 1.01), published_fit, draws)
    np.testing.assert_allclose(frame["error (%)"], 1, rtol=1e-6)
    np.testing.assert_allclose(frame["high"] - frame["low"], 0.095, rtol=1e-6)


def test_a_lower_phi_wants_wider_models(published_fit):
    families = designs.published_families()
    at = {
        phi: readings.allocations(with_phi(published_fit, phi), families[4], 4, [1e18, 4.64e18])
        for phi in designs.PUBLISHED_PROBES.values()
    }
    widths = [at[phi]["width"].to_numpy() for phi in (0.38, 0.45, 0.65)]
    assert (widths[0] > widths[1]).all() and (widths[1] > widths[2]).all() and not at[0.45]["at_edge"].any()


def test_what_a_recurrence_is_worth_at_the_published_phi():
    worth = readings.worth(designs.published_families(), 0.459).set_index("r")
    assert worth.loc[1].tolist() == [1, 1, 1]
    assert worth["unique"][4] == pytest.approx(0.41, abs=0.005)  # 410M for 1B
    assert worth["effective"][4] == pytest.approx(0.59, abs=0.01)  # with the injection; 0.58 without
    assert worth["flops"].max() < 1.07
    at_one = readings.worth(designs.published_families(), 1.0)
    assert at_one["effective"].between(1, 1.07).all()  # unrolled, all are the plain model and their injections


def test_frontiers_keep_the_order_of_the_paper(published, published_fit):
    one = fit_joint(*readings.joint_arrays(published), phi=1.0)
    lines = readings.frontiers(published_fit, one, designs.published_families(), [1e18, 1e19])
    table = lines.pivot(index="budget", columns="r", values="loss").dropna()
    assert len(table) > 5 and (np.diff(table[[1, 2, 4, 8]], axis=1) > 0).all()
    unrolled = lines.pivot(index="budget", columns="r", values="loss_unrolled").dropna()
    assert (unrolled.max(axis=1) - unrolled.min(axis=1)).max() < 0.02  # one curve, but for the injection's FLOPs


def test_a_model_of_410_is_worth_580_at_the_cost_of_1000(published_fit):
    table = readings.equivalences(published_fit, designs.published_families(), 4.64e18).loc[4]
    assert table["unique"] == pytest.approx(0.41, abs=0.005) and table["cost"] == pytest.approx(1.03, abs=0.01)
    assert table["worth"] == pytest.approx(0.59, abs=0.01)  # 0.58 without the injection
    assert table["tokens"] > 1.2 and 0.9 < table["phi to cross"] < 1.1
