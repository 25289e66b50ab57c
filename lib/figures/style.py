"""One look for every figure: one colour an architecture, colour-blind safe, the profile printed on it."""

import json
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.typing import ColorType

from lib.base import files
from lib.base.errors import InputError

T = TypeVar("T")

COLUMN = 3.4  # inches, the width of a paper's column
PAGE = 7.0
BUDGET = 0.45  # and of a label such as 4.64e11
COUNT = 0.31  # and of one such as 200 k
SCREEN_DPI = 110  # of figures in a notebook


class Look(NamedTuple):
    """What an architecture is called in legends, and how it is drawn, in every figure."""

    name: str
    colour: str
    marker: str


class Looks(dict[str, T]):
    """By name; one that has none is refused."""

    def __missing__(self, name: str) -> T:
        raise InputError(f"architectures: {name!r} has no look, give it one in LOOKS of lib/figures/style.py")


#: the colours begin with Okabe and Ito's palette, safe for all common colour deficiencies
LOOKS = Looks(
    {
        "base": Look("Base (pre-norm, concat)", "#D55E00", "o"),
        "residual-norm": Look("Residual norm", "#0072B2", "s"),
        "parcae": Look("Parcae", "#009E73", "^"),
        "parcae-rdm": Look("Parcae without C, prelude norm", "#56B4E9", "v"),
        "transformer": Look("Transformer", "#000000", "D"),
        "isodepth": Look("Looped, iso-depth", "#CC79A7", "P"),
        "truncated": Look("Looped, iso-depth, truncated", "#E6B800", "<"),
        "hyper-connections": Look("Looped, hyper-connections", "#3A2FC0", ">"),
        "looped-nanochat": Look("Looped nanochat", "#6B6B6B", "X"),
        "looped": Look("Looped, no injection", "#2B50FF", "p"),
        "post-norm": Look("Looped, Post-Norm", "#A8A000", "h"),
        "moe": Look("MoE", "#5A2A83", "*"),
        "looped-moe": Look("Looped-MoE", "#2FD0AA", "d"),
    }
)
NAMES = Looks({architecture: look.name for architecture, look in LOOKS.items()})
COLOURS = Looks({architecture: look.colour for architecture, look in LOOKS.items()})
MARKERS = Looks({architecture: look.marker for architecture, look in LOOKS.items()})


def use_style(profile: str) -> None:
    """Sets matplotlib's defaults for the figures of a profile."""
    warnings.filterwarnings("ignore", "The figure layout has changed to tight")  # by seaborn, before ``laid_out``
    mpl.rcParams.update(
        {
            "figure.dpi": 150,
            "savefig.dpi": 200,
            "figure.constrained_layout.use": True,
            "font.size": 8,
            "axes.titlesize": 8,
            "axes.labelsize": 8,
            "legend.fontsize": 7,
            "xtick.labelsize": 7,
            "ytick.labelsize": 7,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.formatter.min_exponent": 1,  # a log axis says 0.6 and 2, not 6 x 10^-1 and 2 x 10^0
            "axes.grid": True,
            "axes.axisbelow": True,  # also below scattered markers
            "grid.color": "#e6e6e6",
            "grid.linewidth": 0.6,
            "lines.linewidth": 1.1,
            "lines.markersize": 4,
            "legend.frameon": False,
            "pdf.fonttype": 3 if profile == "smoke" else 42,  # publishers want 42, which takes half a second more
        }
    )


def shades(architecture: str, n: int) -> list[ColorType]:
    """n shades of an architecture's colour, light to dark, for an ordered quantity such as the learning rate."""
    colour = np.array(to_rgb(COLOURS[architecture]))
    anchors = [0.65 + 0.35 * colour, colour, 0.35 * colour]
    if colour.max() < 0.3:  # nothing is darker
        anchors = [0.8 + 0.2 * colour, 0.5 + 0.5 * colour, colour]
    ramp = LinearSegmentedColormap.from_list(architecture, anchors)
    return [ramp(x) for x in np.linspace(0, 1, n)] if n > 1 else [to_rgb(COLOURS[architecture]) for _ in range(n)]


def save(figure: Figure, path: Path, stamp: dict[str, Any], printed: str) -> Path:
    """PNG and PDF with ``stamp`` in their metadata and in a JSON beside them, all three or none; ``printed``, the
    profile say, stands on the figure. The stamp gets ``alt``, what the figure shows in words."""
    stamp = {**stamp, "alt": described(figure)}
    figure.supxlabel(printed, x=0.995, ha="right", fontsize=6, color="#666666")
    text = json.dumps(stamp, sort_keys=True, default=str)
    with files.replacing_together(*(path.with_suffix(kind) for kind in (".json", ".png", ".pdf"))) as (note, png, pdf):
        note.write_text(json.dumps(json.loads(text), indent=1) + "\n", encoding="utf-8")
        figure.savefig(png, format="png", metadata={"Description": text})
        figure.set_layout_engine("none")  # what stands where has been found
        figure.savefig(pdf, format="pdf", metadata={"Subject": text})
    return path.with_suffix(".png")


