"""The figures of 001's ablations draw each variant's mean over its seeds."""

import pandas as pd
import pytest

from lib.papers.parcae import figures_transformer

pytestmark = pytest.mark.usefixtures("style")


def swept(variants, depths=(1, 4, 8), seeds=(1, 2)) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"variant": v, "seed": s, "T": T, "loss": 2 + 1 / T + 0.1 * i + 0.01 * s}
            for i, v in enumerate(variants)
            for s in seeds
            for T in depths
        ]
    )


def lines(axis):
    return [line for line in axis.lines if not line.get_label().startswith("_")]


def test_losses_by_depth_are_a_line_a_variant_through_its_seeds_mean():
    losses = swept(["RDM", "+ constrained A"])
    figure = figures_transformer.loss_by_depth({"a": losses, "b": losses}, figures_transformer.VARIANTS, trained=8)
    left, right, late, _ = figure.axes
    assert [line.get_label() for line in lines(left)] == ["RDM", "+ constrained A", r"$T = \mu_{rec}$"]
    assert lines(late)[0].get_ydata() == pytest.approx([2.265, 2.14])  # once more, without T = 1
    assert lines(left)[0].get_ydata() == pytest.approx([3.015, 2.265, 2.14])
    assert right.get_title() == "b" and left.get_xscale() == "log"
    ordered = figures_transformer.ordered([4, 8, 20])
    assert len({colour for colour, _ in ordered.values()}) == 3
    figure = figures_transformer.loss_by_depth({"": swept([4, 8, 20])}, ordered)
    assert [line.get_label() for line in lines(figure.axes[0])] == ["4", "8", "20"]
    assert len(figures_transformer.loss_by_depth({"": swept([4], depths=(1, 4))}, ordered).axes) == 1
