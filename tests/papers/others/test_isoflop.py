"""Optima, laws and objectives of other groups' runs: a law's own where it made the runs, and what is printed."""

import numpy as np
import pytest

from lib.fit import laws
from lib.fit.fits import bootstrap, fit_joint
from lib.papers.isodepth import published
from lib.papers.isodepth.designs import PUBLISHED
from lib.papers.isodepth.readings import joint_arrays
from lib.papers.others import isoflop, runs


@pytest.fixture(scope="module")
def theirs():
    return runs.isoflop()


def test_the_optimum_of_a_budget_is_that_of_the_losses(theirs):
    """A parabola in log N around 6 tokens a parameter."""
    best = np.sqrt(theirs["budget"] / 36)  # C = 6 N D, D = 6 N
    made = theirs.assign(F=6 * theirs["N"], loss=3 + 0.1 * np.log(theirs["N"] / best) ** 2)
    found = isoflop.optima(made)
    assert len(found) == 25 and found["ratio"].tolist() == pytest.approx([6.0] * 25, rel=0.02)
    assert isoflop.ratios(found) == pytest.approx(dict.fromkeys(found["arm"].unique(), 6.0), rel=0.02)


def test_tokens_a_parameter_are_what_is_printed_to_a_half(theirs):
    found = isoflop.optima(theirs)
    assert found["inside"].all()
    for arm, printed in isoflop.PRINTED_RATIO.items():
        assert isoflop.ratios(found)[arm] == pytest.approx(printed, abs=0.5)
    fresh = isoflop.fresh_optima(theirs, 60, 0)
    draws = [isoflop.ratios(one)["vanilla"] for one in fresh]
    assert np.mean(draws) == pytest.approx(isoflop.ratios(found)["vanilla"], abs=0.1) and 0.05 < np.std(draws) < 0.3
    table = isoflop.ratios_beside_printed(found, fresh)
    assert table["printed"].to_dict() == isoflop.PRINTED_RATIO and table["ours"].to_dict() == isoflop.ratios(found)
    assert table["ours"].round(1).tolist() == [5.3, 5.8, 6.4, 6.0, 5.6]
    assert table.loc["vanilla", ["ours low", "ours high"]].tolist() == [*np.quantile(draws, [0.025, 0.975])]


def test_own_weights_are_ahead_of_tied_ones_and_less_so_at_the_top(theirs):
    gaps = isoflop.gaps(isoflop.optima(theirs), "untied_2")
    assert gaps["loop_2"].round(3).tolist() == [0.013, 0.014, 0.012, 0.004, 0.003]
    assert (gaps > 0).all().all() and "untied_2" not in gaps
    optima = isoflop.optima(theirs)
    table = isoflop.gaps_with_intervals(optima, isoflop.fresh_optima(theirs, 60, 0), "untied_2")
    tied = table.loc["loop_2"]
    assert tied["gap"].tolist() == gaps["loop_2"].tolist() and table.loc["untied_2", "gap"].isna().all()
    assert (tied["gap low"][:3] > 0.005).all() and tied["gap high"].iloc[-1] < tied["gap low"].iloc[0]
    assert tied["gap low"].iloc[-1] < 0.002  # hardly off 0
    assert table["ratio"].tolist() == optima["ratio"].tolist()
    assert ((table["ratio low"] < table["ratio"]) & (table["ratio"] < table["ratio high"])).all()


def test_an_arms_own_law_is_found_again(theirs):
    truth = dict(A=1e4, B=2e4, E=2.5, alpha=0.55, beta=0.5)
    made = theirs.assign(loss=laws.CHINCHILLA.loss(truth, theirs["N"], theirs["D"]))
    found = isoflop.own_laws(made, 2, 0)
    assert len(found) == 5 and found["a_D"].tolist() == pytest.approx([0.5 / 1.05] * 5, rel=1e-4)
    assert (found["low"] <= found["high"]).all()


def test_the_printed_fit_of_000_is_at_the_optimum_to_its_digits():
    grid = published.sets(published.runs())["all"]
    found = isoflop.authors_fit(grid, 20, 0)["000, joint"]
    assert found["points"] == len(grid) and 0 <= found["lower"] < 1e-4
    draws = bootstrap(fit_joint, joint_arrays(grid), grid[["budget", "r"]], 20, 0)["phi"]
    assert found[["phi, ours low", "phi, ours high"]].tolist() == [*np.quantile(draws, [0.025, 0.975])]
    assert all(
        found[f"{name}, ours low"] < found[f"{name}, printed"] < found[f"{name}, ours high"] for name in PUBLISHED
    )
