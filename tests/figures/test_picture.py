"""A model's picture says what its config says, and every word of it stays in its place."""

import matplotlib
import matplotlib.pyplot as plt
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import FancyArrowPatch, Rectangle

from lib.config import ModelConfig
from lib.figures import picture
from lib.presets import preset

pytestmark = pytest.mark.usefixtures("style")


def words(figure) -> str:
    return " | ".join(text.get_text() for axis in figure.axes for text in axis.texts)


def test_a_picture_says_what_the_config_says():
    figure = picture.show(preset("parcae-140m"))
    said = words(figure)
    stacks = [f"{stack}: 2 layers" for stack in ("prelude", "recur", "coda")]
    loop = ["8 loops on average", "poisson per sequence", "gradient in 4", "diagonal", "readout C"]
    for what in (*stacks, *loop, "144.3 M", "1.36 G"):
        assert what in said, what
    assert "2 of 8 SwiGLU experts" in words(picture.show(preset("looped-moe-128")))
    assert "loop" not in words(picture.show(preset("gpt-140m"))).split("parameters")[0]


EVERYTHING = dict(prelude_norm=True, embed_norm=True, readout=True, value_embeddings=True, block="sandwich", recur=9)
EVERYTHING |= dict(softcap=30.0, depth="poisson", windows="LS", residual="1/N", loop_norm="own")
EVERYTHING |= dict(mlp="swiglu", experts=8, active_experts=2)
PICTURED = [ModelConfig(**EVERYTHING), preset("isodepth-s10-r4", injection="hyper-connections")]
PICTURED += [preset(name) for name in ("parcae-1.3b", "looped-nanochat-s8", "residual-L48-N16", "gpt-140m")]


@pytest.mark.parametrize("styled", [True, False])
@pytest.mark.parametrize("cfg", PICTURED)
def test_every_word_of_a_picture_stays_in_its_place(cfg, styled):
    if not styled:
        matplotlib.rcdefaults()
    figure = picture.show(cfg)
    FigureCanvasAgg(figure).draw()
    drawn, counts = figure.axes
    boxes = [patch.get_window_extent() for patch in drawn.patches if isinstance(patch, Rectangle)]
    assert not plt.fignum_exists(figure.number)  # a notebook would show it twice
    for text in drawn.texts:
        extent = text.get_window_extent()
        centre = (extent.x0 + extent.x1) / 2, (extent.y0 + extent.y1) / 2
        within = [box for box in boxes if box.contains(*centre)] or [drawn.get_window_extent()]
        assert any(box.x0 <= extent.x0 and extent.x1 <= box.x1 for box in within), text.get_text()
        assert extent.y0 >= 0 and extent.y1 <= figure.bbox.y1, text.get_text()
    assert all(text.get_window_extent().x1 <= figure.bbox.x1 for text in counts.texts)


def test_several_configs_can_be_drawn_side_by_side():
    figure = picture.side_by_side({f"r = {r}": preset(f"isodepth-s10-r{r}") for r in (1, 2, 4, 8)})
    assert all(f"{loops} loop" in words(figure) for loops in (1, 2, 4, 8))
    assert [axis.get_title() for axis in figure.axes] == ["r = 1", "r = 2", "r = 4", "r = 8"]
    arrows = [sum(isinstance(patch, FancyArrowPatch) for patch in axis.patches) for axis in figure.axes]
    assert arrows == [0, 2, 2, 2]  # round the loop and to the injection; what runs once has neither
