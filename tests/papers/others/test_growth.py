"""Ladders and optima that a law made give back what it says; those that are published give what the paper prints."""

import numpy as np
import pandas as pd
import pytest

from lib.fit import laws
from lib.fit.fits import fit, fresh_fits
from lib.papers.others import growth, runs
from lib.papers.shared.reported import with_intervals


@pytest.fixture(scope="module")
def curves():
    return runs.ladders()


def drawn(curves, n=0):
    """The arms' own laws, on these losses and on n fresh ones."""
    laws = {arm: growth.law(own["compute"], own["loss"]) for arm, own in curves.items()}
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
        assert growth.saved(fits, "untied_2", "vanilla", compute) == pytest.approx((1.65 / 1.6) ** (1 / 0.11), rel=1e-4)
        assert growth.saved(fits, "untied_2", "loop_2", compute) == pytest.approx(1, rel=1e-4)
    assert growth.compute_for(fits["vanilla"], 1.6) == np.inf
    assert growth.compute_for(fits["vanilla"], 1.7 + 1.65) == pytest.approx(1e18, rel=1e-3)
    assert growth.steeper([fits]) == [pytest.approx({"vanilla's E": 0, "own E": 0}, abs=1e-4)]


def test_read_as_the_authors_do_the_printed_multipliers_come_back(curves):
    found = growth.multipliers(curves, drawn(curves, 3))
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
        assert growth.saved_as_measured(made, "operator_1", "vanilla", depth) == pytest.approx(1, abs=0.02)
    lower = {arm: own.assign(loss=own["loss"] - 5 * (arm == "untied_2")) for arm, own in made.items()}
    assert np.isnan(growth.saved_as_measured(lower, "untied_2", "vanilla", 20))


def test_whether_the_exponent_or_the_floor_changes_is_not_in_these_data(curves):
    """The grown ladder is steeper than vanilla at vanilla's floor, flatter with its own; and one exponent for all, each
    with its floor, fits as well as one floor for all."""
    fits, *fresh = drawn(curves, 40)
    found = growth.exponents([fits, *fresh])
    steeper = found["gamma"].xs("untied_grow less vanilla", level="arm")
    assert steeper["vanilla's E"] == pytest.approx(0.0048, abs=2e-4)
    assert steeper["own E, own gamma"] == pytest.approx(-0.0127, abs=2e-4)
    assert growth.steeper([fits])[0] == pytest.approx(
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
    for arm, one in growth.vanillas_floor([own], own)[0].items():
        again = fit(held, (curves[arm]["compute"] / growth.UNIT,), curves[arm]["loss"])
        assert one.objective == pytest.approx(again.objective, rel=1e-9)
        assert one.params == pytest.approx(again.params, rel=1e-6)


# ---- how many parameters ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def theirs():
    return runs.isoflop()


def test_the_optimum_of_a_budget_is_that_of_the_losses(theirs):
    """A parabola in log N around 6 tokens a parameter."""
    best = np.sqrt(theirs["budget"] / 36)  # C = 6 N D, D = 6 N
    made = theirs.assign(F=6 * theirs["N"], loss=3 + 0.1 * np.log(theirs["N"] / best) ** 2)
    found = growth.optima(made)
    assert len(found) == 25 and found["ratio"].tolist() == pytest.approx([6.0] * 25, rel=0.02)
    assert growth.ratios(found)["ours"].tolist() == pytest.approx([6.0] * 5, rel=0.02)


def test_tokens_a_parameter_are_what_is_printed_to_a_half(theirs):
    found = growth.optima(theirs)
    assert found["inside"].all()
    fresh = growth.fresh_optima(theirs, 60, 0)
    table = growth.ratios_beside_printed(found, fresh)
    assert table["printed"].to_dict() == growth.PRINTED_RATIO
    assert (table["ours"] - table["printed"]).abs().max() < 0.5
    assert table["ours"].round(1).tolist() == [5.3, 5.8, 6.4, 6.0, 5.6]
    draws = [growth.ratios(one)["ours"]["vanilla"] for one in fresh]
    assert np.mean(draws) == pytest.approx(table["ours"]["vanilla"], abs=0.1) and 0.05 < np.std(draws) < 0.3
    assert table.loc["vanilla", ["ours low", "ours high"]].tolist() == [*np.quantile(draws, [0.025, 0.975])]


def test_own_weights_are_ahead_of_tied_ones_and_less_so_at_the_top(theirs):
    optima = growth.optima(theirs)
    assert optima["gap"]["loop_2"].round(3).tolist() == [0.013, 0.014, 0.012, 0.004, 0.003]
    others = optima.drop("untied_2", level="arm")
    assert (others["gap"] > 0).all() and optima["gap"]["untied_2"].isna().all()
    table = with_intervals(
        optima[["ratio", "gap"]], [one[["ratio", "gap"]] for one in growth.fresh_optima(theirs, 60, 0)]
    )
    tied = table.loc["loop_2"]
    assert (tied["gap low"][:3] > 0.005).all() and tied["gap high"].iloc[-1] < tied["gap low"].iloc[0]
    assert tied["gap low"].iloc[-1] < 0.002  # hardly off 0
    assert ((table["ratio low"] < table["ratio"]) & (table["ratio"] < table["ratio high"])).all()


# ---- how many loops --------------------------------------------------------------------------------------------------


def made(best):
    """Models on several ladders whose loss at a compute has its least at ``best`` loops."""
    rows = []
    for recipe, arm in growth.SETS.values():
        for k in (1, 2, 3, 4, 6):
            compute = np.geomspace(4e17, 9e18, 60)
            loss = 4 - 1e-20 * compute + 0.1 * np.log(k / best) ** 2
            rows.append(pd.DataFrame({"recipe": recipe, "arm": arm, "loops": k, "compute": compute, "loss": loss}))
    return pd.concat(rows, ignore_index=True)


def test_the_best_number_of_loops_is_found_on_every_set():
    """From the loops that models bracket there: six are, up to 2e18 FLOPs."""
    table = made(2.5)
    found = growth.best_loops(table[~((table["loops"] == 6) & (table["compute"] > 2e18))])
    assert found["K"].tolist() == pytest.approx([2.5] * 25, rel=1e-6)
    assert found["tried"].tolist() == [5, 5, 4, 4, 4] * 5
    none = growth.best_loops(table[table["recipe"] != "tuned"])
    assert none["K"].isna().sum() == 10 and (none["tried"][none["K"].isna()] == 0).all()


def test_the_best_number_of_loops_stands_in_its_interval():
    table = runs.loops()
    found = growth.best_loops(table)[["K"]]
    shown, wide = (
        with_intervals(found, [one[["K"]] for one in growth.fresh_best_loops(table, noise, 40, 0)])
        for noise in (0.002, 0.004)
    )
    assert ((shown["K low"] < shown["K"]) & (shown["K"] < shown["K high"])).all()
    width, wider = (one["K high"] - one["K low"] for one in (shown, wide))
    assert (wider / width).median() == pytest.approx(2, abs=0.2)
    fresh_text = shown.xs("one epoch, tied", level="set")
    assert (fresh_text["K high"] < 2).all() and shown["K low"]["one recipe, 10 epochs"].iloc[-1] > 6
