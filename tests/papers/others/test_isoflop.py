"""Optima, laws and objectives of other groups' runs: a law's own where it made the runs, and what is printed."""

import numpy as np
import pandas as pd
import pytest

from lib.fit import laws
from lib.fit.fits import bootstrap, fit_joint
from lib.papers.isodepth import published
from lib.papers.isodepth.designs import PUBLISHED
from lib.papers.isodepth.readings import joint_arrays
from lib.papers.others import isoflop, runs
from lib.papers.shared.reported import with_intervals


@pytest.fixture(scope="module")
def theirs():
    return runs.isoflop()


def test_the_optimum_of_a_budget_is_that_of_the_losses(theirs):
    """A parabola in log N around 6 tokens a parameter."""
    best = np.sqrt(theirs["budget"] / 36)  # C = 6 N D, D = 6 N
    made = theirs.assign(F=6 * theirs["N"], loss=3 + 0.1 * np.log(theirs["N"] / best) ** 2)
    found = isoflop.optima(made)
    assert len(found) == 25 and found["ratio"].tolist() == pytest.approx([6.0] * 25, rel=0.02)
    assert isoflop.ratios(found)["ours"].tolist() == pytest.approx([6.0] * 5, rel=0.02)


def test_tokens_a_parameter_are_what_is_printed_to_a_half(theirs):
    found = isoflop.optima(theirs)
    assert found["inside"].all()
    fresh = isoflop.fresh_optima(theirs, 60, 0)
    table = isoflop.ratios_beside_printed(found, fresh)
    assert table["printed"].to_dict() == isoflop.PRINTED_RATIO
    assert (table["ours"] - table["printed"]).abs().max() < 0.5
    assert table["ours"].round(1).tolist() == [5.3, 5.8, 6.4, 6.0, 5.6]
    draws = [isoflop.ratios(one)["ours"]["vanilla"] for one in fresh]
    assert np.mean(draws) == pytest.approx(table["ours"]["vanilla"], abs=0.1) and 0.05 < np.std(draws) < 0.3
    assert table.loc["vanilla", ["ours low", "ours high"]].tolist() == [*np.quantile(draws, [0.025, 0.975])]


def test_own_weights_are_ahead_of_tied_ones_and_less_so_at_the_top(theirs):
    optima = isoflop.optima(theirs)
    assert optima["gap"]["loop_2"].round(3).tolist() == [0.013, 0.014, 0.012, 0.004, 0.003]
    others = optima.drop("untied_2", level="arm")
    assert (others["gap"] > 0).all() and optima["gap"]["untied_2"].isna().all()
    table = with_intervals(
        optima[["ratio", "gap"]], [one[["ratio", "gap"]] for one in isoflop.fresh_optima(theirs, 60, 0)]
    )
    tied = table.loc["loop_2"]
    assert (tied["gap low"][:3] > 0.005).all() and tied["gap high"].iloc[-1] < tied["gap low"].iloc[0]
    assert tied["gap low"].iloc[-1] < 0.002  # hardly off 0
    assert ((table["ratio low"] < table["ratio"]) & (table["ratio"] < table["ratio high"])).all()


def test_an_arms_own_law_is_found_again(theirs):
    truth = dict(A=1e4, B=2e4, E=2.5, alpha=0.55, beta=0.5)
    made = theirs.assign(loss=laws.CHINCHILLA.loss(truth, theirs["N"], theirs["D"]))
    found = isoflop.own_laws(made, 2, 0)
    assert len(found) == 5 and found["a_D"].tolist() == pytest.approx([0.5 / 1.05] * 5, rel=1e-4)
    assert (found["low"] <= found["high"]).all()


# ---- how many loops --------------------------------------------------------------------------------------------------


def made(best):
    """Models on several ladders whose loss at a compute has its least at ``best`` loops."""
    rows = []
    for recipe, arm in isoflop.SETS.values():
        for k in (1, 2, 3, 4, 6):
            compute = np.geomspace(4e17, 9e18, 60)
            loss = 4 - 1e-20 * compute + 0.1 * np.log(k / best) ** 2
            rows.append(pd.DataFrame({"recipe": recipe, "arm": arm, "loops": k, "compute": compute, "loss": loss}))
    return pd.concat(rows, ignore_index=True)


def test_the_best_number_of_loops_is_found_on_every_set():
    """From the loops that models bracket there: six are, up to 2e18 FLOPs."""
    table = made(2.5)
    found = isoflop.best_loops(table[~((table["loops"] == 6) & (table["compute"] > 2e18))])
    assert found["K"].tolist() == pytest.approx([2.5] * 25, rel=1e-6)
    assert found["tried"].tolist() == [5, 5, 4, 4, 4] * 5
    none = isoflop.best_loops(table[table["recipe"] != "tuned"])
    assert none["K"].isna().sum() == 10 and (none["tried"][none["K"].isna()] == 0).all()


def test_the_best_number_of_loops_stands_in_its_interval():
    table = runs.loops()
    found = isoflop.best_loops(table)[["K"]]
    shown, wide = (
        with_intervals(found, [one[["K"]] for one in isoflop.fresh_best_loops(table, noise, 40, 0)])
        for noise in (0.002, 0.004)
    )
    assert ((shown["K low"] < shown["K"]) & (shown["K"] < shown["K high"])).all()
    width, wider = (one["K high"] - one["K low"] for one in (shown, wide))
    assert (wider / width).median() == pytest.approx(2, abs=0.2)
    fresh_text = shown.xs("one epoch, tied", level="set")
    assert (fresh_text["K high"] < 2).all() and shown["K low"]["one recipe, 10 epochs"].iloc[-1] > 6


# ---- 000's fit -------------------------------------------------------------------------------------------------------


def test_the_printed_fit_of_000_is_at_the_optimum_to_its_digits():
    grid = published.sets(published.runs())["all"]
    found = isoflop.authors_fit(grid, 20, 0)["000, joint"]
    assert found["points"] == len(grid) and 0 <= found["lower"] < 1e-4
    draws = bootstrap(fit_joint, joint_arrays(grid), grid[["budget", "r"]], 20, 0)["phi"]
    assert found[["phi, ours low", "phi, ours high"]].tolist() == [*np.quantile(draws, [0.025, 0.975])]
    assert all(
        found[f"{name}, ours low"] < found[f"{name}, printed"] < found[f"{name}, ours high"] for name in PUBLISHED
    )
