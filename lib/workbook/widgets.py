"""Moving something by hand: a figure with sliders; and a trained model that answers a prompt, with a picture of which
token left at which loop.

Widgets are for JupyterLab, where a running kernel answers them. Run by make, a notebook has figures alone: in an
executed copy, or its HTML, a widget would be an empty box. ``somebody_is_there`` tells the two apart.
"""

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from lib.base.errors import InputError
from lib.data.rows import token_store
from lib.decode.generation import Sampling, generate
from lib.decode.inflight import Exit
from lib.figures import decoding
from lib.figures.style import SCREEN_DPI
from lib.store.runs import RunStore
from lib.sweep.finished import run_model

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


class Player:
    """A run of the store, ready to answer. Raises InputError for a key that the store has no weights of."""

    def __init__(self, store: RunStore, key: str):
        run = store.named(key)
        self.model = run_model(run.config, store)
        self.tokenizer = token_store(run.config.data, store.tokens).tokenizer

    def answer(self, prompt: str, new_tokens: int, leave: Exit, sampling: Sampling) -> tuple[str, Figure]:
        """(text, figure): what follows the prompt, up to the end of the model's context, and where each token left.

        Raises InputError for a prompt that is longer than the context."""
        tokens = [self.tokenizer.bos, *self.tokenizer.encode_batch([prompt])[0].tolist()]  # a document begins
        room = self.model.cfg.context - len(tokens) + 1
        if room < 1:
            raise InputError(
                f"prompt: has {len(tokens) - 1} tokens, this run reads {self.model.cfg.context - 1} at most"
            )
        stop = [self.tokenizer.bos]  # where the next document would begin
        found = generate(self.model, [tokens], min(new_tokens, room), leave, sampling, stop)[0]
        # a bar is a token that was read, and says how many loops it took; the last one of the answer is never read
        read = [*tokens, *found.tokens[:-1]]
        loops = [*found.prompt_loops, *found.loops[1:]]
        pieces = [self.tokenizer.decode([token]) for token in read]
        figure = decoding.left_at(pieces, loops, leave.loops or self.model.cfg.mean_loops, len(tokens))
        plt.close(figure)  # or the end of a cell would show it once more
        return self.tokenizer.decode(found.tokens), figure