def rate(lr: float) -> str:
    """A learning rate, or a budget, for an axis: 3.2e-2, 1e11."""
    mantissa, exponent = f"{lr:.2e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def row_of_panels(
    titles: Iterable[Any], height: float, xlabel: str = "", ylabel: str = "", **layout: Any
) -> tuple[Figure, Any]:
    """A figure as wide as a page with a row of panels, one a title; ``ylabel`` stands at the first. layout: of
    ``plt.subplots``."""
    titles = list(titles)
    figure, axes = plt.subplots(1, len(titles), figsize=(PAGE, height), squeeze=False, **layout)
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set(title=title, xlabel=xlabel)
    axes[0, 0].set_ylabel(ylabel)
    return figure, axes[0]


def filled_where(
    axis: Axes,
    x: pd.Series,
    y: pd.Series,
    filled: pd.Series,
    marker: str,
    colour: ColorType,
    hollow: str = "white",
    **look: Any,
) -> None:
    """Markers, those in the colour ``hollow`` where ``filled`` is False."""
    for which, face in ((True, colour), (False, hollow)):
        at = (filled == which).to_numpy()
        axis.plot(x[at], y[at], marker, color=colour, mfc=face, **look)


def doublings_axis(
    axis: Axes, values: Iterable[float], label: str = "", words: Callable[[float], str] = "{:g}".format, **look: Any
) -> None:
    """A log-2 x axis, with a tick at each of the values."""
    axis.set_xscale("log", base=2)
    ticks = sorted(set(values))
    axis.set_xticks(ticks, [words(tick) for tick in ticks], **look)
    axis.minorticks_off()
    axis.set_xlabel(label)


def count_axis(axis: Axes, label: str) -> None:
    """A log x axis of what is drawn already, counts: ticked 1, 2, 5, or at four round numbers where hardly one of these
    is in sight, and labelled 20 k, 1 M; aslant where four panels or more stand side by side, or where there is no room
    for the words between 1 and 2."""
    axis.set_xscale("log")
    low, high = axis.get_xlim()
    in_sight = sum(low <= x * 10.0**k <= high for k in range(-3, 19) for x in (1, 2, 5))
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if in_sight > 1 else MaxNLocator(4))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axis.minorticks_off()
    if panels_beside(axis) > 3 or np.log(2) / np.log(high / low) * _inches(axis) < COUNT:
        axis.tick_params(axis="x", rotation=45)
    axis.set_xlabel(label)


def _inches(axis: Axes) -> float:
    """About how wide a panel is."""
    return 0.8 * cast(Figure, axis.get_figure(root=True)).get_figwidth() / panels_beside(axis)


def panels_beside(axis: Axes) -> int:
    """How many panels stand side by side, this one included."""
    place = axis.get_subplotspec()
    return place.get_gridspec().ncols if place else 1


def few_decades(axis: Axes) -> None:
    """A log y axis that spans little: ticked at 1, 2 and 5 and labelled in full, counts as 20 k."""
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value) if value >= 1000 else f"{value:g}"))
    axis.yaxis.set_minor_locator(NullLocator())


def legend_above(figure: Figure, axis: Axes) -> None:
    """One legend for all panels, off the data: the lines of one of them, each name once, in one row."""
    handles, labels = axis.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    figure.legend(named.values(), named.keys(), loc="outside upper center", ncols=len(named))


def laid_out(grid: sns.FacetGrid, height: float, titles: str = "{col_name}", ncols: int = 0) -> Figure:
    """What seaborn drew, as wide as a page, its legend above all panels, in one row or ``ncols`` columns."""
    grid.set_titles(titles)
    grid.figure.set_size_inches(PAGE, height)
    grid.figure.set_layout_engine("constrained")
    if grid.legend is not None:
        sns.move_legend(grid, "outside upper center", ncols=ncols or len(grid.legend.texts), title=None)
    return grid.figure


def isoflop_curve(
    axis: Axes,
    cell: pd.DataFrame,
    best: pd.DataFrame,
    colour: ColorType,
    marker: str,
    style: str = "-",
    label: str | None = None,
) -> None:
    """The runs of one budget and recurrence, the parabola through them in log N, which three sizes determine, and an
    open star at its minimum ``best``, which hides no run."""
    axis.plot(cell["N"], cell["loss"], marker, color=colour, ms=3.5, label=label)
    if cell["N"].nunique() >= 3:
        parabola(axis, cell["N"], cell["loss"], color=colour, ls=style)
    axis.plot(best["N"], best["loss"], "*", color=colour, ms=8, mfc="none", mew=0.8)


def parabola(axis: Axes, x: pd.Series, loss: pd.Series, **look: Any) -> None:
    """The parabola of the loss in log x, between the least x and the largest."""
    curve = np.polynomial.Polynomial.fit(np.log(x), loss, 2)
    over = np.geomspace(x.min(), x.max(), 60)
    axis.plot(over, curve(np.log(over)), lw=0.9, **look)


