"""The slope of the gap in ln D is zero under a law that adds, and that of the truth where N and D interact."""

import itertools

import numpy as np
import pandas as pd
import pytest

from lib.papers.isodepth import ladders

N_EFF = {1: 4.0, 2: 3.0, 8: 2.0}
RUNGS = [2.0, 4.0, 8.0, 16.0, 32.0]


def runs(loss, seeds=(1, 2), noise=0.0) -> pd.DataFrame:
    random = np.random.default_rng(0)
    cells = itertools.product((32, 64), RUNGS, (0.1,), N_EFF, seeds)
    return pd.DataFrame(
        [(*cell, loss(*cell) + noise * random.normal()) for cell in cells], columns=[*ladders.CELL, "loss"]
    )


def test_a_law_that_adds_has_one_gap_at_a_width():
    found = runs(lambda width, x, lr, r, seed: 1 + N_EFF[r] ** -0.5 / width + 3 * x**-0.3 + seed)
    assert ladders.slopes(ladders.gaps(found))["slope"].to_numpy() == pytest.approx(0, abs=1e-12)


def test_where_they_interact_the_slope_is_the_truths():
    found = runs(lambda width, x, lr, r, seed: 1 + 0.01 * (4 - N_EFF[r]) * np.log(x) * width / 32 + x**-0.3)
    slopes = ladders.slopes(ladders.gaps(found)).set_index(["width", "r", "seed"])["slope"]
    assert slopes.to_dict() == pytest.approx(
        {(width, r, seed): 0.01 * (4 - N_EFF[r]) * width / 32 for width in (32, 64) for r in (2, 8) for seed in (1, 2)}
    )
    assert ladders.by_width(slopes.reset_index())["mean"].to_dict() == pytest.approx({32: 0.015, 64: 0.03})


def test_a_width_with_too_few_rungs_has_no_slope():
    found = ladders.gaps(runs(lambda width, x, lr, r, seed: 1.0))
    cut = found[~((found["width"] == 32) & (found["r"] == 8) & (found["seed"] == 1) & (found["rung"] == 2.0))]
    assert {*ladders.slopes(found)["width"]} == {32, 64} and {*ladders.slopes(cut)["width"]} == {64}
    assert {*ladders.slopes(cut, 4)["width"]} == {32, 64}
    assert ladders.slopes(found[found["rung"] < 16]).empty


def test_the_interval_covers_what_it_should():
    """2,000 ladders without a slope, two seeds each."""
    random, inside = np.random.default_rng(1), []
    rows = [*itertools.product((32, 64), (2, 4, 8), (1, 2))]
    for _ in range(2000):
        slopes = pd.DataFrame(rows, columns=["width", "r", "seed"]).assign(slope=random.normal(size=len(rows)))
        found = ladders.by_width(slopes)
        inside += [*(found["low"] < 0) & (found["high"] > 0)]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.015)
