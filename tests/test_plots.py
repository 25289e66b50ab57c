import json

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle
from PIL import Image

from lib import isodepth, plots
from lib.config import ModelConfig
from lib.fit import fit_joint
from lib.presets import preset


@pytest.fixture(autouse=True)
def style():
    plots.use_style("smoke")
    yield
    plt.close("all")


def test_colours_differ_also_for_the_colour_blind():
    # Machado et al.'s matrices for full protanopia and deuteranopia
    views = {
        "normal": np.eye(3),
        "protan": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
        "deutan": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    }
    for name, matrix in views.items():
        seen = {k: matrix @ np.array(to_rgb(v)) ** 2.2 for k, v in plots.COLOURS.items()}
        pairs = [(a, b) for a in seen for b in seen if a < b]
        assert min(np.abs(seen[a] - seen[b]).max() for a, b in pairs) > 0.1, name


def test_every_architecture_has_a_name_a_colour_and_a_marker():
    assert plots.COLOURS.keys() == plots.NAMES.keys() == plots.MARKERS.keys()
    assert len(set(plots.COLOURS.values())) == len(set(plots.MARKERS.values())) == len(plots.COLOURS)


def test_shades_run_from_light_to_dark():
    brightness = [sum(to_rgb(c)) for c in plots.shades("parcae", 5)]
    assert brightness == sorted(brightness, reverse=True) and len(set(brightness)) == 5
    assert to_rgb(plots.shades("parcae", 1)[0]) == pytest.approx(to_rgb(plots.COLOURS["parcae"]))


def test_a_saved_figure_carries_its_provenance_and_profile(tmp_path):
    figure, axis = plt.subplots()
    axis.plot([1, 2])
    path = plots.save(figure, tmp_path / "a", {"commit": "abc", "parameters": {"lr": 0.1}})
    assert json.loads(path.with_suffix(".json").read_text())["commit"] == "abc"
    assert json.loads(Image.open(path).text["Description"])["parameters"] == {"lr": 0.1}
    assert b"abc" in path.with_suffix(".pdf").read_bytes()
    assert "profile: smoke" in [t.get_text() for t in figure.texts]


@pytest.mark.parametrize(("lr", "text"), [(0.032, "3.2e-2"), (2e-4, "2e-4"), (0.256, "2.56e-1"), (1.0, "1e0")])
def test_rates_are_short(lr, text):
    assert plots.rate(lr) == text


def test_the_curves_have_a_line_a_rate_and_a_cross_where_a_run_diverged():
    curves = pd.DataFrame([
        {"architecture": a, "lr": lr, "status": "diverged" if lr > 0.1 else "finished", "step": s,
         "loss": 3.0, "rho": 0.5}
        for a in ("base", "parcae") for lr in (0.01, 0.2) for s in range(5)
    ])  # fmt: skip
    figure = plots.training_curves(curves, {"loss": "loss", "rho": "rho"}, {"loss": 2.4})
    axes = np.array(figure.axes).reshape(2, 2)
    assert [len([x for x in axis.lines if x.get_marker() == "x"]) for axis in axes.ravel()] == [1, 1, 1, 1]
    assert axes[1, 0].get_yscale() == "log" and axes[0, 0].get_yscale() == "linear"
    assert [t.get_text() for t in axes[1, 0].get_legend().get_texts()] == ["1e-2", "2e-1"]


def test_runs_that_do_not_train_are_open_markers():
    frame = pd.DataFrame({
        "architecture": ["base", "base", "parcae"], "lr": [0.01, 0.2, 0.2], "val_loss": [2.0, 3.0, 2.1],
        "trains": [True, False, True], "rho_max": [0.9, 2.0, 0.8], "max_state_rms": [1.0, 1e5, 2.0],
    })  # fmt: skip
    for figure in (plots.loss_against_rate(frame, 2.4, "limit"), plots.outcome_against_radius(frame)):
        faces = {}
        for line in figure.axes[0].lines:
            if line.get_marker() in ("o", "^") and len(line.get_xdata()):
                faces[line.get_markerfacecolor()] = faces.get(line.get_markerfacecolor(), 0) + len(line.get_xdata())
        assert faces == {plots.COLOURS["base"]: 1, "white": 1, plots.COLOURS["parcae"]: 1}


def test_dots_show_every_seed_and_the_interval_of_their_mean():
    figure = plots.dots({"a": [1.0, 1.2, 1.1], "b": [2.0]}, "loss (nats)")
    lines = figure.axes[0].lines
    bar, seeds, mean, alone, _ = lines
    assert bar.get_xdata() == pytest.approx([1.1 - 4.3027 * 0.1 / 3**0.5, 1.1 + 4.3027 * 0.1 / 3**0.5], abs=1e-3)
    assert list(seeds.get_xdata()) == [1.0, 1.2, 1.1] and mean.get_xdata() == pytest.approx([1.1])
    assert list(alone.get_xdata()) == [2.0]  # one seed has no interval


