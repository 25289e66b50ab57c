"""Slopes of gaps, their errors and the ratio of two laws' errors are those of closed forms."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from lib.papers.others import law_form

SLOPES = {(32, 2, 1): 0.01, (32, 2, 2): 0.03, (32, 4, 1): 0.02, (32, 4, 2): 0.06, (64, 2, 1): -0.01, (64, 2, 2): -0.05}


def test_the_slopes_of_made_gaps_and_their_error_come_back():
    """The gap of r loops is a line in ln D on top of a loss of one loop that is anything."""
    rows = [
        {
            "width": width,
            "D": D,
            "seed": seed,
            "r": r,
            "loss": 3 / D + 0.2 - 0.5 * (r > 1) + slope * np.log(D) * (r > 1),
        }
        for (width, of, seed), slope in SLOPES.items()
        for D in (10.0, 20.0, 40.0)
        for r in (1, of)
    ]
    losses = pd.DataFrame(rows).pivot_table(index=["width", "D", "seed"], columns="r", values="loss")
    gaps = law_form.gaps(losses)
    assert len(gaps) == 18 and {*gaps["r"]} == {2, 4}
    slopes = law_form.slopes(gaps, ["width", "r", "seed"])
    assert slopes.to_dict() == pytest.approx(SLOPES)
    table = law_form.by_width(slopes)
    pooled = np.mean([np.var(two, ddof=1) for two in ([0.01, 0.03], [0.02, 0.06], [-0.01, -0.05])])
    assert table["slope"].tolist() == pytest.approx([0.03, -0.03]) and (table["freedom"] == 3).all()
    assert table["error"].tolist() == pytest.approx([np.sqrt(pooled / 4), np.sqrt(pooled / 2)])


def test_the_ratio_of_errors_counts_budgets_of_three_runs():
    """Errors of e and 1, e^3 and 1, on three runs each; a budget of two runs and other laws and ways change nothing."""
    off = {0: np.e, 1: np.e**3}
    rows = [
        {"law": law, "by": "budget", "group": group, "run": 3 * group + i, "off": sign * size}
        for group, ratio in off.items()
        for law, size in (("additive", ratio), ("coupled", 1.0), ("Kaplan", 9.0))
        for i, sign in enumerate((1, -1, 1))
    ]
    rows += [
        {"law": law, "by": "budget", "group": 2, "run": i, "off": 5.0}
        for law in ("additive", "coupled")
        for i in (6, 7)
    ]
    rows += [{**row, "by": "cell", "off": 4.0} for row in rows]
    mean, error, n = law_form.better(pd.DataFrame(rows))
    assert (mean, error, n) == pytest.approx((2.0, 1.0, 2))


def test_draws_are_students():
    draws = law_form.student((2.0, 0.5, 4), 20_000, np.random.default_rng(0))
    assert scipy.stats.kstest((np.array(draws) - 2) / 0.5, scipy.stats.t(4).cdf).pvalue > 0.01
