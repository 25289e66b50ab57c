"""The parameters of 001's notebooks."""

from typing import Annotated, ClassVar, Self

import pydantic

from lib.base.parameters import Computing, Positive, Text, Training

# ---- the RDM set-up --------------------------------------------------------------------------------------------------


class Instability(Training):
    notebook: ClassVar[str] = "instability"

    architectures: list[str]
    width: int
    heads: int
    mlp: str
    mlp_width: int
    qk_norm: bool
    mean_loops: int
    backprop_loops: int
    lrs: list[float]
    steps: int
    warmup_steps: int
    cooldown_steps: int
    update_clipping: bool
    max_state_rms: float
    seeds: list[int]
    limit_ngram: int


# ---- the Transformer set-up ------------------------------------------------------------------------------------------


class TransformerSetup(Training):
    """Runs as 001 trains its 140M models, of whatever size."""

    head_dim: int
    steps: int
    lr: float
    muon_lr: float
    seeds: list[int]


class OneSize(TransformerSetup):
    """Runs of one size."""

    width: int
    layers: int  # of each of the three stacks


class Sizes(TransformerSetup):
    """Runs of several sizes."""

    sizes: dict[int, int]  # width -> layers of each of the three stacks

    def at(self, width: int) -> OneSize:
        """The set-up at one of the sizes."""
        shared = {name: getattr(self, name) for name in TransformerSetup.model_fields}
        return OneSize(**shared, width=width, layers=self.sizes[width])


class StabilityAblation(OneSize):
    notebook: ClassVar[str] = "stability_ablation"

    mean_loops: int
    depths: list[Positive]
    limit_ngram: int
    state_draws: Positive
    injection_lrs: list[float]
    judged_lr: float
    rate_seeds: list[int]

    @pydantic.model_validator(mode="after")
    def _judges_a_rate_that_is_tried(self) -> Self:
        if self.judged_lr not in self.injection_lrs:
            raise ValueError(f"judged_lr: {self.judged_lr:g} is not one of injection_lrs, add it")
        return self


class EndToEnd(Sizes):
    notebook: ClassVar[str] = "end_to_end"

    mean_loops: int
    rdm_widths: list[int]
    rdm_lr: float


class BackpropDepth(OneSize):
    notebook: ClassVar[str] = "backprop_depth"

    means: list[Positive]
    fixed_backprop: Positive
    backprops: list[Positive]
    fixed_mean: Positive
    depths: list[Positive]


class DepthSampling(OneSize):
    notebook: ClassVar[str] = "depth_sampling"

    mean_loops: int
    depths: list[Positive]
    timing_rounds: Positive


class LoopGrid(OneSize):
    """Runs at several numbers of loops and budgets, and one held out at ``mean_loops`` and ``steps``, for each seed."""

    loops: list[int]
    budgets: list[float]
    mean_loops: int

    @pydantic.model_validator(mode="after")
    def _can_be_fitted(self) -> Self:
        """A budget's looped runs have to carry a parabola, and all of them a law."""
        looped = [mu for mu in self.loops if mu > 1]
        if min(self.loops) < 1 or len(looped) < 3:
            raise ValueError(f"loops: {self.loops} has fewer than three above 1, which a parabola needs, list more")
        if len(looped) * len(self.budgets) < 6:
            raise ValueError(f"budgets: {len(self.budgets)} are too few for a law of five parameters, list more")
        return self


class LoopingIsoflop(LoopGrid):
    notebook: ClassVar[str] = "looping_isoflop"


class UnifiedLaw(LoopGrid):
    notebook: ClassVar[str] = "unified_law"

    depths: list[Positive]


class TestTimeSaturation(Sizes):
    notebook: ClassVar[str] = "test_time_saturation"

    means: list[int]
    deepest: int
    checkpoint: str


# ---- notebooks that train no runs of their own -----------------------------------------------------------------------


class TokenizerCompression(Text):
    notebook: ClassVar[str] = "tokenizer_compression"

    sizes: list[int]
    judged: int
    encodings: list[str]

    @pydantic.model_validator(mode="after")
    def _judges_one_of_its_sizes(self) -> Self:
        if self.judged not in self.sizes:
            raise ValueError(f"judged: {self.judged} is not one of sizes, use {', '.join(map(str, self.sizes))}")
        return self


class DownstreamCore(Computing):
    notebook: ClassVar[str] = "downstream_core"

    tasks: str
    limit: Annotated[int, pydantic.Field(ge=0)]
    seeds: list[int]
