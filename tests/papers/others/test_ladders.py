"""Ladders that a law made give back what an arm saves; those that are published give what the paper prints."""

import numpy as np
import pytest

from lib.fit import laws
from lib.fit.fits import fit, fresh_fits
from lib.papers.others import ladders, runs


@pytest.fixture(scope="module")
def curves():
    return runs.ladders()


def drawn(curves, n=0):
    """The arms' own laws, on these losses and on n fresh ones."""
    laws = {arm: ladders.law(own["compute"], own["loss"]) for arm, own in curves.items()}
    return [laws, *(fresh_fits(laws, n, 0) if n else ())]


def lawful(curves, constants):
    """The same computes, with the losses of E + A (C / 1e18)^-gamma."""
    return {
        arm: own.assign(loss=E + A * (own["compute"] / 1e18) ** -g)
        for arm, own in curves.items()
        for E, A, g in [constants(arm)]
    }


def test_the_ladders_are_those_of_one_corpus(curves):
    assert next(iter(curves)) == "vanilla" and len(curves) == 8 and sum(map(len, curves.values())) == 58
    assert {*runs.ladders("fineweb_edu")} == {"vanilla", "untied_grow"}
    assert all(own["compute"].is_monotonic_increasing for own in curves.values())


def test_what_an_arm_saves_follows_from_its_law(curves):
    """With one floor and one exponent it is the ratio of amplitudes, to the power 1 / gamma, at every compute."""
    made = lawful(curves, lambda arm: (1.7, 1.65 if arm == "vanilla" else 1.6, 0.11))
    (fits,) = drawn(made)
    for compute in (1e18, 1e20):
        assert ladders.saved(fits, "untied_2", "vanilla", compute) == pytest.approx(
            (1.65 / 1.6) ** (1 / 0.11), rel=1e-4
        )
        assert ladders.saved(fits, "untied_2", "loop_2", compute) == pytest.approx(1, rel=1e-4)
    assert ladders.compute_for(fits["vanilla"], 1.6) == np.inf
    assert ladders.compute_for(fits["vanilla"], 1.7 + 1.65) == pytest.approx(1e18, rel=1e-3)
    assert ladders.steeper([fits]) == [pytest.approx({"vanilla's E": 0, "own E": 0}, abs=1e-4)]


def test_read_as_the_authors_do_the_printed_multipliers_come_back(curves):
    found = ladders.multipliers(curves, drawn(curves, 3))
    arms = found[found.index.get_level_values("than") == "vanilla"]
    assert (arms["between"] - arms["printed"]).abs().max() < 0.0055  # half of the last digit
    tied = found.loc["untied_2"].loc["loop_2"]
    assert tied["between"].round(2).tolist() == [1.08, 1.07] and tied["printed"].tolist() == [1.08, 1.06]
    assert arms["law"].round(2).tolist() == [1.12, 1.27, 1.22, 1.37, 1.34, 1.6, 1.39, 1.1]
    assert tied["law"].round(2).tolist() == [1.1, 1.08]
    assert (found["low"] <= found["high"]).all()


def test_between_two_runs_a_multiplier_is_linear_in_log_compute(curves):
    made = lawful(curves, lambda arm: (1.7, 1.65, 0.11))
    for depth in (8, 20):
        assert ladders.saved_as_measured(made, "operator_1", "vanilla", depth) == pytest.approx(1, abs=0.02)
    lower = {arm: own.assign(loss=own["loss"] - 5 * (arm == "untied_2")) for arm, own in made.items()}
    assert np.isnan(ladders.saved_as_measured(lower, "untied_2", "vanilla", 20))


def test_whether_the_exponent_or_the_floor_changes_is_not_in_these_data(curves):
    """The grown ladder is steeper than vanilla at vanilla's floor, flatter with its own; and one exponent for all, each
    with its floor, fits as well as one floor for all."""
    fits, *fresh = drawn(curves, 40)
    found = ladders.exponents([fits, *fresh])
    steeper = found["gamma"].xs("untied_grow less vanilla", level="arm")
    assert steeper["vanilla's E"] == pytest.approx(0.0048, abs=2e-4)
    assert steeper["own E, own gamma"] == pytest.approx(-0.0127, abs=2e-4)
    assert ladders.steeper([fits])[0] == pytest.approx(
        {"vanilla's E": steeper["vanilla's E"], "own E": steeper["own E, own gamma"]}, abs=1e-5
    )
    arms = found[found.index.get_level_values("arm") != "untied_grow less vanilla"]
    assert arms.loc["one E", "E"].nunique() == arms.loc["one gamma", "gamma"].nunique() == 1
    rms = arms["rms"].unstack("way")
    assert (rms["one gamma"] ** 2).mean() < (rms["one E"] ** 2).mean()
    assert (rms["own E, own gamma"] <= rms["vanilla's E"] + 1e-4).all()
    for number in ("gamma", "E"):
        assert ((arms[f"{number} low"] < arms[number]) & (arms[number] < arms[f"{number} high"])).all()
    width = found["gamma high"] - found["gamma low"]  # what is shared is known better, and so is what is alike
    assert width["one gamma", "vanilla"] < width["own E, own gamma", "vanilla"]
    assert width["vanilla's E", "untied_grow less vanilla"] < width["own E, own gamma", "untied_grow less vanilla"]


def test_at_vanillas_floor_each_fit_is_at_its_optimum(curves):
    (own,) = drawn(curves)
    held = laws.hold(laws.POWER_WITH_FLOOR, L_inf=own["vanilla"].params["L_inf"])
    for arm, one in ladders.vanillas_floor([own], own)[0].items():
        again = fit(held, (curves[arm]["compute"] / ladders.UNIT,), curves[arm]["loss"])
        assert one.objective == pytest.approx(again.objective, rel=1e-9)
        assert one.params == pytest.approx(again.params, rel=1e-6)
