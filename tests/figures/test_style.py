"""Colours differ for the colour-blind too, figures carry their provenance, and axes say what they show."""

import itertools
import json

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import seaborn as sns
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex, to_rgb
from PIL import Image

from lib.figures import style
from tests.cells import function
from tests.lines import one_line

pytestmark = pytest.mark.usefixtures("style")


def test_colours_differ_also_for_the_colour_blind():
    # Machado et al.'s matrices for full protanopia and deuteranopia
    views = {
        "normal": np.eye(3),
        "protan": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
        "deutan": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    }
    for name, matrix in views.items():
        seen = {k: matrix @ np.array(to_rgb(v)) ** 2.2 for k, v in style.COLOURS.items()}
        pairs = [(a, b) for a in seen for b in seen if a < b]
        assert min(np.abs(seen[a] - seen[b]).max() for a, b in pairs) > 0.1, name
    assert len({*style.MARKERS.values()}) == len(style.MARKERS)


def test_a_saved_figure_carries_its_provenance_its_words_its_profile_and_truetype_fonts(tmp_path):
    with mpl.rc_context():
        style.use_style("cpu")
        figure, axis = plt.subplots()
        axis.plot([1, 2])
        axis.set(xlabel="step", ylabel="loss")
        path = style.save(figure, tmp_path / "a", {"commit": "abc"}, "profile: smoke")
    stamp = json.loads(path.with_suffix(".json").read_text())
    assert stamp == json.loads(Image.open(path).text["Description"]) == {"commit": "abc", "alt": "Loss against step."}
    pdf = path.with_suffix(".pdf").read_bytes()
    assert b"abc" in pdf and b"/CIDFontType2" in pdf and b"/Type3" not in pdf
    assert "profile: smoke" in [t.get_text() for t in figure.texts]


def test_dots_show_every_seed_and_the_interval_of_their_mean():
    names = ["linear"] * 3 + ["hyper-connections, as printed"]
    seeds = pd.DataFrame({"injection": names, "loss": [1.0, 1.2, 1.1, 2.0]})
    marks = function("injection_ablation", "dots")(seeds, "2").axes[0].collections
    bars = [mark for mark in marks if isinstance(mark, LineCollection)]
    ends = np.array([line for bar in bars for line in bar.get_segments()])
    half = 4.3027 * 0.1 / 3**0.5
    assert ends[:, :, 0] == pytest.approx(np.array([[1.1 - half, 1.1 + half], [2, 2]]), abs=1e-3)  # one seed has none
    dots, means = (mark for mark in marks if mark not in bars)
    assert dots.get_offsets()[:, 0].tolist() == [1.0, 1.2, 1.1, 2.0]
    assert means.get_offsets()[:, 0].tolist() == pytest.approx([1.1, 2.0])
    assert {*dots.get_offsets()[:, 1]}.isdisjoint(ends[:, :, 1].ravel())  # neither is drawn over the other
    colours = [to_hex(colour).upper() for colour in dots.get_facecolors()]
    assert colours == [style.COLOURS["isodepth"]] * 3 + [style.COLOURS["hyper-connections"]]


def test_what_seaborn_drew_is_as_wide_as_a_page_with_its_legend_above_the_panels():
    table = pd.DataFrame({"x": [1, 2] * 4, "y": range(8), "name": ["a"] * 4 + ["b"] * 4, "of": list("uuvvuuvv")})
    figure = style.laid_out(sns.relplot(table, x="x", y="y", col="name", hue="of", kind="line"), 2.4)
    figure.canvas.draw()
    assert tuple(figure.get_size_inches()) == (style.PAGE, 2.4)
    assert [axis.get_title() for axis in figure.axes] == ["a", "b"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.texts] == ["u", "v"]
    assert legend.get_window_extent().y0 > max(axis.title.get_window_extent().y1 for axis in figure.axes)


def test_what_cannot_be_drawn_says_so():
    with one_line("architectures: 'gated-add' has no look", "lib/figures/style.py"):
        style.shades("gated-add", 3)
    assert style.shades("parcae", 0) == []


@pytest.mark.parametrize(("low", "high"), [(7420, 8200), (9000, 14000), (1.02e6, 1.9e6)])
def test_counts_that_hardly_differ_have_few_ticks(low, high):
    figure, axis = plt.subplots(figsize=(2, 2))
    axis.plot([low, high], [1, 2])
    style.count_axis(axis, "parameters")
    figure.canvas.draw()
    left, right = axis.get_xlim()
    shown = [tick.get_text() for tick in axis.get_xticklabels() if left <= tick.get_position()[0] <= right]
    assert 2 <= len(shown) == len(set(shown)) <= 5


def test_an_isoflop_curve_is_its_runs_their_parabola_and_a_star():
    N = np.array([1e5, 2e5, 4e5, 8e5])
    cell = pd.DataFrame({"N": N, "loss": 3 + 0.1 * np.log(N / 3e5) ** 2})
    _, axis = plt.subplots()
    style.isoflop_curve(axis, cell, pd.DataFrame({"N": [3e5], "loss": [3.0]}), "black", "o", label="r = 1")
    runs, parabola, star = axis.lines
    assert list(runs.get_xdata()) == list(N) and runs.get_label() == "r = 1"
    x, y = parabola.get_data()
    assert (x[0], x[-1]) == pytest.approx((N[0], N[-1]))
    assert y == pytest.approx(3 + 0.1 * np.log(x / 3e5) ** 2)
    assert star.get_data() == ([3e5], [3.0])
    for two in (cell.head(2), pd.concat([cell.head(2)] * 2)):  # sizes, of one seed and of two
        _, few = plt.subplots()
        style.isoflop_curve(few, two, pd.DataFrame({"N": [], "loss": []}), "black", "o")
        assert len(few.lines) == 2  # runs and star, and no parabola


@pytest.mark.parametrize(
    ("budgets", "aslant"), [([1e11, 2.15e11, 4.64e11, 1e12], False), ([1e11, 2.15e11, 2e13], True)]
)
def test_budgets_that_stand_close_are_written_aslant_and_do_not_overlap(budgets, aslant):
    figure, axis = plt.subplots(figsize=(style.COLUMN, 2.5))
    axis.plot(budgets, budgets)
    style.budget_axis(axis, budgets)
    figure.canvas.draw()
    labels = axis.get_xticklabels()
    assert {label.get_rotation() for label in labels} == {45.0 if aslant else 0.0}
    boxes = [label.get_window_extent() for label in labels]
    assert aslant or all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


# ---- a figure in words says what stands on its axes, panels and legends --------------------------------------------


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
