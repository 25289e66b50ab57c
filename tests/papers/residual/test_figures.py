"""The figures of residual scaling have a line a number of loops, and the exponents and slopes of their tables."""

import itertools

import pandas as pd
import pytest

from lib.papers.residual import figures
from lib.papers.residual.at_init import RULES, exponents

pytestmark = pytest.mark.usefixtures("style")

LOOPS = (1, 2, 4, 8)


@pytest.fixture
def states():
    """Squared norms that grow like N^2, N and 1 for two models and two seeds, over three steps."""
    cases = itertools.product(("looped", "stack"), RULES, LOOPS, (1, 2), (0, 1, 2))
    found = pd.DataFrame(cases, columns=["model", "rule", "N", "seed", "step"])
    power = found["N"] ** found["rule"].map({"none": 1.0, "1/sqrt(N)": 0.5, "1/N": 0.0})
    found["square"] = found["seed"] * power**2
    found["norm"] = found["square"] ** 0.5
    found["change"] = (0.1 * power / found["step"]).where(found["step"] > 0)
    return found


LOOK = {"looped": "looped", "stack": "transformer"}


def test_the_legend_has_the_exponents(states):
    start = states.query("step == 0")
    slopes = exponents(start, ["model", "rule", "seed"], "square", "N", 2)
    axes = figures.growth(start, "square", "square", LOOK, slopes, 2).axes
    assert axes[1].get_legend().get_title().get_text() == r"slope over $N \geq 2$"
    words = [text.get_text() for text in axes[1].get_legend().get_texts()]
    assert words == [r"$\alpha = 1$: $N^{2.00}$", r"$\alpha = 1/\sqrt{N}$: $N^{1.00}$", r"$\alpha = 1/N$: $N^{0.00}$"]
    assert [label.get_text() for label in axes[0].get_xticklabels()] == ["1", "2", "4", "8"]
    # rounding is not drawn as if it were growth
    flat = start.assign(square=1 + 1e-7 * start["N"])
    for axis in figures.growth(flat, "square", "square", LOOK, slopes, 2).axes:
        assert axis.get_ylim() == pytest.approx((0.1, 10), rel=1e-3)
