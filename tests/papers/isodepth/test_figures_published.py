"""The figures of 000's own runs draw each gap, misfit and interval where it is, beside what the paper prints."""

import pytest
from matplotlib.colors import to_hex

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
