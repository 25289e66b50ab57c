"""Parameters that notebooks of several papers share."""

from typing import Any

import pydantic

from lib.base.parameters import Positive, Training
from lib.config import DataConfig, TrainConfig


class MuonRates(Training):
    """A notebook that trains matrices by Muon or MuonH, and the rest by AdamW."""

    muon_lr: float = 0.058
    table_lr: float = 0.175
    head_lr: float = 0.175
    norm_lr: float = 0.05

    @property
    def rates(self) -> dict[str, float]:
        """The rates under the names of the optimiser's fields (``OptimConfig``)."""
        return dict(muon_lr=self.muon_lr, embedding_lr=self.table_lr, head_lr=self.head_lr, norm_lr=self.norm_lr)


class StartHere(Training):
    """The first notebook. It trains its two small models where ``miniature`` asks for them, and else nothing."""

    miniature: bool
    width: Positive
    loops: Positive
    steps: Positive
    seed: int
    prompt: str
    csv: str

    @pydantic.model_validator(mode="before")
    @classmethod
    def _trains_what_is_asked_for(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "train": True} if values.get("miniature") else values


def text_of(p: Training) -> DataConfig:
    """The text that a notebook's parameters name."""
    return DataConfig(
        source=p.source,
        content=p.content,
        tokenizer=p.tokenizer,
        context=p.context,
        val_rows=p.val_rows,
        max_bytes=p.max_bytes or None,
    )


def training_of(p: Training, **fields: Any) -> TrainConfig:
    """The batches and the arithmetic that they name, with the other ``fields``."""
    return TrainConfig(**{"batch": p.batch, "micro_batch": p.micro_batch or None, "precision": p.precision, **fields})
