"""The slope of the gap in ln D is zero under a law that adds, and that of the truth where N and D interact."""

import itertools

import numpy as np
import pandas as pd
import pytest

from tests.cells import function

N_EFF = {1: 4.0, 2: 3.0, 8: 2.0}
RUNGS = [2.0, 4.0, 8.0, 16.0, 32.0]
SERIES = ["width", "r", "seed"]

gaps, slopes, by_width = (function("extrapolation", name) for name in ("gaps", "slopes", "by_width"))


def runs(loss) -> pd.DataFrame:
    cells = itertools.product((32, 64), RUNGS, (0.1,), N_EFF, (1, 2))
    return pd.DataFrame([(*cell, loss(*cell)) for cell in cells], columns=["width", "rung", "lr", "r", "seed", "loss"])


def test_a_law_that_adds_has_one_gap_at_a_width_and_where_they_interact_the_slope_is_the_truths():
    found = runs(lambda width, x, lr, r, seed: 1 + N_EFF[r] ** -0.5 / width + 3 * x**-0.3 + seed)
    assert slopes(gaps(found))["slope"].to_numpy() == pytest.approx(0, abs=1e-12)
    found = runs(lambda width, x, lr, r, seed: 1 + 0.01 * (4 - N_EFF[r]) * np.log(x) * width / 32 + x**-0.3)
    lines = slopes(gaps(found)).set_index(SERIES)["slope"]
    assert lines.to_dict() == pytest.approx(
        {(width, r, seed): 0.01 * (4 - N_EFF[r]) * width / 32 for width in (32, 64) for r in (2, 8) for seed in (1, 2)}
    )
    assert by_width(lines.reset_index())["mean"].to_dict() == pytest.approx({32: 0.015, 64: 0.03})


def test_a_width_with_too_few_rungs_has_no_slope():
    found = gaps(runs(lambda width, x, lr, r, seed: 1.0))
    cut = found[~((found["width"] == 32) & (found["r"] == 8) & (found["seed"] == 1) & (found["rung"] == 2.0))]
    assert {*slopes(found)["width"]} == {32, 64} and {*slopes(cut)["width"]} == {64}
    assert {*slopes(cut, 4)["width"]} == {32, 64}
    assert slopes(found[found["rung"] < 16]).empty


def test_the_best_rate_is_each_models_own_where_several_were_tried():
    """The looped model is best at another rate than the plain one; a rung with one rate, and other seeds, are left
    out."""
    losses = {(1, 0.1): 2.0, (1, 0.2): 2.1, (8, 0.1): 2.6, (8, 0.2): 2.4}
    rows = [
        (32, rung, lr, r, 1, loss) for rung in (2.0, 4.0) for (r, lr), loss in losses.items() if rung < 4 or lr < 0.2
    ]
    tried = pd.DataFrame(rows, columns=["width", "rung", "lr", "r", "seed", "loss"])
    best = function("extrapolation", "at_their_best")(pd.concat([tried, tried.assign(seed=2, loss=1.0)]))
    (gap,) = gaps(best).to_dict("records")
    assert gap["gap"] == pytest.approx(0.4) and (gap["rung"], gap["r"], gap["seed"]) == (2.0, 8, 1)


def test_the_interval_covers_what_it_should():
    """2,000 ladders without a slope, two seeds each."""
    random, inside = np.random.default_rng(1), []
    rows = [*itertools.product((32, 64), (2, 4, 8), (1, 2))]
    for _ in range(2000):
        found = by_width(pd.DataFrame(rows, columns=SERIES).assign(slope=random.normal(size=len(rows))))
        inside += [*(found["low"] < 0) & (found["high"] > 0)]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.015)
