"""The figures of 000's own runs draw each gap, misfit and interval where it is, beside what the paper prints."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from lib.figures.style import COLOURS
from lib.fit.fits import fit_joint
from lib.papers.isodepth import figures_published, published, readings

pytestmark = pytest.mark.usefixtures("style")


@pytest.fixture(scope="module")
def grid():
    return published.sets(published.runs())["all"]


def test_gaps_stand_in_the_papers_bands(grid):
    gaps = readings.frontier_gaps(readings.optima(grid))
    figure = figures_published.gaps({"by the parabolas": gaps, "again": gaps}, published.BANDS)
    assert [axis.get_title() for axis in figure.axes] == ["by the parabolas", "again"]
    for axis in figure.axes:
        lines = {line.get_label(): line for line in axis.lines}
        for r, (low, high) in published.BANDS.items():
            line = lines[f"r = {r}"]
            assert line.get_ydata().tolist() == gaps[r].tolist() and line.get_xdata().tolist() == [*gaps.index]
            bands = [patch for patch in axis.patches if to_hex(patch.get_facecolor()) == to_hex(line.get_color())]
            assert [(band.get_y(), band.get_y() + band.get_height()) for band in bands] == [pytest.approx((low, high))]


def test_the_misfit_of_every_run_is_drawn_at_its_size_relative_to_the_optimum(grid):
    law, optima = fit_joint(*readings.joint_arrays(grid)), readings.optima(grid)
    figure = figures_published.smooth_misfit(grid, law, optima, 0.0024)
    assert [axis.get_title() for axis in figure.axes] == [f"r = {r}" for r in (1, 2, 4, 8)]
    drawn = [line for axis in figure.axes for line in axis.lines if line.get_marker() != "None"]
    off = np.concatenate([line.get_ydata() for line in drawn])
    assert len(drawn) == 24 and sorted(off) == pytest.approx(sorted(readings.misfit(grid, law)))
    assert all(line.get_xdata().min() < 1 < line.get_xdata().max() for line in drawn)
    (band,) = figure.axes[0].patches
    assert band.get_height() == pytest.approx(2 * 1.96 * 0.0024)


def test_every_interval_and_part_has_a_row(grid):
    intervals, parts = published.intervals_of_phi(grid, 3, 0), published.phi_of_parts(grid)
    (axis,) = figures_published.how_sure(intervals, parts, (0.459, 0.41, 0.53)).axes
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert names == [*(f"{name}, 95 %" for name in intervals.index), *parts.index]
    (bars,) = axis.collections
    ends = [segment[:, 0].tolist() for segment in bars.get_segments()]
    assert ends == [pytest.approx(row) for row in intervals[["low", "high"]].to_numpy().tolist()]
    line, _, diamonds = axis.lines
    assert line.get_xdata()[0] == 0.459 and to_hex(line.get_color()) == COLOURS["isodepth"].lower()
    assert diamonds.get_xdata().tolist() == parts.tolist() and diamonds.get_ydata()[0] == len(intervals)
