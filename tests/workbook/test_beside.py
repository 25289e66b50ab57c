"""A second folder of outputs is shown beside the first, or refused in a line before anything is written."""

import re

import matplotlib.pyplot as plt
import pytest

from lib.workbook import beside, report, stale
from tests.lines import everything, one_line
from tests.pages import loaded
from tests.workbooks import a_notebook


@pytest.fixture
def both(tmp_path):
    """Outputs of a notebook, and in a folder there some at another rate, and a figure of another notebook."""
    folders = {tmp_path / "outputs": [0.5, 0.25], tmp_path / "outputs" / "mine": [0.125]}
    for n, (folder, lrs) in enumerate(folders.items()):
        nb = a_notebook("instability", folder, lrs=lrs)
        nb.claim("001-base-state-explodes", [n + 1.0, n + 1.1, n + 1.2], [1, 2, 3], "decades")
        nb.save(plt.figure(figsize=(n + 1, 1)), "instability_rates")
    a_notebook("generate", folder).save(plt.figure(), "generate")
    return [*folders]


def test_figures_verdicts_and_parameters_stand_side_by_side(both):
    assert beside.write(*both, "cpu") == [] and report.build(both[0], "cpu") == []
    path = both[0] / "report" / "beside.html"
    page = path.read_text()
    names = ("beside/generate.png", "figures/cpu/instability_rates.png", "beside/instability_rates.png")
    assert re.findall('<img .*?src="(.*?)"', page) == [*names] and page.count("is not here") == 1
    assert all((path.parent / address).is_file() for address in loaded(page))
    _, first, second = [(path.parent / name).read_bytes() for name in names]
    assert first != second == (both[1] / "figures" / "cpu" / "instability_rates.png").read_bytes()
    told = [re.findall("<td>(.*?)</td>", row) for row in re.findall("<tr>(.*?)</tr>", page, re.S) if "<td>" in row]
    assert told[0] == ["[0.5, 0.25]", "[0.125]"] and len(told) == 2
    assert "1.1 [" in told[1][0] and "2.1 [" in told[1][1]
    assert 'href="beside.html"' in (path.parent / "index.html").read_text()
    stamp = both[1] / "figures" / "cpu" / "generate.json"  # a notebook of somebody's own has its name for a title
    stamp.write_text(stamp.read_text().replace('"notebook": "generate"', '"notebook": "my_own"'))
    assert beside.write(*both, "cpu") == [] and "my_own" in path.read_text()
    assert stale.site(both[0], "cpu") == [] and (both[0] / "site" / "beside" / "generate.png").exists()


@pytest.mark.parametrize(("name", "profile"), [("nowhere", "cpu"), ("outputs/mine", "desk"), ("outputs/report", "cpu")])
def test_a_folder_without_such_outputs_is_one_line_before_anything_is_written(both, monkeypatch, name, profile):
    monkeypatch.chdir(both[0].parent)
    before = everything(both[0])
    with one_line(name, f"at {profile}", "papermill", starts="BESIDE: "):
        beside.write(both[0], both[0].parent / name, profile)
    with pytest.raises(SystemExit):
        stale.write_report(profile, other=name)
    assert everything(both[0]) == before
