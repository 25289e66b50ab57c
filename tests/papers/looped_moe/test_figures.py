"""The figures of Looped-MoE and early exit put every star, bar and line at the numbers of their tables."""

import pandas as pd
import pytest

from lib.fit import isoflop
from lib.papers.looped_moe import designs as sparse
from lib.papers.looped_moe import figures
from tests.fit.test_isoflop import curves

pytestmark = pytest.mark.usefixtures("style")


@pytest.fixture
def runs():
    wide = curves().query("architecture == 'wide'")
    return pd.concat(
        [
            wide.assign(architecture=name, loss=wide["loss"] + 0.1 * i, stored=wide["N"] * (1 + i))
            for i, name in enumerate(sparse.LOOK)
        ]
    )


def test_a_panel_an_architecture_with_its_stars_and_its_slope(runs):
    optima = isoflop.optima(runs, ["architecture", "budget"])
    figure = figures.isoflop_curves(runs, optima)
    assert [axis.get_title().split("\n")[0] for axis in figure.axes] == ["Base", "Looped", "MoE", "Looped-MoE"]
    assert figure.axes[0].get_title().endswith("$L \\sim N^{-0.10}$")
    stars = [line for line in figure.axes[1].lines if line.get_marker() == "*"]
    assert [line.get_xdata()[0] for line in stars] == pytest.approx([C**0.5 / 10 for C in (1e9, 4e9, 16e9)])
    assert {line.get_marker() for axis in figure.axes for line in axis.lines if line.get_ls() == "None"} == {"o", "*"}
    drawn = [text.get_text() for text in figure.legends[0].get_texts()]
    assert drawn[-2:] == ["through the stars", "slope -0.076"]
    two = optima[optima["budget"] < 16e9]  # no line, and none in the legend
    assert len(figures.isoflop_curves(runs, two).legends[0].get_texts()) == 3
