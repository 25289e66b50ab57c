"""Trying a trained model by hand: a prompt, a slider for the loops and one for the threshold, and a picture of which
token left at which loop."""

import functools

import matplotlib.pyplot as plt

from lib import plots_sparse
from lib.data import token_store
from lib.decode import Exit, Sampling, generate
from lib.errors import InputError
from lib.store import RunResult, RunStore
from lib.sweep import WEIGHTS, run_model


def choices(store: RunStore) -> dict[str, str]:
    """What a menu shows -> key, for every finished run with weights, the lowest loss first."""
    return {_title(run): run.key for run in sorted(_playable(store), key=lambda run: run.summary["val_loss"])}


def _playable(store: RunStore) -> list[RunResult]:
    return [run for run in store.runs() if run.status == "finished" and (run.path / WEIGHTS).exists()]


def _title(run: RunResult) -> str:
    cfg = run.config.model
    layers = "+".join(str(n) for n in (cfg.prelude, cfg.recur, cfg.coda) if n)
    loops = f" x {cfg.mean_loops}" if cfg.recur else ""
    kind = f"{cfg.experts} experts, " * (cfg.experts > 1)
    return f"{run.summary['val_loss']:.3f} nats: d {cfg.width}, {kind}{layers} layers{loops}, {run.key[:8]}"


class Player:
    """A run of the store, ready to answer. Raises InputError for a key that the store has no weights of."""

    def __init__(self, store: RunStore, key: str):
        found = [run for run in _playable(store) if run.key.startswith(key)]
        if not key or len(found) != 1:
            raise InputError(
                f"run: {key!r} names {len(found)} finished runs with weights in {store.path}, use a whole key, from "
                "lib.playground.choices(store)"
            )
        run = found[0]
        self.model = run_model(run.config, store)
        self.tokenizer = token_store(run.config.data, store.tokens).tokenizer

    def answer(self, prompt: str, new_tokens: int, leave: Exit, sampling: Sampling):
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
        figure = plots_sparse.left_at(pieces, loops, leave.loops or self.model.cfg.mean_loops, len(tokens))
        plt.close(figure)  # or the end of a cell would show it once more
        return self.tokenizer.decode(found.tokens), figure


def controls(store: RunStore, key: str, prompt: str, new_tokens: int, leave: Exit, sampling: Sampling):
    """The widgets: a menu of the store's runs, the prompt, sliders for loops, threshold and temperature. They begin
    where the arguments are, and answer when something is moved."""
    import ipywidgets as widgets
    from IPython.display import display

    menu, player = choices(store), functools.cache(functools.partial(Player, store))
    own = next(title for title, found in menu.items() if found.startswith(key))
    loops = leave.loops or player(menu[own]).model.cfg.mean_loops
    late = {"continuous_update": False}
    hottest, most = max(2, sampling.temperature), max(4, leave.threshold)
    parts = {
        "run": widgets.Dropdown(options=list(menu), value=own, description="run"),
        "prompt": widgets.Text(prompt, description="prompt", **late),
        "loops": widgets.IntSlider(loops, 1, max(16, loops), description="loops", **late),
        "threshold": widgets.FloatSlider(leave.threshold, min=0, max=most, step=0.05, description="threshold", **late),
        "temperature": widgets.FloatSlider(
            sampling.temperature, min=0, max=hottest, step=0.1, description="temperature", **late
        ),
    }

    def show(run: str, prompt: str, loops: int, threshold: float, temperature: float) -> None:
        try:
            moved = Exit(threshold, leave.criterion, loops, leave.kept_loops)
            drawn = Sampling(temperature, sampling.top_k, sampling.top_p, sampling.seed)
            text, figure = player(menu[run]).answer(prompt, new_tokens, moved, drawn)
        except InputError as error:
            print(error)
            return
        print(prompt + text)
        display(figure)

    return widgets.VBox([*parts.values(), widgets.interactive_output(show, parts)])
