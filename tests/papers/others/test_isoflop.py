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
from tests.lines import one_line


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


# ---- authors' fits ---------------------------------------------------------------------------------------------------


def figure(n=245, seed=0):
    random = np.random.default_rng(seed)
    N, D = np.exp(random.uniform(np.log(5e7), np.log(1e10), n)), np.exp(random.uniform(np.log(1e9), np.log(1e11), n))
    loss = laws.CHINCHILLA.loss(isoflop.BESIROGLU, N, D) * np.exp(random.normal(0, 2e-3, n))
    loss[:5] += 3.0  # far off, as the five that are left out
    return pd.DataFrame({"N": N, "D": D, "loss": loss})


def test_the_printed_chinchilla_has_the_papers_own_70b():
    """Besiroglu et al.: 70B parameters on 1.4T tokens, of which it says 20 tokens a parameter are near the optimum."""
    assert laws.CHINCHILLA.loss(isoflop.BESIROGLU, 70e9, 1.4e12) == pytest.approx(1.97, abs=0.01)


def test_no_printed_fit_has_a_lower_objective_than_ours():
    grid = published.sets(published.runs())["all"]
    alone = isoflop.authors_fits(grid, {}, 20, 0)
    assert [*alone.index] == ["000, joint"]
    assert 0 <= alone.loc["000, joint", "lower"] < 1e-4  # theirs is at its optimum, to the digits that are printed
    row = alone.loc["000, joint"]
    draws = bootstrap(fit_joint, joint_arrays(grid), grid[["budget", "r"]], 20, 0)["phi"]
    assert row[["phi, ours low", "phi, ours high"]].tolist() == [*np.quantile(draws, [0.025, 0.975])]
    assert all(row[f"{name}, ours low"] < row[f"{name}, printed"] < row[f"{name}, ours high"] for name in PUBLISHED)
    both = isoflop.authors_fits(grid, {"chinchilla_figure": figure()}, 20, 0)
    row = both.loc["Besiroglu et al., Chinchilla"]
    assert row["points"] == 240 and 0 < row["lower"] < 0.2 and row["ours"] < row["printed"]
    assert row["alpha, ours"] == pytest.approx(row["alpha, printed"], rel=0.05)
    assert row["alpha, ours low"] < row["alpha, ours"] < row["alpha, ours high"]


# ---- open sets -------------------------------------------------------------------------------------------------------


def test_by_a_law_and_by_parabolas_the_exponent_is_the_laws():
    """Of a law with alpha = beta they agree at .5; what is flagged, and what is no nats, is left out."""
    truth = dict(A=400.0, B=400.0 * 3, E=1.7, alpha=0.34, beta=0.34)
    budgets = np.repeat(np.geomspace(1e18, 1e21, 5), 9)
    best = np.sqrt(budgets / 6 / 20)
    N = best * np.tile(np.geomspace(0.3, 3, 9), 5)
    table = pd.DataFrame({"budget_flops": budgets, "N": N, "D": budgets / 6 / N, "experiment": "a", "outlier": False})
    table["loss"] = laws.CHINCHILLA.loss(truth, table["N"], table["D"])
    bad = table.iloc[:3].assign(outlier=True, loss=9.0)
    raw = table.assign(experiment="llama_3__raw_loss")
    found = isoflop.open_sets(pd.concat([table, bad, raw], ignore_index=True), 5, 0)
    assert [*found.index] == ["a"] and found.loc["a", "runs"] == 45
    assert found.loc["a", "by the law"] == pytest.approx(0.5, abs=1e-4)
    assert found.loc["a", ["by the law low", "by the law high"]].tolist() == pytest.approx([0.5, 0.5], abs=1e-3)
    assert found.loc["a", "by parabolas"] == pytest.approx(0.5, abs=5e-3)
    noise = np.random.default_rng(0).normal(0, 3e-3, len(table))
    noisy = isoflop.open_sets(table.assign(loss=table["loss"] * np.exp(noise)), 20, 0).loc["a"]
    assert noisy["by the law low"] < 0.5 < noisy["by the law high"] < noisy["by the law low"] + 0.3


def test_too_few_points_for_a_law_are_one_line(tmp_path):
    table = pd.DataFrame(
        {"experiment": ["a"], "budget_flops": [1e20], "N": [1e9], "D": [1e10], "loss": [2.0], "outlier": [False]}
    )
    with one_line("points cannot fit", "give at least"):
        isoflop.open_sets(table, 2, 0)
