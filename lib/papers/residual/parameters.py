"""The parameters of 002's notebooks."""

from typing import ClassVar

from lib.base.parameters import Computing, Positive, Training


class ResidualModel(Computing):
    """What a model of 002 needs besides its rule, its loops N and its layers L."""

    width: int
    head_dim: int = 16
    mlp_width: int = 88
    init_std: float = 0.1
    c: float = 1.0
    vocab_size: Positive
    context: Positive


class ResidualRuns(ResidualModel, Training):
    """A notebook that trains such models on text."""

    loops: list[Positive]
    seeds: list[int]
    reference_depth: Positive
    kept_lr: float  # where runs are traced
    steps: Positive
    checkpoint_loops: bool = False
    vocab_size: Positive = 0
    context: Positive = 32


class ResidualScalingInit(ResidualModel):
    notebook: ClassVar[str] = "residual_scaling_init"

    loops: list[Positive]
    least: int
    seeds: list[int]
    steps: Positive
    lr: float
    ladder: list[float]
    layers: Positive
    cosine_loops: int

    deep: list[Positive]
    deep_loops: list[Positive]
    deep_seeds: list[int]
    also_at: list[Positive]

    head_dim: int = 32
    mlp_width: int = 688
    init_std: float = 0.0346
    vocab_size: Positive = 256
    context: Positive = 64


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
    table_lrs: list[float]


class ResidualScalingBeyond(ResidualRuns):
    """``lr`` is the rate of the one step at the init, ``lrs`` are those of the runs."""

    notebook: ClassVar[str] = "residual_scaling_beyond"

    models: list[str]
    init_loops: list[Positive]
    least: int
    init_seeds: list[int]
    lr: float
    lrs: list[float]
