"""The iso-depth figures draw 000's grid in one colour a recurrence, and its law's own losses leave no residual."""

import pandas as pd
import pytest

from lib.figures import style
from lib.fit.fits import fit_joint
from lib.papers.isodepth import designs, figures, readings
from tests.fit.known import iso_depth_grid

pytestmark = pytest.mark.usefixtures("style")


def test_the_iso_depth_figures_draw_the_papers_grid():
    runs = iso_depth_grid()
    optima, budgets = readings.optima(runs), sorted(runs["budget"].unique())
    curves = figures.isoflop_curves(runs, optima)
    assert [axis.get_title() for axis in curves.axes] == [f"{style.rate(budget)} FLOPs" for budget in budgets]
    stars = sum(line.get_marker() == "*" and len(line.get_xdata()) for axis in curves.axes for line in axis.lines)
    assert stars == optima["inside"].sum() > 15
    fit, one = (fit_joint(*readings.joint_arrays(runs), **held) for held in ({}, {"phi": 1.0}))
    law = figures.predicted_against_measured({"the law": (fit, runs), "phi = 1": (one, runs)})
    exact, held = (axis.collections[0].get_offsets().data for axis in law.axes)
    assert len(exact) == len(held) == len(runs) and exact[:, 0] == pytest.approx(exact[:, 1], abs=1e-4)
    assert abs(held[:, 0] - held[:, 1]).max() > 0.01 and "$R^2$ = 1.000" in law.axes[0].get_title()
    families = designs.published_families()
    lines, worth = readings.frontiers(fit, one, families, budgets), readings.worth(families, 0.459)
    left, right = figures.worth_of_a_recurrence(worth, lines, optima.query("inside")).axes
    assert len(left.lines) == 3 and "1e18" in [tick.get_text() for tick in right.get_xticklabels()]
    gaps = readings.frontier_gaps(optima)
    (axis,) = figures.gaps_over_budgets({"of two seeds": pd.concat([gaps - 0.01, gaps + 0.01])}, worth["r"], "gap").axes
    drawn = {tuple(line.get_ydata()) for line in axis.lines}
    means = [gaps[r].dropna().tolist() for r in (2, 4, 8)]
    assert all(any(line == pytest.approx(mean) for line in drawn) for mean in means if mean)


def test_what_a_probe_does_is_drawn_with_intervals_and_what_is_printed():
    of = {"baseline": [0.45, 0.4, 0.5], "lanes": [0.65, 0.5, 0.8]}
    found = {name: pd.DataFrame({"phi": phi, "a_D": 0.6, "width": phi}) for name, phi in of.items()}
    phi, added, *_ = figures.probed_constants(found, {("lanes", "phi"): 0.646}).axes
    points = [[(*line.get_xdata(),) for line in axis.lines if len(line.get_xdata()) == 1] for axis in (phi, added)]
    assert points == [[(0.65,), (0.646,), (0.45,)], [(pytest.approx(0.2),), (0.0,)]]
    interval = next(line.get_xdata() for line in added.lines if len(line.get_xdata()) == 2)
    assert interval == pytest.approx([0.105, 0.295])  # of the draws' own distances from the baseline's


def test_the_probes_are_drawn_over_their_baseline():
    baseline = iso_depth_grid().query("budget < 2e18")
    probed = baseline[baseline["r"] > 1].assign(loss=lambda f: f["loss"] - 0.05)
    runs = pd.concat([baseline.assign(probe="baseline"), probed.assign(probe="truncated")])
    optima = pd.concat([readings.optima(own).assign(probe=probe) for probe, own in runs.groupby("probe", sort=False)])
    lost = pd.DataFrame({"budget": [1e18], "r": [4], "N": [2e7], "probe": ["truncated"]})
    figure = figures.probed_curves(runs, optima, lost)
    assert [axis.get_title() for axis in figure.axes] == ["truncated\n4.64e17 FLOPs", "truncated\n1e18 FLOPs"]
    for axis in figure.axes:
        curves = [line.get_linestyle() for line in axis.lines if len(line.get_xdata()) > 1]
        assert curves.count(":") == 3  # the parabolas of the looped baselines
        assert curves.count("-") == 4  # of the plain model and under the probe
    lines = [[line for line in axis.lines if line.get_marker() == "x"] for axis in figure.axes]
    crosses = [[x for line in of for x in line.get_xdata()] for of in lines]
    assert crosses == [[], [2e7]]  # in the panel of its budget
