"""The parameters of the notebook that opens published models."""

from typing import ClassVar, Self

from pydantic import model_validator

from lib.base.parameters import Positive, Training


class PublishedModels(Training):
    notebook: ClassVar[str] = "published_models"

    checkpoint: str
    run: str
    depths: list[Positive]
    saved: list[float]
    tasks: list[str]
    tasks_from: str
    limit: Positive
    prompt: Positive
    new_tokens: Positive
    rounds: Positive

    width: Positive
    mean_loops: Positive
    steps: Positive
    lr: float
    seeds: list[int]

    @model_validator(mode="after")
    def _saves_shares(self) -> Self:
        if not all(0 <= share < 1 for share in self.saved):
            raise ValueError(f"saved: {self.saved} are no shares of the depth, list numbers from 0 to below 1")
        return self
