"""Sliders draw anew for somebody who can move them, and bad input among them is one line."""

import matplotlib.pyplot as plt
import pytest

from lib.base.errors import InputError
from lib.workbook import widgets

pytestmark = pytest.mark.usefixtures("style")


TWO_SLIDERS = """
import matplotlib.pyplot as plt, pathlib
from tests.workbooks import a_notebook

def draw(height, loops):
    figure, axis = plt.subplots()
    axis.bar([0], [height * loops])
    return figure

nb = a_notebook("instability", pathlib.Path(FOLDER), "smoke")
nb.slide(draw, "bar", height=(0.5, 0.0, 1.0, 0.1), loops=(4, 1, 8, 1))
"""
WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.mark.parametrize("somebody", [True, False])
def test_sliders_are_for_somebody_who_can_move_them(kernel, somebody, tmp_path):
    """As JupyterLab sends a cell, and as papermill and nbconvert do."""
    seen = []
    code = TWO_SLIDERS.replace("FOLDER", repr(str(tmp_path)))
    done = kernel.execute_interactive(code, timeout=240, allow_stdin=somebody, output_hook=seen.append)
    assert done["content"]["status"] == "ok", done["content"]
    *for_widgets, shown = [message["content"]["data"] for message in seen if message["msg_type"] == "display_data"]
    assert (WIDGET if somebody else "image/png") in shown and bool(for_widgets) == somebody
    assert (tmp_path / "figures" / "smoke" / "bar.png").exists()


def test_moving_a_slider_draws_anew_and_bad_input_is_one_line(capsys):
    drawn, others = [], plt.get_fignums()

    def draw(height, loops):
        if loops == 8:
            raise InputError("loops: 8 are too many, use 7 at most")
        drawn.append((height, loops))
        return plt.figure()

    height, loops, output = widgets.sliders(draw, height=(0.5, 0.0, 1.0, 0.1), loops=(4, 1, 8, 1)).children
    assert (height.description, height.max, loops.min, loops.max) == ("height", 1.0, 1, 8)
    height.value = 0.7
    loops.value = 2
    assert drawn == [(0.5, 4), (0.7, 4), (0.7, 2)] and plt.get_fignums() == others
    loops.value = 8
    shown = capsys.readouterr().out + "".join(part.get("text", "") for part in output.outputs)
    assert "loops: 8 are too many, use 7 at most" in shown


def test_nobody_is_there_outside_a_kernel():
    assert not widgets.somebody_is_there()
