"""The figures of residual scaling print the exponents of their tables, and draw no rounding as if it were growth."""

import itertools

import pandas as pd
import pytest

from lib.papers.residual import figures
from lib.papers.shared.transfer import slopes

pytestmark = pytest.mark.usefixtures("style")


def test_the_legend_has_the_exponents():
    powers = {"none": 2.0, "1/sqrt(N)": 1.0, "1/N": 0.0}
    start = pd.DataFrame(itertools.product(["looped"], powers, (1, 2, 4, 8), (1, 2)))
    start = start.set_axis(["model", "rule", "N", "seed"], axis=1)
    start["square"] = start["seed"] * start["N"] ** start["rule"].map(powers)
    found = slopes(start.query("N >= 2"), ["model", "rule", "seed"], "square", "N")
    (axis,) = figures.growth(start, "square", "square", {"looped": "looped"}, found, 2).axes
    assert axis.get_legend().get_title().get_text() == r"slope over $N \geq 2$"
    words = [text.get_text() for text in axis.get_legend().get_texts()]
    assert words == [r"$\alpha = 1$: $N^{2.00}$", r"$\alpha = 1/\sqrt{N}$: $N^{1.00}$", r"$\alpha = 1/N$: $N^{0.00}$"]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["1", "2", "4", "8"]
    flat = start.assign(square=1 + 1e-7 * start["N"])
    (axis,) = figures.growth(flat, "square", "square", {"looped": "looped"}, found, 2).axes
    assert axis.get_ylim() == pytest.approx((0.1, 10), rel=1e-3)
