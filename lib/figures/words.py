"""What a figure shows, in words, for those who do not see it: taken from its titles, axes and legends, not its name."""

import re
import unicodedata
from collections.abc import Iterable

from matplotlib.axis import Axis
from matplotlib.figure import Figure

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
    text = re.sub(r"\s*([=~≤≥])\s*", r" \1 ", re.sub(r"[${}\\]", "", text))
    return " ".join(text.split())
