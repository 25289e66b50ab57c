"""What a figure shows, in words, for those who do not see it: taken from its titles, axes and legends, not its name."""

import re
import unicodedata
from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

MANY = 8  # of a longer list the first ones are read out, and its length
SIGNS = {"times": "×", "cdot": "·", "sqrt": "√", "leq": "≤", "geq": "≥", "sim": "~", "to": "→", "infty": "∞"}
SIGNS |= {"lambda": "λ"}  # which unicode calls lamda


def described(figure: Figure) -> str:
    """The panels by what their axes show, with their titles; what the legends name; what a colour bar says. A picture
    without axes is the words in it."""
    bars = [axis for axis in figure.axes if axis.get_label() == "<colorbar>"]
    panels = [axis for axis in figure.axes if axis not in bars and axis.get_visible() and axis.has_data()]
    titles: dict[str, list[str]] = {}
    for panel in panels:
        titles.setdefault(_axes(panel, panels, figure), []).append(plain(panel.get_title()))
    parts = [_panels(shown, [*filter(None, named)], len(named)) for shown, named in titles.items()]
    legends = [*figure.legends, *filter(None, (panel.get_legend() for panel in panels))]
    drawn: dict[str, dict[str, None]] = {}  # the title of a legend -> what it names
    for legend in legends:
        entries = dict.fromkeys(plain(text.get_text()) for text in legend.get_texts())
        drawn.setdefault(plain(legend.get_title().get_text()), {}).update(entries)
    colours = dict.fromkeys(filter(None, (plain(bar.get_ylabel() or bar.get_xlabel()) for bar in bars)))
    parts += [f"drawn{', ' * bool(title)}{title}: {listed(entries)}" for title, entries in drawn.items() if entries]
    parts += [f"colour: {listed(colours)}"] if colours else []
    return " ".join(f"{_capital(part)}." for part in parts if part)


def _capital(part: str) -> str:
    """Words begin with a capital, symbols stay what they are."""
    return part[0].upper() + part[1:] if re.match("[a-z]{2}", part) else part


def _panels(shown: str, titles: list[str], count: int) -> str:
    """The panels whose axes show the same."""
    if count == 1:
        return ": ".join(filter(None, [*titles, shown]))
    return f"{count} panels{' of ' * bool(shown)}{shown}{': ' * bool(titles)}{listed(titles)}"


def _axes(panel: Axes, panels: Sequence[Axes], figure: Figure) -> str:
    """What is drawn against what."""
    if not panel.axison:
        return listed(dict.fromkeys(filter(None, (plain(text.get_text()) for text in panel.texts))))
    up, across = (_axis(panel, panels, which, figure) for which in ("y", "x"))
    return f"{up} against {across}" if up and across else up or across


def _axis(panel: Axes, panels: Sequence[Axes], which: str, figure: Figure) -> str:
    """The label of an axis, or that of the panels in its row or column, which share one; and what its ticks name."""
    beside = [panel, *(other for other in panels if _shares(panel, other, which))]
    labels = [plain(getattr(other, f"get_{which}label")()) for other in beside]
    overall = figure.get_supylabel() if which == "y" else ""  # below the x axes stands the profile
    label = next(filter(None, labels), plain(overall))
    axis = getattr(panel, f"{which}axis")
    names = [*filter(None, (plain(tick.get_text()) for tick in axis.get_ticklabels()))]
    if any(re.search("[A-Za-z]{2}", name) for name in names):
        return f"{label}{' of ' * bool(label)}{listed(names)}"
    return label + " (log scale)" * bool(label and axis.get_scale() == "log")


def _shares(panel: Axes, other: Axes, which: str) -> bool:
    here, there = panel.get_subplotspec(), other.get_subplotspec()
    if other is panel or here is None or there is None or here.get_gridspec() is not there.get_gridspec():
        return False
    return here.rowspan == there.rowspan if which == "y" else here.colspan == there.colspan


def listed(names: Iterable[str]) -> str:
    """Names with commas, or what parts them where a name has one; of many the first ones."""
    every = list(names)
    comma = "; " if any("," in name for name in every) else ", "
    if len(every) <= MANY:
        return comma.join(every)
    return f"{comma.join(every[: MANY - 1])}{comma}and {len(every) - MANY + 1} more"


def plain(text: str) -> str:
    """Mathematics as a reader says it: letters in the place of commands, without dollars, and round brackets in the
    place of the braces of an index that is a sum."""
    text = re.sub(r"\\bar\s*(?:\{([^{}]*)\}|(\w))", r"\1\2-bar", text)
    text = re.sub(r"([_^])\{(\w+[-+]\w+)\}", r"\1(\2)", text)
    text = re.sub(r"\\(?:var)?([A-Za-z]+)\s*", _sign, text.replace("\\|", "‖").replace("\\,", " "))
    text = re.sub(r"\s*([=~≤≥])\s*", r" \1 ", re.sub(r"[${}\\]", "", text))
    return " ".join(text.split())


def _sign(command: re.Match[str]) -> str:
    name = command[1]
    size = "CAPITAL" if name[0].isupper() else "SMALL"
    try:
        return SIGNS.get(name) or unicodedata.lookup(f"GREEK {size} LETTER {name.upper()}")
    except KeyError:
        return ""  # of the look: a font
