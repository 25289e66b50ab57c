"""What is measured on the runs of 004: where predictions settle, what leaving early costs, which experts loops take."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from lib.config import RunConfig
from lib.decode import exits, pace
from lib.decode.exits import CRITERIA
from lib.model.looped import LoopedLM
from lib.model.probes import looped_choices
from lib.model.routing import divergence
from lib.store.runs import RunStore
from lib.sweep.finished import OfRun, trained_model, validation_flops
from lib.sweep.measurements import named


class OfExits(OfRun):
    """The exits of a run on the first ``rows`` of its validation text: of a model that loops the ends of its loops, or
    with ``every_layer`` all effective layers, as of any other. ``saved``: shares of the depth that leaving saves."""

    rows: int
    every_layer: bool
    saved: tuple[float, ...] = ()

    def read(self) -> tuple[exits.Exits, LoopedLM, torch.Tensor]:
        """The exits, and the model and the rows [B, S + 1] that they are of."""
        model, validation = trained_model(self.cfg, self.store)
        x = torch.as_tensor(validation[: self.rows], device=model.embed.weight.device)
        return exits.exits_of_rows(model, x, self.every_layer or not self.cfg.model.recur), model, x


def of_exits(
    configs: Iterable[RunConfig], store: RunStore, rows: int, every_layer: bool = False, saved: Iterable[float] = ()
) -> list[OfExits]:
    """A case for each run."""
    return [
        OfExits.of(
            cfg,
            store,
            validation_flops(cfg) * rows / cfg.data.val_rows,
            rows=rows,
            every_layer=every_layer,
            saved=tuple(saved),
        )
        for cfg in configs
    ]


@named("lib.papers.looped_moe.convergence")
def convergence(case: OfExits) -> dict[str, Any]:
    """Columns of ``exits.convergence``, a number for each layer."""
    found, *_ = case.read()
    return {name: of.tolist() for name, of in exits.convergence(found, case.cfg.data.context).items()}


@named("lib.papers.looped_moe.trade_offs")
def trade_offs(case: OfExits) -> dict[str, Any]:
    """Perplexities at each of the shares ``saved``: ``entropy``, by that criterion from its first exit on; ``common``,
    by each criterion from the first exit on at which all of them have a score."""
    found, *_ = case.read()
    common = exits.first_common(found)
    return {
        "entropy": exits.trade_off(found, "entropy", list(case.saved)),
        "common": {name: exits.trade_off(found, name, list(case.saved), common) for name in CRITERIA},
    }


@named("lib.papers.looped_moe.leaving")
def leaving(case: OfExits) -> dict[str, Any]:
    """``exits.at_thresholds`` for every ``threshold``, from 0 to the entropy of the uniform prediction in steps of .05
    nats; ``depth``, the exits' shares of the depth; ``median``, the median entropy at the first exit."""
    found, *_ = case.read()
    thresholds = 0.05 * np.arange(math.ceil(math.log(case.cfg.model.vocab_size) / 0.05) + 1)
    return {
        "threshold": thresholds.tolist(),
        "depth": found.depth.tolist(),
        "median": float(np.median(found.scores["entropy"][0])),
        **exits.at_thresholds(found, thresholds),
    }


@named("lib.papers.looped_moe.debts")
def debts(case: OfExits) -> dict[str, Any]:
    """Columns of ``pace.debts``, a number for each of the shares ``saved``."""
    found, model, x = case.read()
    table = pace.debts(model, x, found, case.saved)
    return {str(name): table[name].tolist() for name in table}


@named("lib.papers.looped_moe.routing")
def routing(case: OfRun) -> dict[str, Any]:
    """Columns of ``routing.divergence`` on the validation text, a number for each layer and pair of loops."""
    model, text = trained_model(case.cfg, case.store)
    rows = divergence(looped_choices(model, torch.as_tensor(text[:, :-1], device=model.embed.weight.device)))
    return {name: [row[name] for row in rows] for name in rows[0]}
