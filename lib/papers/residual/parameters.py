"""The parameters of 002's notebooks."""

from typing import ClassVar, Self

import pydantic

from lib.base.parameters import Computing, Positive, Training


class ResidualModel(Computing):
    """What a model of 002 needs besides its rule, its loops N and its layers L."""

    width: int
    head_dim: int
    mlp_width: int
    init_std: float
    c: float
    vocab_size: Positive
    context: Positive


class ResidualRuns(ResidualModel, Training):
    """A notebook that trains such models on text."""

    loops: list[Positive]
    seeds: list[int]
    reference_depth: int
    kept_lr: float  # where runs are traced
    steps: Positive
    checkpoint_loops: bool


class ResidualScalingInit(ResidualModel):
    notebook: ClassVar[str] = "residual_scaling_init"

    loops: list[Positive]
    least: int
    seeds: list[int]
    steps: Positive
    lr: float
    layers: Positive
    cosine_loops: int

    deep: list[Positive]
    deep_loops: list[Positive]
    deep_seeds: list[int]

    early_lrs: list[float]
    early_lr: float
    early_widths: list[int]
    early_seeds: list[int]

    @pydantic.model_validator(mode="after")
    def _judges_what_is_tried(self) -> Self:
        if self.early_lr not in self.early_lrs or self.width not in self.early_widths:
            raise ValueError(f"early_lr: {self.early_lr:g} at width {self.width} is not tried, add them to the lists")
        return self


class ResidualScalingTrained(ResidualRuns):
    notebook: ClassVar[str] = "residual_scaling_trained"

    deep: list[Positive]
    deep_loops: list[Positive]


class LoopLrTransfer(ResidualRuns):
    notebook: ClassVar[str] = "loop_lr_transfer"

    lrs: list[float]
    deep: list[Positive]
    deep_loops: list[Positive]
    deep_lrs: list[float]


class ResidualScalingBeyond(ResidualRuns):
    """``lr`` is the rate of the one step at the init, ``lrs`` are those of the runs."""

    notebook: ClassVar[str] = "residual_scaling_beyond"

    models: list[str]
    init_loops: list[Positive]
    least: int
    init_seeds: list[int]
    lr: float
    lrs: list[float]
