"""make truth notices what has changed, and not the order in which sums were taken."""

import io
import json

import pytest
from matplotlib import pyplot

from tests import truth


def pdf(*heights: float) -> bytes:
    figure, axis = pyplot.subplots()
    axis.plot([1, 2, 3], heights)
    axis.set_ylim(0, 4)
    axis.set_title("losses")
    out = io.BytesIO()
    figure.savefig(out, format="pdf")
    pyplot.close(figure)
    return out.getvalue()


@pytest.mark.usefixtures("style")
def test_a_figure_is_known_by_what_it_draws():
    was = truth.drawn(pdf(1.0, 2.0, 3.0))
    assert truth.same_drawing(was, truth.drawn(pdf(1.0, 2.0, 3.0)))
    assert truth.same_drawing(was, truth.drawn(pdf(1.0, 2.0 * (1 + 1e-9), 3.0)))
    assert not truth.same_drawing(was, truth.drawn(pdf(1.0, 2.0 * (1 + 1e-5), 3.0)))
    assert not truth.same_drawing(was, truth.drawn(pdf(1.0, 3.0, 2.0)))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"mean": 0.25 * (1 + 1e-10)}, ""),
        ({"mean": 0.25 * (1 + 1e-8)}, "desk/findings/x/mean: was 0.25, is 0.2500000025"),
        ({"measured": {"": [1.0]}}, "desk/findings/x/measured/: was [1.0, 2.0], is [1.0]"),
    ],
)
def test_every_difference_of_a_finding_is_a_line(tmp_path, changed, said):
    finding = dict.fromkeys(truth.JUDGED) | {"mean": 0.25, "measured": {"": [1.0, 2.0]}}
    folders = [tmp_path / "was", tmp_path / "now"]
    for folder, one in zip(folders, [finding, finding | changed], strict=True):
        path = folder / "claims" / "desk" / "x.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(one | {"provenance": str(folder)}))
    was, now = (truth.made(folder, "desk") for folder in folders)
    assert list(truth.differences(was, now, "desk")) == [said][: bool(said)]
