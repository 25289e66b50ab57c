"""The iso-depth figures draw 000's grid in one colour a recurrence, and its law's own losses leave no residual."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from lib.figures import style
from lib.fit.fits import fit_joint
from lib.papers.isodepth import designs, figures, published, readings
from lib.papers.isodepth.axes import by_axis, optimal
from tests.papers.isodepth.test_axes import BUDGETS, RECURRENCES, grid

pytestmark = pytest.mark.usefixtures("style")


def test_the_iso_depth_figures_draw_the_papers_grid():
    runs = designs.published_grid()
    optima = readings.optima(runs)
    curves = figures.isoflop_curves(runs, optima)
    assert [axis.get_title() for axis in curves.axes] == [
        f"{style.rate(b)} FLOPs" for b in sorted(runs["budget"].unique())
    ]
    five = figures.isoflop_curves(runs.query("budget < 2e19"), optima)
    named = [axis.get_xlabel() for axis in five.axes]  # two rows; below the third panel there is none
    assert named == ["", "", *["unique parameters N"] * 3]
    stars = sum(line.get_marker() == "*" and len(line.get_xdata()) for axis in curves.axes for line in axis.lines)
    assert stars == optima["inside"].sum() > 15
    fit = fit_joint(*readings.joint_arrays(runs))
    (panel,) = figures.predicted_against_measured({"the law": (fit, runs)}).axes
    assert "$R^2$ = 1.000" in panel.get_title()
    families = designs.published_families()
    one = fit_joint(*readings.joint_arrays(runs), phi=1.0)
    lines = readings.frontiers(fit, one, families, runs["budget"].unique())
    left, right = figures.worth_of_a_recurrence(readings.worth(families, 0.459), lines, optima.query("inside")).axes
    assert len(left.lines) == 3 and right.get_legend().get_texts()[-1].get_text() == "minima of the parabolas"
    assert "1e18" in [tick.get_text() for tick in right.get_xticklabels()]


def test_the_probes_are_drawn_over_their_baseline():
    baseline = designs.published_grid().query("budget < 2e18")
    probed = baseline[baseline["r"] > 1].assign(loss=lambda f: f["loss"] - 0.05)
    runs = pd.concat([baseline.assign(probe="baseline"), probed.assign(probe="truncated")])
    optima = pd.concat([readings.optima(own).assign(probe=probe) for probe, own in runs.groupby("probe", sort=False)])
    figure = figures.probed_curves(runs, optima)
    assert [axis.get_title() for axis in figure.axes] == ["truncated\n4.64e17 FLOPs", "truncated\n1e18 FLOPs"]
    for axis in figure.axes:
        curves = [line for line in axis.lines if len(line.get_xdata()) > 1]
        assert [line.get_linestyle() for line in curves].count(":") == 3  # the parabolas of the looped baselines
        assert [line.get_linestyle() for line in curves].count("-") == 4  # of the plain model and under the probe
    assert [text.get_text() for text in figure.legends[0].get_texts()][-1] == "baseline at the same r"
    lost = pd.DataFrame({"budget": [1e18], "r": [4], "N": [2e7], "probe": ["truncated"]})
    figure = figures.probed_curves(runs, optima, lost)
    crosses = [[*line.get_xdata()] for axis in figure.axes for line in axis.lines if line.get_marker() == "x"]
    assert [x for x in crosses if x] == [[2e7]] and [2e7] in crosses[4:]  # in the panel of its budget
    assert [text.get_text() for text in figure.legends[0].get_texts()][-1] == "diverged"


def test_gaps_stand_in_the_papers_bands():
    runs = published.sets(published.runs())["all"]
    gaps = readings.frontier_gaps(readings.optima(runs))
    figure = figures.frontier_gaps({"by the parabolas": gaps, "again": gaps}, published.BANDS)
    assert [axis.get_title() for axis in figure.axes] == ["by the parabolas", "again"]
    for axis in figure.axes:
        lines = {line.get_label(): line for line in axis.lines}
        for r, (low, high) in published.BANDS.items():
            line = lines[f"r = {r}"]
            assert line.get_ydata().tolist() == gaps[r].tolist() and line.get_xdata().tolist() == [*gaps.index]
            bands = [patch for patch in axis.patches if to_hex(patch.get_facecolor()) == to_hex(line.get_color())]
            assert [(band.get_y(), band.get_y() + band.get_height()) for band in bands] == [pytest.approx((low, high))]


def test_axes_by_budget():
    points = by_axis(grid(lambda axis, budget, r, width: 2 + r / 10 + len(axis) / 100 + width / 1000))
    figure = figures.axes_by_budget(optimal(points))
    assert len(figure.axes) == 5 and "Parametric" in figure.axes[0].get_title()
    alone = figures.axes_by_budget(optimal(points).assign(tasks=1))
    assert "(3 tasks)" in figure.axes[0].get_title() and "(1 task)" in alone.axes[0].get_title()
    lines = [container.lines[0] for container in figure.axes[1].containers]
    assert len(lines) == len(RECURRENCES)
    for line, r in zip(lines, RECURRENCES, strict=True):
        np.testing.assert_allclose(line.get_ydata(orig=False), 2 + r / 10 + len("Reading comprehension") / 100 + 0.008)
        np.testing.assert_allclose(line.get_xdata(orig=False), BUDGETS, rtol=0.1)
    assert len({tuple(line.get_xdata()) for line in lines}) == len(lines)  # beside one another