def test_the_iso_depth_figures_draw_the_papers_grid():
    runs = isodepth.published_grid()
    optima = isodepth.optima(runs)
    curves = plots.isoflop_curves(runs, optima)
    assert [axis.get_title() for axis in curves.axes] == [
        f"{plots.rate(b)} FLOPs" for b in sorted(runs["budget"].unique())
    ]
    stars = sum(line.get_marker() == "*" and len(line.get_xdata()) for axis in curves.axes for line in axis.lines)
    assert stars == optima["inside"].sum() > 15
    against = plots.optima_against_budget(optima)
    assert [axis.get_ylabel() for axis in against.axes] == ["optimal parameters N*", "optimal tokens D*"]
    fit = fit_joint(*(runs[c] for c in ("n_once", "n_rec", "r", "D", "loss")))
    (panel,) = plots.predicted_against_measured({"the law": (fit, runs)}).axes
    assert "$R^2$ = 1.000" in panel.get_title()
    families = isodepth.published_families()
    lines = isodepth.frontiers(fit, families, runs["budget"].unique())
    left, right = plots.worth_of_a_recurrence(isodepth.worth(families, 0.459), lines, optima.query("inside")).axes
    assert len(left.lines) == 3 and "1e18" in [tick.get_text() for tick in right.get_xticklabels()]


# ---- the picture of a model


def words(figure) -> str:
    return " | ".join(text.get_text() for axis in figure.axes for text in axis.texts)


def test_a_picture_says_what_the_config_says():
    figure = plots.show(preset("parcae-140m"))
    said = words(figure)
    stacks = [f"{stack}: 2 layers" for stack in ("prelude", "recur", "coda")]
    loop = ["8 loops on average", "poisson per sequence", "gradient in 4", "diagonal", "readout C"]
    for what in (*stacks, *loop, "144.3 M", "1.36 G"):
        assert what in said, what
    assert "2 of 8 SwiGLU experts" in words(plots.show(preset("looped-moe-128")))
    assert "in 2 lanes" in words(plots.show(preset("isodepth-s10-r4", injection="hyper-connections")))
    assert "loop" not in words(plots.show(preset("gpt-140m"))).split("parameters")[0]
    nanochat = words(plots.show(preset("looped-nanochat-s8")))
    assert "| S | S | S | L |" in nanochat and "softcap 15" in nanochat and "sandwich" in nanochat


ODD = {
    "added": dict(
        injection="add", state_init="zero", softcap=15.0, depth="lognormal-poisson", backprop_loops=4, fill=True
    ),
    "lanes": dict(injection="hyper-connections", state_init="prelude", backprop_loops="all", tied=False),
    "plain": dict(recur=0, prelude=12, mean_loops=1, injection="none", state_init="prelude", residual="1/(N sqrt(L))"),
    "everything": dict(
        prelude_norm=True, embed_norm=True, readout=True, loop_norm="own", softcap=30.0, depth="poisson", windows="LS",
        value_embeddings=True, residual="1/N", mlp="swiglu", experts=8, active_experts=2, block="sandwich", recur=9,
    ),
}  # fmt: skip
NAMED = ["parcae-1.3b", "isodepth-s10-r8", "looped-nanochat-s8", "residual-L48-N16", "rdm-350m", "looped-moe-704"]


@pytest.mark.parametrize("styled", [True, False])
@pytest.mark.parametrize("name", [*NAMED, *ODD])
def test_every_word_of_a_picture_stays_in_its_place(name, styled):
    if not styled:
        matplotlib.rcdefaults()
    figure = plots.show(preset(name) if name in NAMED else ModelConfig(**ODD[name]))
    FigureCanvasAgg(figure).draw()
    picture, counts = figure.axes
    boxes = [patch.get_window_extent() for patch in picture.patches if isinstance(patch, Rectangle)]
    assert not plt.fignum_exists(figure.number)  # a notebook would show it twice
    for text in picture.texts:
        extent = text.get_window_extent()
        centre = (extent.x0 + extent.x1) / 2, (extent.y0 + extent.y1) / 2
        within = [box for box in boxes if box.contains(*centre)] or [picture.get_window_extent()]
        assert any(box.x0 <= extent.x0 and extent.x1 <= box.x1 for box in within), text.get_text()
        assert extent.y0 >= 0 and extent.y1 <= figure.bbox.y1, text.get_text()
    assert all(text.get_window_extent().x1 <= figure.bbox.x1 for text in counts.texts)


def test_several_configs_can_be_drawn_side_by_side():
    figure, axes = plt.subplots(1, 4)
    for axis, loops in zip(axes, (1, 2, 4, 8), strict=True):
        plots.picture(axis, preset(f"isodepth-s10-r{loops}"))
    assert all(f"{loops} loop" in words(figure) for loops in (1, 2, 4, 8))
