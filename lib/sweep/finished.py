"""What finished runs hold: their results as frames, their models, and their losses by depth; and what is counted of
their texts."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import Field

from lib.base.errors import InputError
from lib.base.machine import device_type
from lib.config import Config, DataConfig, RunConfig
from lib.data.rows import ngram_entropy, token_store, validation_batch
from lib.data.tokens import TokenStore
from lib.flops import count
from lib.model.looped import LoopedLM, load_weights
from lib.store.result import RunResult
from lib.store.runs import RunStore, curves, frame
from lib.sweep.measurements import named
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

    def curves(self, *names: str) -> "pd.DataFrame":
        """One row a run and logged step, of the quantities named, or of all."""
        return curves(self.results, names)


class OfRun(Config):
    """What is measured on a run, by its key. The excluded fields say where it is found and what measuring costs."""

    run: str
    flops: float = Field(0.0, exclude=True)
    cfg: RunConfig = Field(exclude=True)
    place: str = Field(exclude=True)
    records: tuple[str, ...] = Field((), exclude=True)

    @classmethod
    def of(cls, cfg: RunConfig, store: RunStore, flops: float, **fields: Any) -> Self:
        return cls(
            run=cfg.key,
            cfg=cfg.planned,
            place=str(store.path),
            records=tuple(map(str, store.records)),
            flops=flops,
            **fields,
        )

    @property
    def store(self) -> RunStore:
        return RunStore(self.place, self.records)

    @property
    def diverged(self) -> bool:
        return self.store.get(self.cfg).status == "diverged"


class AtDepths(OfRun):
    """The validation loss of a run after each of ``depths`` loops."""

    depths: tuple[int, ...]
    state_seed: int = 0


def at_depths(
    configs: Iterable[RunConfig], store: RunStore, depths: Iterable[int], state_seed: int = 0
) -> list[AtDepths]:
    """A case for each of these runs, once."""
    asked = tuple(sorted({*depths}))
    return [
        AtDepths.of(
            cfg, store, validation_flops(cfg) * max(asked) / cfg.model.mean_loops, depths=asked, state_seed=state_seed
        )
        for cfg in {cfg.key: cfg for cfg in configs}.values()
    ]


def validation_flops(cfg: RunConfig) -> float:
    """Of one pass over the validation rows of a run."""
    return cfg.data.val_rows * cfg.data.context * count(cfg.model, cfg.data.context).flops_per_token_forward


@named("lib.sweep.losses_by_depth")
def losses_by_depth(case: AtDepths) -> dict[str, Any]:
    """T -> loss in nats per token, of all depths in one pass over the loops (``evaluate.depth_sweep``); of a run that
    diverged, nothing."""
    if case.diverged:
        return {}
    losses = depth_sweep(*trained_model(case.cfg, case.store), case.depths, case.state_seed)
    return {str(T): loss for T, loss in losses.items()}


def depth_frame(cases: Sequence[AtDepths], found: Sequence[dict[str, Any]]) -> "pd.DataFrame":
    """What ``losses_by_depth`` found: a frame with one row a run and depth, columns key, T and loss."""
    import pandas as pd

    return pd.DataFrame(
        ((case.run, int(T), loss) for case, losses in zip(cases, found, strict=True) for T, loss in losses.items()),
        columns=["key", "T", "loss"],
    )


def run_model(cfg: RunConfig, store: RunStore) -> LoopedLM:
    """The model of a run in the store, in eval mode and on this device.

    Raises InputError for a run that is not there, and for a record, which has no weights."""
    weights = store.weights(store.get(cfg))
    model = load_weights(weights).set_precision(cfg.train.precision)
    if model.cfg != cfg.model:
        raise InputError(f"runs: {weights} holds another model than run {cfg.key}, restore it or remove the run")
    return model.to(device_type())


def trained_model(cfg: RunConfig, store: RunStore) -> tuple[LoopedLM, np.ndarray]:
    """``run_model`` and the run's validation rows [B, S + 1]. Raises InputError where its text has changed since it was
    planned."""
    data = cfg.planned.data
    return run_model(cfg, store), validation_batch(data, token_store(data, store.tokens))


# ---- what is counted of a text, once, and kept beside the runs, so that figures need no text -------------------------


class OfText(Config):
    """A text by its content. The excluded fields say where its tokens lie and what counting costs, about."""

    data: DataConfig
    n: int = Field(0, description="tokens of an n-gram")
    tokens: str = Field(exclude=True)
    flops: float = Field(1e9, exclude=True)

    @classmethod
    def of(cls, data: DataConfig, store: RunStore, n: int = 0) -> "OfText":
        return cls(data=data.known(), n=n, tokens=str(store.tokens))

    @property
    def stored(self) -> TokenStore:
        return token_store(self.data, Path(self.tokens))


@named("lib.text.ngram_limit")
def ngram_limit(case: OfText) -> dict[str, Any]:
    """nats: the loss of a model that knows the n-grams of the training documents alone."""
    training, _ = case.stored.split(case.data.val_fraction)
    return {"nats": ngram_entropy(case.stored, training, case.n)}


@named("lib.text.counted")
def counted(case: OfText) -> dict[str, Any]:
    """Tokens of the documents for training, and of those held out."""
    training, held_out = case.stored.split(case.data.val_fraction)
    return {"training": int(case.stored.length[training].sum()), "held out": int(case.stored.length[held_out].sum())}


@named("lib.text.held_out")
def held_out(case: OfText) -> dict[str, Any]:
    """rows: the validation rows [val_rows, context + 1]."""
    return {"rows": validation_batch(case.data, case.stored).tolist()}
