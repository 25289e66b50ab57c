"""What is counted of a text: once, and kept beside the runs, so that figures need no text."""

from pathlib import Path
from typing import Any

from pydantic import Field

from lib.config import Config, DataConfig
from lib.data.rows import ngram_entropy, token_store, validation_batch
from lib.data.tokens import TokenStore
from lib.store.runs import RunStore
from lib.sweep.measurements import named


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
