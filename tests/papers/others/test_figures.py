"""The figures of other groups' runs draw each phi with its interval where it is."""

import numpy as np
import pandas as pd
import pytest

from lib.papers.others import figures

pytestmark = pytest.mark.usefixtures("style")


def table(rows):
    index = [f"{group}: x{k}" for k, (group, *_) in enumerate(rows)]
    return pd.DataFrame(rows, columns=["group", "phi", "low", "high"], index=index)


def test_every_phi_has_its_row_and_interval():
    own = table([("000", 0.46, 0.41, 0.53), ("2609.19107", 0.79, 0.66, 0.93), ("CART", 0.2, -3.0, 0.5)])
    panels = {"a": own, "b": own.iloc[:2], "c": own.iloc[1:], "d": own}
    figure = figures.forest(panels, (0.459, 0.41, 0.53))
    assert [axis.get_title() for axis in figure.axes] == [*panels]
    for axis, rows in zip(figure.axes, panels.values(), strict=True):
        assert [label.get_text() for label in axis.get_yticklabels()] == [name.split(": ")[1] for name in rows.index]
        marks = [line for line in axis.lines if line.get_marker() != "None" and len(line.get_xdata())]
        arrows = [(line.get_xdata()[0], line.get_ydata()[0]) for line in marks if line.get_marker() == "<"]
        assert arrows == [(figures.RANGE[0], y) for y, low in enumerate(rows["low"]) if low < figures.RANGE[0]]
        points = [line for line in marks if line.get_marker() != "<"]
        bars = [line for line in axis.lines if len(line.get_xdata()) == 2 and np.ptp(line.get_ydata()) == 0]
        assert [line.get_xdata()[0] for line in points] == rows["phi"].tolist()
        assert [tuple(line.get_xdata()) for line in bars] == [
            (max(low, figures.RANGE[0]), high) for low, high in zip(rows["low"], rows["high"], strict=True)
        ]
        assert [line.get_color() for line in points] == [figures.GROUPS[group][0] for group in rows["group"]]
