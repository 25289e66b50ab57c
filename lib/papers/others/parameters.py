"""The parameters of the notebooks on what other groups published: their runs, and their models."""

from typing import Annotated

from pydantic import Field

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
