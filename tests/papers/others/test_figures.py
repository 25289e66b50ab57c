"""The figures of other groups' runs draw each phi, worth, saving and gap where it is."""

import numpy as np
import pandas as pd
import pytest

from lib.papers.others import figures, phi, runs

pytestmark = pytest.mark.usefixtures("style")


def table(rows):
    index = [f"{group}: x{k}" for k, (group, *_) in enumerate(rows)]
    return pd.DataFrame(rows, columns=["group", "phi", "low", "high"], index=index)


def ends(bars):
    return [segment[:, 1].tolist() for segment in bars.get_segments()]


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


def test_worth_and_shares_stand_with_their_bars():
    index = pd.MultiIndex.from_tuples([("2609.19107", 2), ("2609.19107", 3), ("000", 2)], names=["group", "r"])
    worth = pd.DataFrame({"worth": [2.0, 2.5, 1.3], "worth low": [1.8, 2.2, 1.2], "worth high": [2.1, 2.7, 1.5]}, index)
    share = phi.tied_share(runs.loops(), 0.002, 50, 0)
    left, right = figures.worth_and_share(worth, share, 0.459).axes
    lines = {line.get_label(): line for line in left.lines}
    assert lines["2609.19107"].get_ydata().tolist() == [2.0, 2.5] and lines["000"].get_xdata() == [2]
    assert ends(left.collections[0]) == [[1.8, 2.1], [2.2, 2.7]]
    assert lines["$r^{0.46}$"].get_ydata()[-1] == pytest.approx(8**0.459)
    drawn = {line.get_label(): line.get_ydata() for line in right.lines if line.get_label().endswith("passes")}
    assert [*drawn] == ["2 passes", "3 passes", "4 passes", "6 passes"]
    assert drawn["6 passes"].tolist() == share.xs(6, level="loops")["share"].tolist()
