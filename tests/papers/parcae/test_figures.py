"""The figures of 001 draw each variant's mean over its seeds."""

import numpy as np
import pandas as pd
import pytest

from lib.papers.parcae import figures

pytestmark = pytest.mark.usefixtures("style")


def swept(variants, depths=(1, 4, 8), seeds=(1, 2)) -> pd.DataFrame:
    rows = [(v, s, T, 2 + 1 / T + 0.1 * i + 0.01 * s) for i, v in enumerate(variants) for s in seeds for T in depths]
    return pd.DataFrame(rows, columns=["variant", "seed", "T", "loss"])


def lines(axis):
    return [line for line in axis.lines if not line.get_label().startswith("_")]


def test_losses_by_depth_are_a_line_a_variant_through_its_seeds_mean():
    losses = swept(["RDM", "+ constrained A"])
    figure = figures.loss_by_depth({"a": losses, "b": losses}, figures.VARIANTS, trained=8)
    left, right, late, _ = figure.axes
    assert [line.get_label() for line in lines(left)] == ["RDM", "+ constrained A", r"$T = \mu_{rec}$"]
    assert lines(late)[0].get_ydata() == pytest.approx([2.265, 2.14])  # once more, without T = 1
    assert lines(left)[0].get_ydata() == pytest.approx([3.015, 2.265, 2.14])
    assert right.get_title() == "b" and left.get_xscale() == "log"
    ordered = figures.ordered([4, 8, 20])
    assert len({colour for colour, _ in ordered.values()}) == 3
    figure = figures.loss_by_depth({"": swept([4, 8, 20])}, ordered)
    assert [line.get_label() for line in lines(figure.axes[0])] == ["4", "8", "20"]
    assert len(figures.loss_by_depth({"": swept([4], depths=(1, 4))}, ordered).axes) == 1


def test_the_curves_have_a_line_a_rate_and_a_cross_where_a_run_diverged():
    rows = [
        (name, lr, "diverged" if lr > 0.1 else "finished", step, 3.0, 0.5)
        for name in ("base", "parcae")
        for lr in (0.01, 0.2)
        for step in range(5)
    ]
    curves = pd.DataFrame(rows, columns=["architecture", "lr", "status", "step", "loss", "rho"])
    figure = figures.training_curves(curves, {"loss": "loss", "rho": "rho"}, {"loss": 2.4})
    axes = np.array(figure.axes).reshape(2, 2)
    assert [len([x for x in axis.lines if x.get_marker() == "x"]) for axis in axes.ravel()] == [1, 1, 1, 1]
    assert [line.get_linestyle() for line in axes[0, 0].lines if line.get_label() == "2e-1"] == ["--"]  # the highest
    assert axes[1, 0].get_yscale() == "log" and axes[0, 0].get_yscale() == "linear"
    assert [t.get_text() for t in axes[1, 0].get_legend().get_texts()] == ["1e-2", "2e-1"]
