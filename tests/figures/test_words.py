"""A figure in words says what stands on its axes, panels and legends, whatever file it goes to."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from lib.figures import style, words

pytestmark = pytest.mark.usefixtures("style")


def test_a_panel_is_its_title_its_axes_and_its_lines():
    figure, axis = plt.subplots()
    axis.plot([1, 2], [1, 2], label="Parcae")
    axis.plot([1, 2], [2, 1], label="Base")
    axis.set(xlabel="budget (FLOPs)", ylabel=r"norm $\|h_T\|$", title="At cpu", xscale="log")
    axis.legend()
    assert words.described(figure) == "Norm ‖h_T‖ against budget (FLOPs) (log scale): At cpu. Drawn: Parcae, Base."


def test_panels_that_share_their_axes_are_said_once():
    """Also where only the outer panels have a label, and the legend stands above all of them."""
    figure, axes = plt.subplots(2, 2, sharex=True, sharey=True)
    for n, axis in enumerate(axes.flat):
        axis.plot([1, 2], [1, 2], label="a seed")
        axis.set_title(f"r = {n}")
    for axis in axes[:, 0]:
        axis.set_ylabel("loss (nats)")
    for axis in axes[-1]:
        axis.set_xlabel("step")
    style.legend_above(figure, axes[0, 0])
    assert words.described(figure) == (
        "4 panels of loss (nats) against step: r = 0, r = 1, r = 2, r = 3. Drawn: a seed."
    )


def test_an_empty_panel_is_not_said():
    figure, (left, right, empty) = plt.subplots(1, 3)
    left.plot([1, 2])
    left.set(ylabel="loss", xlabel="step")
    right.plot([1, 2])
    right.set(ylabel="rate", xlabel="step")
    empty.set(ylabel="nothing", xlabel="nowhere")
    assert words.described(figure) == "2 panels of loss, rate against step."


def test_what_the_ticks_name_is_read_out():
    figure, axis = plt.subplots()
    axis.plot([1.0, 2.0], [0, 1])
    axis.set_yticks([0, 1], ["parcae", "base"])
    axis.set_xlabel("loss (nats)")
    assert words.described(figure) == "Parcae, base against loss (nats)."


def test_a_colour_bar_says_what_a_colour_means():
    figure, axis = plt.subplots()
    image = axis.imshow(np.eye(3))
    axis.set(xlabel="loop", ylabel="loop")
    figure.colorbar(image, label="cosine")
    assert words.described(figure) == "Loop against loop. Colour: cosine."


def test_a_list_with_commas_in_its_names_is_parted_otherwise_and_a_long_one_is_cut():
    assert words.listed(["a", "b"]) == "a, b" and words.listed(["a, b", "c"]) == "a, b; c"
    assert words.listed(map(str, range(10))) == "0, 1, 2, 3, 4, 5, 6, and 3 more"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (r"$\|x_N\| / \sqrt{d}$", "‖x_N‖ / √d"),
        (r"$\Delta \bar{A}$", "ΔA-bar"),
        (r"$|h_T - h_{T-1}|$", "|h_T - h_(T-1)|"),
        (r"$B D^{-\beta}$, $N_{once}$", "B D^-β, N_once"),
        (r"$\alpha \sim$ $1/\sqrt{N}$", "α ~ 1/√N"),
        (r"$\varphi = 1$, T $\leq 4$", "φ = 1, T ≤ 4"),
        ("two\nlines", "two lines"),
    ],
)
def test_mathematics_has_no_commands(text, said):
    assert words.plain(text) == said
