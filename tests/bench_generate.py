"""make bench: times how a text is made, one at a time on one core. Exits non-zero where a bound is missed.

A trained model of eight loops continues texts that it has not seen: plainly, with exits in flight, in parallel as
Geiping et al. do, and speculatively. A Llama of as many layers continues them here and in Hugging Face's ``generate``.
Each text is made in every way before the next one is, in process time, so that others on the machine count little.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers.utils import logging

from lib.base.processes import one_thread_on_cpu
from lib.decode import pace
from lib.decode.generation import Ahead, Exit, generate
from lib.model.looped import LoopedLM, load_weights, token_losses
from lib.store import records
from lib.store.runs import RunStore
from lib.sweep.finished import trained_model
from lib.workbook import places
from tests.benches import Bounds, in_turn, over
from tests.models import llama

WIDTH, LOOPS = 128, 8
PROMPT, NEW, TEXTS, PEER_TEXTS = 32, 128, 24, 12
SAVED = 0.3  # of the loops, by exits in flight
PARALLEL = dict(ahead=Ahead(wave=16, exact=False), leave=Exit(0.03, "change", loops=32, kept_loops=1))
#: tokens/s over plain decoding's, and over Hugging Face's; beside the bound what is aimed at
LEAST = {"exits in flight": 0.6, "parallel": 0.9, "speculative": 1.1}
LEAST_OVER_PEER = 1.5
AIM, AIM_OVER_PEER = 3, 1
WORSE = 0.005  # nats of the model's own loss that a parallel text may have more than a plain one

#: continues a prompt
Way = Callable[[list[int]], list[int]]


def committed() -> tuple[LoopedLM, Tensor]:
    """The model of eight lti loops whose weights are kept, and its validation rows."""
    addendum = places.records("addendum")[0]
    with tempfile.TemporaryDirectory() as folder:
        store = RunStore(Path(folder) / "runs", [addendum])
        (run,) = (
            run
            for run in store.runs()
            if ((cfg := run.config.model).injection, cfg.width, cfg.mean_loops) == ("lti", WIDTH, LOOPS)
            and records.find_weights(addendum, run.key)
        )
        model, rows = trained_model(run.config, store)
    return model.cpu(), torch.as_tensor(rows)


def ours(model: LoopedLM, prompt: list[int], **options) -> list[int]:
    return generate(model, [prompt], NEW, **options)[0].tokens


def timed(ways: dict[str, Way], prompts: list[list[int]]) -> tuple[dict[str, list[float]], dict[str, list[list[int]]]]:
    """Seconds that each way took with each prompt, and the texts that it made."""
    texts: dict[str, list[list[int]]] = {name: [[] for _ in prompts] for name in ways}

    def make(name: str, i: int) -> None:
        texts[name][i] = ways[name](prompts[i])

    steps = {name: partial(make, name) for name in ways}
    seconds = in_turn(steps, len(prompts), time.process_time, warmup=1)
    for name, took in seconds.items():
        low, middle, high = np.quantile(NEW / np.array(took), (0.25, 0.5, 0.75))
        print(f"{name}: {middle:.0f} tokens/s, half of the texts from {low:.0f} to {high:.0f}", flush=True)
    return seconds, texts


def looped(bounds: Bounds, model: LoopedLM, rows: Tensor) -> None:
    """One model, in every way that it has."""
    prompts = rows[:: -(-len(rows) // TEXTS), :PROMPT].tolist()
    ways: dict[str, Way] = {
        "plain": partial(ours, model),
        "exits in flight": partial(ours, model, leave=pace.exit_saving(model, rows, SAVED)),
        "parallel": partial(ours, model, **PARALLEL),
        "speculative": partial(ours, model, ahead=Ahead()),
    }
    seconds, texts = timed(ways, prompts)

    def loss(name: str) -> np.ndarray:
        """The model's own of each text, in nats per token."""
        x = torch.tensor([prompt + text for prompt, text in zip(prompts, texts[name], strict=True)])
        return token_losses(model, x[:, :-1], x[:, 1:])[:, PROMPT - 1 :].mean(1).double().numpy()

    for name, least in LEAST.items():
        aim = f", aim {AIM}" if name == "speculative" else ""
        bounds.at_least(f"tokens/s over plain decoding's, {name}{aim}", over(seconds["plain"], seconds[name]), least)
    bounds.judge("the speculative texts are plain decoding's", texts["speculative"] == texts["plain"])
    rise = loss("parallel") - loss("plain")
    spread = rise.std(ddof=1) / len(rise) ** 0.5
    bounds.at_most(f"nats that a parallel text costs more, +-{spread:.2g} by text", rise.mean(), WORSE)


def peer(bounds: Bounds, rows: Tensor) -> None:
    """The same Llama in both, with as many layers as the looped model makes."""
    logging.disable_progress_bar()
    sizes = dict(vocab_size=256, hidden_size=WIDTH, intermediate_size=4 * WIDTH, max_position_embeddings=256)
    with tempfile.TemporaryDirectory() as folder:
        theirs = llama(folder, **sizes, num_hidden_layers=LOOPS + 2, eos_token_id=None, pad_token_id=0)
        model = load_weights(folder)

    def hugging_face(prompt: list[int]) -> list[int]:
        x = torch.tensor([prompt])
        text = theirs.generate(x, attention_mask=torch.ones_like(x), max_new_tokens=NEW, do_sample=False)
        return text[0, PROMPT:].tolist()

    prompts = rows[:: -(-len(rows) // PEER_TEXTS), :PROMPT].tolist()
    ways: dict[str, Way] = {"Hugging Face": hugging_face, "ours": partial(ours, model)}
    seconds, texts = timed(ways, prompts)
    rate = over(seconds["Hugging Face"], seconds["ours"])
    bounds.at_least(
        f"tokens/s over Hugging Face's, a Llama of {LOOPS + 2} layers, aim {AIM_OVER_PEER}", rate, LEAST_OVER_PEER
    )
    bounds.judge("its texts are Hugging Face's", texts["ours"] == texts["Hugging Face"])


def main() -> None:
    bounds = Bounds()
    model, rows = committed()
    with one_thread_on_cpu():
        looped(bounds, model, rows)
        peer(bounds, rows)
    bounds.end()


if __name__ == "__main__":
    main()
