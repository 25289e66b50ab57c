"""The parameters of 002's notebooks."""

from lib.base.parameters import Computing, Positive, Training


class ResidualModel(Computing):
    """What a model of 002 needs besides its rule and its layers L; and how it is trained, for a few steps or many."""

    loops: list[Positive]
    seeds: list[int]
    steps: Positive
    width: int
    head_dim: int = 16
    mlp_width: int = 88
    init_std: float = 0.1
    c: float = 1.0
    vocab_size: Positive
    context: Positive


class ResidualRuns(ResidualModel, Training):
    """A notebook that trains such models on text."""

    reference_depth: Positive
    kept_lr: float  # where runs are traced
    checkpoint_loops: bool = False
    vocab_size: Positive = 0
    context: Positive = 32


class ResidualScalingInit(ResidualModel):
    least: int
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
    deep: list[Positive]
    deep_loops: list[Positive]


class LoopLrTransfer(ResidualScalingTrained):
    """The same runs at several rates."""

    lrs: list[float]
    deep_lrs: list[float]
    table_lrs: list[float]


class ResidualScalingBeyond(ResidualRuns):
    """``lr`` is the rate of the one step at the init, ``lrs`` are those of the runs."""

    models: list[str]
    init_loops: list[Positive]
    least: int
    init_seeds: list[int]
    lr: float
    lrs: list[float]