def budget_axis(axis: Axes, budgets: Sequence[float]) -> None:
    """A log axis of training FLOPs, with a tick at each budget; aslant where two of them stand too close for words."""
    axis.set_xscale("log")
    axis.set_xticks(budgets, [rate(budget) for budget in budgets])
    at = np.sort(np.log(budgets))
    across = float(np.diff(np.log(axis.get_xlim()))[0])  # what is drawn may reach beyond the budgets
    if len(at) > 1 and np.diff(at).min() / across * _inches(axis) < BUDGET:
        axis.tick_params(axis="x", rotation=45)
    axis.minorticks_off()
    axis.set_xlabel("budget (FLOPs)")


def short(value: float) -> str:
    """A count in short words: 20 k, 1.027 G."""
    units = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
    return next((f"{value / size:.4g} {unit}" for size, unit in units if value >= size), f"{value:.0f}")


# ---- what a figure shows, in words, for those who do not see it: from its titles, axes and legends, not its name -----

MANY = 8  # of a longer list the first ones are read out, and its length
SIGNS = {"times": "×", "cdot": "·", "sqrt": "√", "leq": "≤", "geq": "≥", "sim": "~", "to": "→", "infty": "∞"}
GREEK = {unicodedata.name(letter).split()[-1].lower(): letter for letter in "αβγδεζηθικμνξοπρστυφχψω"}
SIGNS |= GREEK | {name.capitalize(): letter.upper() for name, letter in GREEK.items()} | {"lambda": "λ", "Lambda": "Λ"}


def described(figure: Figure) -> str:
    """What is drawn against what, in which panels; what the legends name; what a colour bar says. A picture without
    axes is the words in it."""
    bars = [axis for axis in figure.axes if axis.get_label() == "<colorbar>"]
    panels = [axis for axis in figure.axes if axis not in bars and axis.get_visible() and axis.has_data()]
    texts = [text.get_text() for panel in panels if not panel.axison for text in panel.texts]
    up = _said([figure.get_supylabel(), *(_axis(panel.yaxis) for panel in panels)])
    across = _said(_axis(panel.xaxis) for panel in panels)  # below them stands the profile
    axes = " against ".join(filter(None, [up, across])) or _said(texts)
    titles = [title for panel in panels if (title := plain(panel.get_title()))]
    several = f"{len(panels)} panels of {axes}" if len(panels) > 1 and axes else axes
    parts = [": ".join(filter(None, [several, listed(titles)]))]
    for legend in [*figure.legends, *filter(None, (panel.get_legend() for panel in panels))]:
        entries = _said(text.get_text() for text in legend.get_texts())
        parts.append(": ".join(filter(None, [_said(["drawn", legend.get_title().get_text()]), entries])))
    colours = _said(bar.get_ylabel() or bar.get_xlabel() for bar in bars)
    parts.append(f"colour: {colours}" if colours else "")
    # words begin with a capital, symbols stay what they are
    sentences = [re.sub("^[a-z](?=[a-z])", lambda first: first[0].upper(), part) for part in dict.fromkeys(parts)]
    return " ".join(f"{sentence}." for sentence in sentences if sentence)


def _axis(axis: Axis) -> str:
    """The label of an axis, and what its ticks name."""
    label, names = axis.get_label_text(), [text.get_text() for text in axis.get_ticklabels()]
    if any(re.search("[A-Za-z]{2}", plain(name)) for name in names):
        return f"{label}{' of ' * bool(label)}{_said(names)}"
    return label + " (log scale)" * bool(label and axis.get_scale() == "log")


def _said(texts: Iterable[str]) -> str:
    """Each of them once."""
    return listed(dict.fromkeys(filter(None, map(plain, texts))))


def listed(names: Iterable[str]) -> str:
    """Names with commas, or what parts them where a name has one; of many the first ones."""
    every = list(names)
    comma = "; " if any("," in name for name in every) else ", "
    if len(every) <= MANY:
        return comma.join(every)
    return f"{comma.join(every[: MANY - 1])}{comma}and {len(every) - MANY + 1} more"


def plain(text: str) -> str:
    """Mathematics as a reader says it: letters in the place of commands, none for a font, without dollars, and round
    brackets in the place of the braces of an index that is a sum."""
    text = re.sub(r"\\bar\s*(?:\{([^{}]*)\}|(\w))", r"\1\2-bar", text)
    text = re.sub(r"([_^])\{(\w+[-+]\w+)\}", r"\1(\2)", text)
    text = re.sub(
        r"\\(?:var)?([A-Za-z]+)\s*",
        lambda command: SIGNS.get(command[1], ""),
        text.replace("\\|", "‖").replace("\\,", " "),
    )
    return " ".join(re.sub(r"\s*([=~≤≥])\s*", r" \1 ", re.sub(r"[${}\\]", "", text)).split())
