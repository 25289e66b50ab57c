"""The parameters of the notebooks on what other groups published: their runs, and their models."""

from typing import Annotated

from pydantic import Field, field_validator

from lib.base.parameters import Parameters, Positive, Training


class OtherGroups(Parameters):
    drawn_from = "published runs"

    resamples: Positive
    seed: int


class LawForm(Parameters):
    drawn_from = "our and published runs"

    resamples: Positive
    rivals: list[str]
    seed: int
    csv: str

    @field_validator("rivals")
    @classmethod
    def _two_are_compared(cls, rivals: list[str]) -> list[str]:
        if not {"additive", "coupled"} <= {*rivals}:
            raise ValueError("lacks additive or coupled, which the others are compared with; add them")
        return rivals


class PublishedModels(Training):
    checkpoint: str
    run: str
    depths: list[Positive]
    saved: list[Annotated[float, Field(ge=0, lt=1)]]  # shares of the depth
    tasks: list[str]
    tasks_from: str
    limit: Positive
    prompt: Positive
    new_tokens: Positive
    rounds: Positive

    width: Positive
    mean_loops: Positive
    steps: Positive
    lr: float = 0.008
    val_rows: int = 32
    seeds: list[int]
