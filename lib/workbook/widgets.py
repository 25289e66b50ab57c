"""A figure with sliders, to be moved by hand.

Widgets are for JupyterLab, where a running kernel answers them. Run by make, a notebook has figures alone: in an
executed copy, or its HTML, a widget would be an empty box. ``somebody_is_there`` tells the two apart.
"""

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from lib.base.errors import InputError
from lib.figures.style import SCREEN_DPI

if TYPE_CHECKING:
    import ipywidgets
    from IPython.display import Image


def somebody_is_there() -> bool:
    """Whether the cell that runs was sent by a front end that may be asked for input, as JupyterLab and VS Code may.

    Papermill and nbconvert say of every cell that nobody would answer; outside a kernel there is nobody."""
    from IPython import get_ipython

    kernel = getattr(get_ipython(), "kernel", None)
    return kernel is not None and bool(kernel.get_parent()["content"].get("allow_stdin"))


def shown(figure: Figure) -> "Image":
    """A figure as the picture that a notebook shows; it is closed, or the end of a cell would show it once more."""
    from IPython.display import Image

    png = io.BytesIO()
    figure.savefig(png, format="png")
    plt.close(figure)
    return Image(png.getvalue(), width=round(figure.get_figwidth() * SCREEN_DPI))


def sliders(draw: Callable[..., Figure], **parts: tuple[Any, ...]) -> "ipywidgets.VBox":
    """Widgets: a slider for each argument of ``draw``, and the figure that it returns, drawn anew when one is moved.

    parts: name -> (where the slider begins, its least and greatest value, its step), of whole numbers or of floats. An
    InputError of ``draw`` is printed in the figure's place."""
    import ipywidgets as widgets
    from IPython.display import display

    kinds = {int: widgets.IntSlider, float: widgets.FloatSlider}
    made = {
        name: kinds[type(step)](at, min=low, max=high, step=step, description=name, continuous_update=False)
        for name, (at, low, high, step) in parts.items()
    }

    def show(**values: Any) -> None:
        try:
            display(shown(draw(**values)))
        except InputError as error:
            print(error)

    return widgets.VBox([*made.values(), widgets.interactive_output(show, made)])
