"""The figures of 001's ablations draw each variant's mean over its seeds and skip what was not measured."""

import numpy as np
import pandas as pd
import pytest

from lib.figures.style import COLOURS
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


def test_a_trace_shows_the_way_and_then_the_loops():
    places = ["prelude 1", "e", "injection", "recur 1", *(f"loop {T}" for T in range(1, 5)), "expansion"]
    trace = pd.DataFrame(
        [{"step": step, **{place: step + i for i, place in enumerate(places)}} for step in (10, 19.9, 20)]
    )
    figure = figures_transformer.state_trace({"without": trace, "with": trace}, 4, 2)
    first, after = figure.axes[:2]
    assert [tick.get_text() for tick in first.get_xticklabels()] == ["prelude 1", "e", "injection", "recur 1"]
    assert first.lines[0].get_ydata().tolist() == [10, 11, 12, 13]
    assert after.lines[1].get_ydata().tolist() == [24, 25, 26, 27] and after.lines[1].get_label() == "20"
    assert after.lines[2].get_xdata()[0] == 2  # mean_loops


def test_spectra_average_over_seeds_and_skip_what_is_not_there():
    curves = pd.DataFrame(
        {
            "variant": "x",
            "step": [1, 2, 1, 2],
            "a_norm": [0.4, 0.6, 0.6, 0.8],
            "b_norm": 1.0,
            "c_norm": np.nan,
            "trace expansion": [np.nan, 0.5, np.nan, 0.7],
        }
    )
    (axis,) = figures_transformer.spectra(curves).axes
    assert len(axis.lines) == 3
    assert axis.lines[0].get_ydata().tolist() == pytest.approx([0.5, 0.7])


def test_distributions_name_their_means():
    p = np.array([0, 0.5, 0, 0.5])
    (axis,) = figures_transformer.depth_distributions({"poisson": {"fill": (p, "black")}}).axes
    assert lines(axis)[0].get_label() == "fill, mean 2.00"


def test_training_panels():
    curves = pd.DataFrame(
        {"variant": ["per batch"] * 3 + ["per sequence"] * 3, "step": [1, 2, 3] * 2, "loss": 2.0, "residual": 1.0}
    )
    figure = figures_transformer.training(
        curves, {"loss": "loss", "residual": "residual"}, figures_transformer.VARIANTS
    )
    assert [axis.get_ylabel() for axis in figure.axes] == ["loss", "residual"]
    assert figure.axes[1].get_yscale() == "log"
    first, last = figure.axes[0].lines  # they lie on each other, and both are seen
    assert first.get_linewidth() > 2 * last.get_linewidth()


def test_sizes_have_an_architectures_own_colour():
    frame = pd.DataFrame(
        {
            "architecture": ["transformer"] * 2 + ["parcae"] * 2,
            "parameters": [1e5, 2e5] * 2,
            "perplexity": [8.0, 7.0, 7.5, 6.5],
        }
    )
    (axis,) = figures_transformer.by_size(frame).axes
    assert [line.get_color() for line in lines(axis)] == [COLOURS["transformer"], COLOURS["parcae"]]
