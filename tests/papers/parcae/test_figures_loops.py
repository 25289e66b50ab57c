"""The figures of looping's scaling laws star every optimum where it lies and label each kind of curve."""

import numpy as np
import pandas as pd
import pytest

from lib.fit.fits import fit_parcae
from lib.papers.parcae import figures_loops, test_time_loops, training_loops
from tests.papers.parcae.test_test_time_loops import curve
from tests.papers.parcae.test_training_loops import SMALL, parabolas

pytestmark = pytest.mark.usefixtures("style")


def labelled(axis) -> list[str]:
    return [line.get_label() for line in axis.lines if not line.get_label().startswith("_")]


@pytest.fixture
def runs():
    rows = parabolas(loops=(1, 2, 4, 8))
    sizes = training_loops.grid(SMALL)
    n_eff = {label[3]: training_loops.size(cfg)["n_eff"] for label, cfg in sizes.items()}
    F = {label[3]: training_loops.size(cfg)["F"] for label, cfg in sizes.items()}
    rows = rows.assign(n_eff=rows["mean_loops"].map(n_eff), F=rows["mean_loops"].map(F), budget=rows["budget"] * 2e11)
    D = rows["budget"] / rows["F"]
    return rows.assign(D=D, loss=1.2 + 300 * rows["n_eff"] ** -0.5 + 900 * D**-0.5)


def test_isoflop_figures(runs):
    optima = training_loops.optima(parabolas(loops=(1, 2, 4, 8)))
    figure = figures_loops.isoflop(parabolas(loops=(1, 2, 4, 8)), optima)
    assert labelled(figure.axes[0])[0] == "1e0 FLOPs" and len(labelled(figure.axes[0])) == 4
    stars = [line for line in figure.axes[0].lines if line.get_marker() == "*" and len(line.get_xdata())]
    assert stars[0].get_xdata() == pytest.approx([4.0])
    looped = runs[runs["mean_loops"] > 1]
    law = fit_parcae(looped["n_eff"], looped["D"], looped["loss"])
    wanted = training_loops.best_by_law(SMALL.replace(budgets=sorted(runs["budget"].unique())), 64, law)
    axes = figures_loops.powers(optima, wanted.assign(inside=True), 64).axes
    assert labelled(axes[0])[1:] == ["parabolas: exponent 0.40", "parametric law"]  # after what an open one is
    axis = figures_loops.contours(law, runs, wanted.assign(inside=True)).axes[0]
    assert labelled(axis) == ["runs", "loss by the law (nats per token)", "efficient frontier"]
    assert len(axis.lines[0].get_xdata()) == len(looped)
    axis = figures_loops.against_fixed_depth(parabolas(), training_loops.optima(parabolas())).axes[0]
    assert len(labelled(axis)) == 2


def test_ends_of_the_loops_trained_are_open_and_named():
    optima = training_loops.optima(parabolas(loops=(1, 8, 12, 16), budgets=(1.0, 2.0)))
    assert not optima["inside"].any()  # the best is 4 to 5.3
    outside = pd.DataFrame({"budget": [1.0], "mean_loops": [4.0], "D": [1.0], "inside": [False]})
    for figure in (
        figures_loops.powers(optima, outside, 64),
        figures_loops.against_fixed_depth(parabolas(budgets=(1.0, 2.0)), optima),
    ):
        axis = figure.axes[0]
        open_ones = [line for line in axis.lines if line.get_markerfacecolor() == "white" and len(line.get_xdata())]
        assert [len(line.get_xdata()) for line in open_ones] == [2]
        assert labelled(axis)[-1].startswith("open: end of the loops trained") and axis.get_title() == "d = 64"


def test_saturation_figures():
    curves = pd.concat([curve(f"m{mu}", mu, 6 / mu, range(1, 17)) for mu in (4, 8)])
    (axis,) = figures_loops.saturation({"d = 64": curves}, test_time_loops.foreseen(curves, 16), seen=16).axes
    stars = [line for line in axis.lines if line.get_marker() == "*"]
    assert [float(star.get_xdata()[0]) for star in stars] == [4, 8]
    assert axis.get_ylim()[1] < curves["loss"].max() and axis.get_title() == "d = 64" and not axis.patches
    bent = curves.assign(loss=curves["loss"] * curves["T"].map({13: 1.02, 14: 1.02, 15: 1.04, 16: 1.04}).fillna(1))
    (axis,) = figures_loops.saturation({"d = 64": bent}, test_time_loops.foreseen(bent, 12), seen=12).axes
    assert axis.get_title() == "d = 64, 2.9 % off beyond T = 12"
    (grey,) = axis.patches
    assert (grey.get_x(), grey.get_x() + grey.get_width()) == (12.5, 16.5)
    axes = figures_loops.forms(test_time_loops.compare(curve("m4", 4, 1.5, range(1, 17)))).axes
    assert [tick.get_text() for tick in axes[0].get_yticklabels()] == list(test_time_loops.FORMS)
    assert axes[0].get_xscale() == "log"


def test_a_form_that_goes_through_every_point_is_an_arrow():
    table = pd.DataFrame({"form": "power", "in": [1e-16, 1e-6, 3e-6], "beyond": np.nan})
    left, _ = figures_loops.forms(table).axes
    arrows = [line for line in left.lines if line.get_marker() == "$<$" and len(line.get_xdata())]
    assert [list(line.get_xdata()) for line in arrows] == [[figures_loops.EXACT]]
    assert left.lines[-1].get_xdata() == pytest.approx([4e-6 / 3])  # the mean of all
