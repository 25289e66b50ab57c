"""What the figures of Looped-MoE and early exit (004) share."""

import math
from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import MaxNLocator, NullLocator, PercentFormatter
from matplotlib.typing import ColorType

from lib.figures.style import COLOURS, MARKERS, shades
from lib.papers.looped_moe.designs import LOOK, TITLES


def look_of(names: Iterable[str]) -> dict[str, tuple[ColorType, str]]:
    """(colour, marker) of each model's name, ordered by architecture, the same in every figure. With two loops they are
    the architecture's own. With more, up to 16, the colour is the darker, and the marker changes at three, six and
    twelve."""
    looks, architectures = {}, {title: LOOK[name] for name, title in TITLES.items()}
    for name in sorted(dict.fromkeys(names), key=lambda name: [*architectures].index(name.partition(" ")[0])):
        title, _, size = name.partition(" ")
        own, loops = architectures[title], int(size.partition("x")[2] or 2)
        doublings = min(max(math.log2(loops) - 1, 0), 3)
        darker = [COLOURS[own], *shades(own, 33)[17:]]
        looks[name] = (darker[round(16 * doublings / 3)], (MARKERS[own] + "so^")[round(doublings)])
    return looks


def perplexities(axes: Iterable[Axes]) -> None:
    """Panels of perplexity, on a log axis that spans less than a decade, against what is saved."""
    for axis in axes:
        axis.set_yscale("log")
        axis.yaxis.set(major_locator=MaxNLocator(6), major_formatter="{x:g}", minor_locator=NullLocator())
        in_percent(axis.xaxis)


def in_percent(*axes: Axis) -> None:
    """Axes of shares."""
    for axis in axes:
        axis.set_major_formatter(PercentFormatter(1, decimals=0))
