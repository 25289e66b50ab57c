"""What finished runs hold: their results as frames, their models, and their losses by depth."""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import torch

from lib.base.errors import InputError
from lib.base.progress import passing
from lib.config import RunConfig
from lib.data.rows import token_store, validation_batch
from lib.model.looped import LoopedLM, load_weights
from lib.store.runs import WEIGHTS, RunResult, RunStore, curves, frame
from lib.train.evaluate import depth_sweep

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass(frozen=True)
class Runs:
    """The results of a sweep, in the order of its configs."""

    results: list[RunResult]

    def frame(self) -> "pd.DataFrame":
        """One row a run: config, status and summary."""
        return frame(self.results)

    def curves(self) -> "pd.DataFrame":
        """One row a run and logged step."""
        return curves(self.results)


def depth_losses(configs: list[RunConfig], store: RunStore, depths: list[int], state_seed: int = 0) -> "pd.DataFrame":
    """Validation loss of runs in the store after each of ``depths`` loops: a frame with one row a run and depth,
    columns key, T and loss in nats per token. All depths of a run take one pass over its loops
    (``evaluate.depth_sweep``), and what was measured once is noted beside the run. Diverged runs are left out.

    Raises InputError for a record, which has no weights, where it does not hold these depths.
    """
    import pandas as pd

    rows, unique = [], {cfg.key: cfg for cfg in configs}
    for cfg in passing(unique.values(), "losses by depth"):
        result = store.get(cfg)
        if result.status != "finished":
            continue
        noted = store.noted(result, "depth_losses")
        known = noted.setdefault(str(state_seed), {})
        missing = [T for T in sorted(set(depths)) if str(T) not in known]
        if missing:
            if not (result.folder / WEIGHTS).exists():
                raise InputError(
                    f"depths: the record {result.key} has no weights to measure {missing} with, "
                    f"use some of {', '.join(known) or 'none'}"
                )
            losses = depth_sweep(*trained_model(cfg, store), missing, state_seed)
            known.update({str(T): loss for T, loss in losses.items()})
            store.note(result, "depth_losses", noted)
        rows += [{"key": result.key, "T": T, "loss": known[str(T)]} for T in sorted(set(depths))]
    return pd.DataFrame(rows, columns=["key", "T", "loss"])


def run_model(cfg: RunConfig, store: RunStore) -> LoopedLM:
    """The model of a run in the store, in eval mode and on this device.

    Raises InputError for a run that is not there, and for a record, which has no weights."""
    weights = store.weights(store.get(cfg))
    model = load_weights(weights).set_precision(cfg.train.precision)
    if model.cfg != cfg.model:
        raise InputError(f"runs: {weights} holds another model than run {cfg.key}, restore it or remove the run")
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


def trained_model(cfg: RunConfig, store: RunStore) -> tuple[LoopedLM, np.ndarray]:
    """``run_model`` and the run's validation rows [B, S + 1]. Raises InputError where its text has changed since it was
    planned."""
    data = cfg.planned.data
    return run_model(cfg, store), validation_batch(data, token_store(data, store.tokens))
