"""Losses on the fixed held-out rows, always at a fixed number of loops."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lib.base.errors import InputError
from lib.model.looped import LoopedLM, target_losses, token_losses

EVAL_TOKENS = 1 << 14  # tokens in one forward pass


@torch.no_grad()
def validate(
    model: LoopedLM, batch: np.ndarray, token_bytes: np.ndarray, loops: int | None = None, added_bytes: int = 0
) -> dict[str, Any]:
    """val_loss (nats per token), val_perplexity and val_bpb (bits per byte of text) on rows [B, S + 1].

    Bits per byte leaves out targets that are no text (BOS), as nanochat does (003), and ``added_bytes`` of its
    tokens that the text does not have (``rows.added_spaces``). ``loops`` None is mean_loops.
    """
    sums = np.zeros(2)  # nats of all targets, nats of text
    with model.evaluating():
        for part in _parts(model, batch):
            losses = token_losses(model, part[:, :-1], part[:, 1:], loops).double().cpu().numpy()
            sums += losses.sum(), losses[token_bytes[part[:, 1:].cpu().numpy()] > 0].sum()
    targets = batch[:, 1:]
    loss = sums[0] / targets.size
    return {
        "val_loss": float(loss),
        "val_perplexity": math.exp(min(loss, 700.0)) if loss == loss else math.nan,
        "val_bpb": float(sums[1] / (math.log(2) * (token_bytes[targets].sum() - added_bytes))),
    }


@torch.no_grad()
def depth_sweep(model: LoopedLM, batch: np.ndarray, depths: Sequence[int], state_seed: int = 0) -> dict[int, float]:
    """T -> validation loss in nats per token after T loops, on rows [B, S + 1], in one pass over the loops."""
    sums = dict.fromkeys(sorted(set(depths)), 0.0)
    with model.evaluating():
        for part in _parts(model, batch):
            for T, _, hidden in model.hidden_at(part[:, :-1], depths, state_seed):
                sums[T] += float(target_losses(model, hidden, part[:, 1:]).double().sum())
    return {T: total / batch[:, 1:].size for T, total in sums.items()}


def _parts(model: LoopedLM, batch: np.ndarray) -> tuple[Tensor, ...]:
    """The rows on the model's device, as many at once as a forward pass takes."""
    rows = torch.as_tensor(batch, device=model.embed.weight.device)
    return rows.split(max(1, EVAL_TOKENS // (batch.shape[1] - 1)))


def check_tokenizer(tokenizer: str, size: int, vocab_size: int) -> None:
    """Raises InputError where a checkpoint of ``vocab_size`` was not trained on the tokens of a tokenizer with ``size``
    entries: it has fewer, or other than the bytes."""
    if size > vocab_size or (tokenizer == "bytes" and size != vocab_size):
        raise InputError(
            f"tokenizer: {tokenizer} has {size} entries, the checkpoint {vocab_size}, give the tokenizer.json it was "
            "trained with"
        )
