"""The iso-depth figures draw 000's grid in one colour a recurrence, and its law's own losses leave no residual."""

import numpy as np
import pandas as pd
import pytest

from lib.figures import style
from lib.fit.fits import fit_chinchilla, fit_joint
from lib.papers.isodepth import designs, figures, readings

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
    against = figures.optima_against_budget(optima)
    assert [axis.get_ylabel() for axis in against.axes] == ["optimal parameters N*", "optimal tokens D*"]
    plain = optima[(optima["r"] == 1) & optima["inside"]]
    exponent = np.polyfit(np.log(plain["budget"]), np.log(plain["N"]), 1)[0]
    assert against.axes[0].get_legend().get_texts()[0].get_text() == f"r = 1: {exponent:.2f}"
    few = figures.optima_against_budget(optima.assign(inside=optima["budget"] == 1e18)).axes[0]
    assert few.get_legend().get_texts()[0].get_text() == "r = 1: too few"
    fit = fit_joint(*readings.joint_arrays(runs))
    (panel,) = figures.predicted_against_measured({"the law": (fit, runs)}).axes
    assert "$R^2$ = 1.000" in panel.get_title()
    families = designs.published_families()
    one = fit_joint(*readings.joint_arrays(runs), phi=1.0)
    lines = readings.frontiers(fit, one, families, runs["budget"].unique())
    left, right = figures.worth_of_a_recurrence(readings.worth(families, 0.459), lines, optima.query("inside")).axes
    assert len(left.lines) == 3 and right.get_legend().get_texts()[-1].get_text() == "minima of the parabolas"
    assert "1e18" in [tick.get_text() for tick in right.get_xticklabels()]


def test_the_recurrences_fall_on_one_line_at_the_laws_own_phi():
    runs = designs.published_grid()

    def away(phi):
        fit = fit_joint(*readings.joint_arrays(runs), phi=phi)
        (axis,) = figures.collapse(fit, phi, runs).axes
        *families, line = axis.lines
        assert [f"r = {r}" for r in sorted(runs["r"].unique())] == [family.get_label() for family in families]
        assert f"$\\varphi$ = {phi:.2f}" in axis.get_title() and f"{fit.r2:.3f}" in axis.get_title()
        x, y = line.get_data()
        return [np.mean(f.get_ydata() - np.interp(np.log(f.get_xdata()), np.log(x), y)) for f in families]

    assert away(designs.PUBLISHED["phi"]) == pytest.approx([0] * 4, abs=2e-3)
    assert away(0.0)[-1] < -0.01 and away(1.0)[-1] > 0.01  # the deepest loop seems better, or worse, than its size


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


def test_an_optimum_at_the_edge_is_an_open_marker():
    allocations = pd.DataFrame(
        {
            "probe": ["baseline", "baseline", "truncated"],
            "budget": [1e18, 2e18, 1e18],
            "width": [640.0, 700.0, 384.0],
            "at_edge": [False, False, True],
        }
    )
    figure = figures.allocation_shifts({"ours": allocations, "theirs": allocations})
    assert [axis.get_title() for axis in figure.axes] == ["ours", "theirs"]
    faces = [
        line.get_markerfacecolor()
        for line in figure.axes[0].lines
        if line.get_marker() == "<" and line.get_linestyle() == "None"
    ]
    assert faces == ["white"]


def test_predictions_stand_beside_what_was_trained():
    grid = designs.published_grid()
    held_out = pd.DataFrame({"budget": [4e20] * 2, "r": [1, 4], "loss": [2.1, 2.16], "predicted": [2.11, 2.15]})
    # resamples may leave a prediction out
    ends = held_out.assign(low=held_out["predicted"] + [-0.01, 0.001], high=held_out["predicted"] + 0.02)
    left, right = figures.beyond_the_grid(grid, ends).axes
    for axis in (left, right):
        stars = [line for line in axis.lines if line.get_marker() == "*" and len(line.get_xdata())]
        assert [line.get_ydata()[0] for line in stars] == [2.1, 2.16]
        assert stars[0].get_xdata()[0] != stars[1].get_xdata()[0]  # side by side
    intervals = [bar.get_segments()[0][:, 1].tolist() for bar in right.collections]
    predictions = [line.get_ydata().tolist() for line in right.lines if line.get_marker() != "*"]
    assert predictions == [[one] for one in held_out["predicted"]]
    assert intervals == ends[["low", "high"]].to_numpy().tolist()


def test_each_recurrence_keeps_its_colour_in_a_panel_of_its_own():
    runs = designs.published_grid()
    own = {f"r = {r}": (fit_chinchilla(cell["N"], cell["D"], cell["loss"]), cell) for r, cell in runs.groupby("r")}
    figure = figures.predicted_against_measured(own)
    drawn = [next(line.get_color() for line in axis.lines if len(line.get_xdata()) > 2) for axis in figure.axes]
    assert len(set(drawn)) == 4
    residuals = figures.residuals(own)
    assert [axis.get_xlabel() for axis in residuals.axes] == [""] * 6 + ["unique parameters N", "tokens D"]
    assert [axis.get_ylabel() for axis in residuals.axes[::2]] == [
        f"r = {r}\nmeasured less\npredicted (nats)" for r in (1, 2, 4, 8)
    ]
    losses = np.concatenate(
        [line.get_ydata() for axis in residuals.axes for line in axis.lines if line.get_marker() != "None"]
    )
    assert np.abs(losses).max() < 1e-6  # the law's own losses leave nothing
