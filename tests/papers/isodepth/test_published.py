"""000's own runs are its models at its budgets, and every number that it prints of them comes back at its precision."""

import numpy as np
import pandas as pd
import pytest

from lib.base.statistics import percentile_interval
from lib.fit.fits import bootstrap, fit_joint
from lib.flops import count
from lib.papers.isodepth import designs, published, readings
from lib.presets import preset
from tests.cells import function
from tests.lines import one_line


@pytest.fixture(scope="module")
def runs():
    return published.runs()


@pytest.fixture(scope="module")
def grid(runs):
    return published.sets(runs)["all"]


@pytest.fixture(scope="module")
def law(grid):
    return fit_joint(*readings.joint_arrays(grid))


@pytest.fixture(scope="module")
def numbers(runs):
    """(runs, number) -> value; the intervals, of two resamples here, are tested below."""
    return published.measured(runs, 2, 0)["value"]


# ---- the runs --------------------------------------------------------------------------------------------------------


def test_the_runs_are_the_models_at_the_budgets():
    """Both splits: ours to the parameter, the authors' as near as one n_once for all models of a width can be."""
    for row in pd.read_csv(published.DATA / "runs.csv").to_dict("records"):
        changes = designs.intervention(row["set"].replace("_", "-"), row["r"])
        counts = count(preset(f"isodepth-s{row['width'] // 64}-r{row['r']}", **changes))
        assert (counts.n_once, counts.n_rec) == (row["n_once"], row["n_rec"])
        assert row["N"] == counts.n_once + counts.n_rec
        assert counts.published["000"] == row["flops_per_token"]
        assert row["D_tokens"] * row["flops_per_token"] == pytest.approx(row["budget_flops"], rel=1e-8)
        once, looped = counts.n_once + counts.n_injection, counts.n_rec - counts.n_injection
        has_injection = counts.n_injection > 100
        assert row["n_once_authors"] / once == pytest.approx(1.0122 if has_injection else 1.0544, abs=2e-4)
        assert row["n_rec_authors"] / looped == pytest.approx(0.9877, abs=2e-4)


def test_an_accounting_moves_the_injection_and_nothing_else():
    tables = {name: published.runs(name) for name in published.ACCOUNTINGS}
    looped = tables["loop"].query("r > 1 and probe == 'baseline'")
    moved = tables["once"].loc[looped.index, "n_once"] - looped["n_once"]
    assert (moved == 2 * looped["width"] ** 2).all() and (tables["once"]["N"] == tables["loop"]["N"]).all()
    assert (tables["once"]["n_once"] + tables["once"]["n_rec"] == tables["loop"]["N"]).all()
    with one_line("accounting: 'both' is not known, use one of authors, once, loop"):
        published.runs("both")


def test_families_are_those_of_the_presets():
    own, presets = published.families(published.runs("once").query("probe == 'baseline'")), designs.published_families()
    for r, family in own.items():
        expected = presets[r].set_index("width").loc[family["width"]]
        for column in ("n_once", "n_rec", "flops"):
            assert family[column].tolist() == expected[column].tolist()


# ---- what the paper prints -------------------------------------------------------------------------------------------


def test_what_is_printed_is_met_to_two_units_of_its_last_digit(numbers, grid):
    minima = published.minima(readings.optima(grid))
    assert len(minima) == 24 and minima["loss off"].abs().max() < 1.4e-4 and minima["N off"].abs().max() < 3e-3
    printed = published.beside({"authors": numbers.to_frame("value")})
    assert {*printed.index} <= {*numbers.index}
    for key, row in printed.dropna(subset="paper").iterrows():
        digits = len(f"{row['paper']:g}".partition(".")[2])
        assert row["authors"] == pytest.approx(row["paper"], abs=2 * 10.0**-digits), key
    looped = printed.loc[[f"r = {r}" for r in (2, 4, 8)]].xs("a_D", level="number")["authors"].round(2)
    assert looped.min() == 0.61 and looped.max() == 0.67
    own = numbers.unstack().loc[[f"r = {r}" for r in (1, 2, 4, 8)]]
    assert (own["R2"] > 0.997).all() and (own["largest residual"] > 2 * 0.007).all()  # the paper says below


def test_the_interval_of_phi_is_the_printed_one(grid):
    """[.41, .53] in print; 200 resamples of 24 cells say [.414, .507], and [.390, .481] with the injection in the
    loop."""
    loop = published.sets(published.runs("loop"))["all"]
    for runs, expected in ((grid, (0.414, 0.507)), (loop, (0.390, 0.481))):
        phi = bootstrap(fit_joint, readings.joint_arrays(runs), runs[["budget", "r"]], 200, 0)["phi"]
        assert percentile_interval(phi) == pytest.approx(expected, abs=6e-4)


def test_the_pair_past_the_grid(runs, law):
    pair = published.pair(runs)
    assert (pair["loss"].diff().iloc[1], pair["D"].tolist()) == (pytest.approx(0.061), [47e9, 47e9])
    assert pair["budget"].iloc[0] == pytest.approx(20 * 2.15e19, rel=0.1)
    says = law.predict(*readings.joint_arrays(pair)[:-1])
    assert says.round(3).tolist() == [2.114, 2.164]
    assert (says - pair["loss"]).round(3).tolist() == [0.067, 0.056]


# ---- noise and misfit ------------------------------------------------------------------------------------------------


def test_the_law_misses_by_four_times_the_scatter_of_a_run(grid, law):
    scatter = published.scatter(grid)
    assert round(scatter, 4) == 0.0024 and round(published.rms(readings.misfit(grid, law)) / scatter) == 4
    assert function("published_runs", "smooth_share")(grid, law) == pytest.approx(0.98, abs=5e-3)


def test_noise_about_a_true_law_is_found_again(grid, law):
    """Runs that lie on the law but for noise: their scatter is that noise, and their misfit is rough."""
    right, random = grid.assign(loss=law.predict(*readings.joint_arrays(grid)[:-1])), np.random.default_rng(1)
    assert published.scatter(right) < 3e-4  # what a parabola leaves out of the law
    draws = [right.assign(loss=right["loss"] + random.normal(0, 0.01, len(right))) for _ in range(10)]
    assert np.mean([published.scatter(runs) for runs in draws]) == pytest.approx(0.01, rel=0.1)
    smooth_share = function("published_runs", "smooth_share")
    shares = [smooth_share(runs, fit_joint(*readings.joint_arrays(runs))) for runs in draws]
    assert max(shares) < 0.75  # a parabola takes three of the freedoms of four to six runs


def test_what_varies_decides_the_interval_of_phi(grid):
    found = function("published_runs", "intervals_of_phi")(grid, 100, 0)
    assert [*found.index] == ["noise alone", "runs", "cells", "budgets"] and set(found["phi"].round(3)) == {0.459}
    widths = found["high"] - found["low"]
    assert widths["noise alone"] < 0.03 < 0.05 < widths["runs"] < widths["cells"]
