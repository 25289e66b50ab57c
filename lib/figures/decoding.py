"""The picture of a text that was decoded: which token left at which loop."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from lib.figures.style import COLOURS, PAGE


def left_at(pieces: list[str], loops: list[int], most: int, prompt: int, wide: int = 60) -> Figure:
    """At which of ``most`` loops each token left: a bar a token with its text below, ``wide`` a line; the first
    ``prompt`` are grey."""
    lines = range(0, len(pieces), wide)
    figure, axes = plt.subplots(len(lines), 1, figsize=(PAGE, 0.6 + 1.3 * len(lines)), squeeze=False)
    for axis, start in zip(axes[:, 0], lines, strict=True):
        x = np.arange(start, min(start + wide, len(pieces)))
        colours = ["#B0B0B0" if i < prompt else COLOURS["looped-moe"] for i in x]
        axis.bar(x, loops[start : start + wide], 0.85, color=colours)
        axis.set_xticks(x, [_visible(pieces[i]) for i in x], fontsize=6.5)
        axis.tick_params(axis="x", length=0)
        axis.set_xlim(start - 1, start + min(wide, len(pieces)))
        axis.set_ylim(0, most + 0.3)
        axis.set_yticks(range(0, most + 1, max(1, most // 4)))
        axis.set_ylabel("left after loop")
        axis.grid(visible=False, axis="x")
        axis.set_axisbelow(True)
    axes[-1, 0].set_xlabel("token read (^ a document begins, \u2423 blank)")
    handles = [Rectangle((0, 0), 1, 1, color="#B0B0B0"), Rectangle((0, 0), 1, 1, color=COLOURS["looped-moe"])]
    figure.legend(handles, ["prompt", "answer"], loc="outside upper right", ncols=2)
    return figure


def _visible(piece: str) -> str:
    """A token's text for an axis: blanks and line ends shown, a document's beginning as ^, a dollar no formula, and
    control characters, for which no font has a picture, as bytes that are no text."""
    shown = piece.replace(" ", "\u2423").replace("\n", "\u21b5").replace("\t", "\u21e5").replace("$", r"\$") or "^"
    return "".join(character if character.isprintable() else "\ufffd" for character in shown)
