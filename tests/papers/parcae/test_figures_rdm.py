"""The stability figures show every rate, a cross where a run diverged, and an open marker where one did not train."""

import numpy as np
import pandas as pd
import pytest

from lib.figures import style
from lib.papers.parcae.figures_rdm import curves_by_rate, loss_against_rate, outcome_against_radius, training_curves

pytestmark = pytest.mark.usefixtures("style")


def test_the_curves_have_a_line_a_rate_and_a_cross_where_a_run_diverged():
    curves = pd.DataFrame(
        [
            {
                "architecture": a,
                "lr": lr,
                "status": "diverged" if lr > 0.1 else "finished",
                "step": s,
                "loss": 3.0,
                "rho": 0.5,
            }
            for a in ("base", "parcae")
            for lr in (0.01, 0.2)
            for s in range(5)
        ]
    )
    figure = training_curves(curves, {"loss": "loss", "rho": "rho"}, {"loss": 2.4})
    axes = np.array(figure.axes).reshape(2, 2)
    assert [len([x for x in axis.lines if x.get_marker() == "x"]) for axis in axes.ravel()] == [1, 1, 1, 1]
    assert [line.get_linestyle() for line in axes[0, 0].lines if line.get_label() == "2e-1"] == ["--"]  # the highest
    assert axes[1, 0].get_yscale() == "log" and axes[0, 0].get_yscale() == "linear"
    assert [t.get_text() for t in axes[1, 0].get_legend().get_texts()] == ["1e-2", "2e-1"]


def test_runs_that_do_not_train_are_open_markers():
    frame = pd.DataFrame(
        {
            "architecture": ["base", "base", "parcae"],
            "lr": [0.01, 0.2, 0.2],
            "val_loss": [2.0, 3.0, 2.1],
            "trains": [True, False, True],
            "rho_max": [0.9, 2.0, 0.8],
            "max_state_rms": [1.0, 1e5, 2.0],
        }
    )
    for figure, face in ((loss_against_rate(frame, 2.4, "limit"), "white"), (outcome_against_radius(frame), "none")):
        faces = {}
        for line in figure.axes[0].lines:
            if line.get_marker() in ("o", "^") and len(line.get_xdata()):
                faces[line.get_markerfacecolor()] = faces.get(line.get_markerfacecolor(), 0) + len(line.get_xdata())
        assert faces == {style.COLOURS["base"]: 1, face: 1, style.COLOURS["parcae"]: 1}
        assert "open: does not train" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_every_rate_has_its_loss_and_its_state_norm():
    curves = pd.DataFrame(
        [
            {
                "architecture": a,
                "lr": lr,
                "status": "diverged" if lr > 0.5 and a == "base" else "finished",
                "step": s,
                "loss": 5.0 - s / 10,
                "state_norm": 1.0 + s,
            }
            for a in ("base", "parcae")
            for lr in (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.6)
            for s in range(6)
        ]
    )
    figure = curves_by_rate(curves, {"loss": 2.4}, columns=5)
    shown = [axis for axis in figure.axes if axis.get_visible()]
    assert len(shown) == 2 * 7
    losses = [axis for axis in shown if axis.get_title()]
    crosses = [sum(line.get_marker() == "x" for line in axis.lines) for axis in losses]
    assert crosses == [0, 0, 0, 0, 1, 1, 1]
    assert {axis.get_yscale() for axis in shown} == {"linear", "log"}
    above = curves.assign(loss=curves["loss"].where(curves["status"] != "diverged", 50.0 + curves["step"]))
    panel = curves_by_rate(above, {"loss": 2.4}).axes[-4]  # a loss that ends above the panel has its cross at the top
    (cross,) = [line for line in panel.lines if line.get_marker() == "x"]
    assert cross.get_ydata()[0] <= panel.get_ylim()[1] and not cross.get_clip_on()
