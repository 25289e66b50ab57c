"""Losses on the fixed held-out rows, always at a fixed number of loops, and what is followed of a run while it trains:
a column for each quantity, a row for each step that is logged."""

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lib.base.distributed import Ranks
from lib.base.errors import InputError
from lib.config import RunConfig
from lib.data.rows import TokenStore, added_spaces
from lib.model.looped import LoopedLM, target_losses, token_losses
from lib.model.probes import increment_cosines, looped_choices, mean_cosines, spectra, state_trace, stream
from lib.model.routing import divergence_by_pair
from lib.store.result import LOGGED

EVAL_TOKENS = 1 << 14  # tokens in one forward pass
SPECTRA_LOGGED = 100  # steps, the same as LOGGED of spectral radii and norms, which take longer to compute
TRACED_LOOPS, TRACED_ROWS = 24, 32  # a trace follows so many validation rows through at least so many loops


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
    return torch.as_tensor(batch, device=model.embed.weight.device).split(max(1, EVAL_TOKENS // (batch.shape[1] - 1)))


def check_tokenizer(tokenizer: str, size: int, vocab_size: int) -> None:
    """Raises InputError where a checkpoint of ``vocab_size`` was not trained on the tokens of a tokenizer with ``size``
    entries: it has fewer, or other than the bytes."""
    if size > vocab_size or (tokenizer == "bytes" and size != vocab_size):
        raise InputError(
            f"tokenizer: {tokenizer} has {size} entries, the checkpoint {vocab_size}, give the tokenizer.json it was "
            "trained with"
        )


# ---- while it trains -------------------------------------------------------------------------------------------------


def mean_of_passes(passes: list[dict[str, float]], ranks: Ranks) -> dict[str, float]:
    """The mean over the passes of a step, each over all its rows."""
    for values in passes:
        values["state_rms"] **= 2  # a mean of squares is what may be averaged
    table = ranks.mean(torch.tensor([list(values.values()) for values in passes], dtype=torch.float64))
    table[:, list(passes[0]).index("state_rms")].sqrt_()
    return dict(zip(passes[0], table.mean(0).tolist(), strict=True))


class Followed:
    """The metrics of one run so far."""

    def __init__(self, cfg: RunConfig, validation: np.ndarray, tokens: TokenStore, compiles: bool):
        self.cfg, self.validation, self.compiles = cfg, validation, compiles
        self.token_bytes, self.added_bytes = tokens.tokenizer.token_bytes, added_spaces(cfg.data, tokens)
        self.columns: dict[str, list[float]] = {}

    def log(self, model: LoopedLM, step: int, values: dict[str, float], last: bool) -> None:
        """A row for ``step``, where it is one that is logged; with a validation, spectra and a trace where they are
        due."""
        cfg = self.cfg.train
        validates = last or (cfg.eval_every and step % cfg.eval_every == 0)
        traces = cfg.trace_every and self.cfg.model.recur and (last or step % cfg.trace_every == 0)
        if not (validates or traces) and step % max(1, cfg.steps // LOGGED):
            return
        values = {"step": step, **values}
        if validates or traces or step == 1 or step % max(1, cfg.steps // SPECTRA_LOGGED) == 0:
            values |= spectra(model)
        # one pass is not worth a compilation of its own
        with torch.compiler.set_stance("force_eager") if self.compiles else contextlib.nullcontext():
            values |= self._validated(model) if validates else {}
            values |= self._traced(model) if traces else {}
        rows = len(self.columns.get("step", []))
        for name in {**self.columns, **values}:  # what is not measured now is nan
            self.columns.setdefault(name, [math.nan] * rows).append(values.get(name, math.nan))

    def _validated(self, model: LoopedLM) -> dict[str, float]:
        """The losses. Where routers loop, also ``routing none 1-2`` and so on: the share of tokens that keep none of
        their experts from loop 1 to loop 2, the mean over layers."""
        values = validate(model, self.validation, self.token_bytes, added_bytes=self.added_bytes)
        if self.cfg.model.experts > 1 and self.cfg.model.mean_loops > 1:
            pairs = divergence_by_pair(looped_choices(model, self._some(model)))
            values |= {f"routing {name}": share for name, share in pairs.items()}
        return values

    def _traced(self, model: LoopedLM) -> dict[str, float]:
        """``trace loop 1`` and so on: the state's norms on its way through the model. Where nothing is injected, also
        the mean cosines between the increments of loops: ``trace cosine`` of early pairs, ``trace last cosine``."""
        own = self.cfg.model.mean_loops
        loops = own if model.injection.per_loop else max(TRACED_LOOPS, own)
        trace = state_trace(model, self._some(model), loops)
        if self.cfg.model.injection == "none":
            trace["cosine"], trace["last cosine"] = mean_cosines(increment_cosines(stream(model, self._some(model))))
        return {f"trace {place}": value for place, value in trace.items()}

    def _some(self, model: LoopedLM) -> Tensor:
        """The rows that are traced, without their last targets."""
        return torch.as_tensor(self.validation[:TRACED_ROWS, :-1], device=model.embed.weight.device)
