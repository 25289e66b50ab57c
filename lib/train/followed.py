"""What is followed of a run while it trains: a column for each quantity, a row for each step that is logged."""

import contextlib
import math

import numpy as np
import torch

from lib.base.distributed import Ranks
from lib.config import RunConfig
from lib.data.rows import TokenStore, added_spaces
from lib.model.looped import LoopedLM
from lib.model.probes import increment_cosines, looped_choices, mean_cosines, spectra, state_trace, stream
from lib.model.routing import divergence_by_pair
from lib.store.result import LOGGED
from lib.train.evaluate import validate

SPECTRA_LOGGED = 100  # steps, the same as LOGGED of spectral radii and norms, which take longer to compute
TRACED_LOOPS, TRACED_ROWS = 24, 32  # a trace follows so many validation rows through at least so many loops


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
        # hyper-connections have no more loops than they are trained with
        loops = own if self.cfg.model.injection == "hyper-connections" else max(TRACED_LOOPS, own)
        trace = state_trace(model, self._some(model), loops)
        if self.cfg.model.injection == "none":
            cosines = increment_cosines(stream(model, self._some(model)))
            trace["cosine"], trace["last cosine"] = mean_cosines(cosines)
        return {f"trace {place}": value for place, value in trace.items()}

    def _some(self, model: LoopedLM) -> torch.Tensor:
        """The rows that are traced, without their last targets."""
        return torch.as_tensor(self.validation[:TRACED_ROWS, :-1], device=model.embed.weight.device)
