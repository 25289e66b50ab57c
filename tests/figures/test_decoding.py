"""A bar says at which loop its token left, tokens are shown as they are, and long texts are wrapped."""

import pytest
from matplotlib.colors import to_hex

from lib.figures import decoding, style

pytestmark = pytest.mark.usefixtures("style")


def test_a_bar_says_where_a_token_left():
    axis = decoding.left_at(["", "a", " ", "$", "\n", "\x19"], [4, 4, 2, 1, 3, 3], 4, prompt=2).axes[0]
    assert [bar.get_height() for bar in axis.patches] == [4, 4, 2, 1, 3, 3]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["^", "a", "\u2423", r"\$", "\u21b5", "\ufffd"]
    colours = [to_hex(bar.get_facecolor()).upper() for bar in axis.patches]
    assert colours[1] == "#B0B0B0" and colours[2] == style.COLOURS["looped-moe"]


def test_many_tokens_are_wrapped():
    axes = decoding.left_at(["a"] * 130, [1] * 130, 4, prompt=70).axes
    assert [len(axis.patches) for axis in axes] == [60, 60, 10]
    assert [bool(axis.get_xlabel()) for axis in axes] == [False, False, True]
    assert to_hex(axes[1].patches[9].get_facecolor()).upper() == "#B0B0B0"
    assert to_hex(axes[1].patches[10].get_facecolor()).upper() == style.COLOURS["looped-moe"]
