"""A figure in words says what stands on its axes, panels and legends, whatever file it goes to."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from lib.figures import style

pytestmark = pytest.mark.usefixtures("style")


def test_a_panel_is_its_title_its_axes_and_its_lines():
    figure, (axis, other, empty) = plt.subplots(1, 3)
    axis.plot([1, 2], [1, 2], label="Parcae")
    axis.plot([1, 2], [2, 1], label="Base")
    axis.set(xlabel="budget (FLOPs)", ylabel=r"norm $\|h_T\|$", title="At cpu", xscale="log")
    axis.legend()
    other.remove(), empty.set(ylabel="nothing", xlabel="nowhere")
    assert style.described(figure) == "Norm ‖h_T‖ against budget (FLOPs) (log scale): At cpu. Drawn: Parcae, Base."


def test_panels_that_share_their_axes_are_said_once():
    """Also where only the outer panels have a label, and the legend stands above all of them."""
    figure, axes = plt.subplots(2, 2, sharex=True, sharey=True)
    for n, axis in enumerate(axes.flat):
        axis.plot([1, 2], [1, 2], label="a seed")
        axis.set_title(f"r = {n}")
    axes[0, 0].set_ylabel("loss (nats)")
    axes[1, 0].set(ylabel="loss (nats)", xlabel="step")
    axes[1, 1].set_xlabel("step")
    style.legend_above(figure, axes[0, 0])
    assert style.described(figure) == (
        "4 panels of loss (nats) against step: r = 0, r = 1, r = 2, r = 3. Drawn: a seed."
    )


def test_ticks_that_are_names_and_colour_bars_are_read_out():
    figure, axis = plt.subplots()
    image = axis.imshow(np.eye(3))
    axis.set_yticks([0, 1], ["parcae", "base"])
    axis.set_xlabel("loop")
    figure.colorbar(image, label="cosine")
    assert style.described(figure) == "Parcae, base against loop. Colour: cosine."


def test_a_list_with_commas_in_its_names_is_parted_otherwise_and_a_long_one_is_cut():
    assert style.listed(["a", "b"]) == "a, b" and style.listed(["a, b", "c"]) == "a, b; c"
    assert style.listed(map(str, range(10))) == "0, 1, 2, 3, 4, 5, 6, and 3 more"


def test_mathematics_has_no_commands():
    assert style.plain(r"$\Delta \bar{A}$, $B D^{-\beta}$, $|h_{T-1}|$") == "ΔA-bar, B D^-β, |h_(T-1)|"
    assert style.plain("$\\alpha \\sim$ $1/\\sqrt{N}$\nT $\\leq 4$") == "α ~ 1/√N T ≤ 4"
