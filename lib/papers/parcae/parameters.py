"""The parameters of 001's notebooks."""

from typing import Annotated, Literal, Self

import pydantic

from lib.base.parameters import Computing, Positive, Text, Training, among
from lib.text.generated import FAMILIES, PREFIX

# ---- the RDM set-up --------------------------------------------------------------------------------------------------


class Instability(Training):
    architectures: list[str]
    width: int
    heads: int
    mlp: str = "swiglu"
    mlp_width: int = 220
    qk_norm: bool
    mean_loops: int
    backprop_loops: int
    lrs: list[float]
    steps: int
    warmup_steps: int
    cooldown_steps: int
    update_clipping: bool
    eps: float = 1e-10
    max_state_rms: float
    seeds: list[int]
    limit_ngram: int

    @property
    def parcae(self) -> str:
        """Which Parcae is compared: with C and prelude norm where the architectures have that one."""
        return "parcae" if "parcae" in self.architectures else "parcae-rdm"


# ---- the Transformer set-up ------------------------------------------------------------------------------------------


class TransformerSetup(Training):
    """Runs as 001 trains its Transformers and Parcae, of whatever size."""

    head_dim: int = 32
    steps: int
    lr: float
    muon_lr: float = 0.016
    seeds: list[int]


class OneSize(TransformerSetup):
    """Runs of one size."""

    width: int
    layers: int  # of each of the three stacks


class Sizes(TransformerSetup):
    """Runs of several sizes, which may have steps and a rate of their own."""

    sizes: dict[int, int]  # width -> layers of each of the three stacks
    steps_at: dict[int, int]
    lr_at: dict[int, float]

    @pydantic.model_validator(mode="after")
    def _has_the_sizes_of_exceptions(self) -> Self:
        """What ends in _at is of some of the sizes, or of the RDM's where it begins with rdm."""
        for name in [name for name in type(self).model_fields if name.endswith("_at")]:
            widths = getattr(self, "rdm_sizes" if name.startswith("rdm") else "sizes")
            for width in getattr(self, name):
                if width not in widths:
                    raise ValueError(f"{name}: {width} is none of the widths {', '.join(map(str, widths))}, use these")
        return self

    def at(self, width: int) -> OneSize:
        """The set-up at one of the sizes."""
        own = {"steps": self.steps_at.get(width, self.steps), "lr": self.lr_at.get(width, self.lr)}
        shared = self.model_dump(include={*TransformerSetup.model_fields} - {*own})
        return OneSize(**shared, **own, width=width, layers=self.sizes[width])


class SizesAndSeeds(Sizes):
    """Parcae of several sizes, some of which may have fewer seeds: these are drawn, and no claim over seeds asks them.
    The largest of the paper's sizes cost as much as all others together."""

    mean_loops: int
    seeds_at: dict[int, list[int]]  # width -> seeds of Parcae there, where they are not seeds

    @pydantic.model_validator(mode="after")
    def _has_fewer_seeds_of_its_own(self) -> Self:
        for width, seeds in self.seeds_at.items():
            if not seeds or not {*seeds} <= {*self.seeds}:
                raise ValueError(f"seeds_at: {seeds} at width {width} are not some of seeds {self.seeds}, use these")
        return self

    def seeds_of(self, width: int) -> list[int]:
        """The seeds of Parcae at one of the sizes."""
        return self.seeds_at.get(width, self.seeds)

    @property
    def judged_sizes(self) -> list[int]:
        """The sizes that have every seed."""
        return [width for width in self.sizes if {*self.seeds_of(width)} == {*self.seeds}]


class AtDepths(OneSize):
    """Runs of one size, asked at several numbers of loops."""

    depths: list[Positive]


class StabilityAblation(AtDepths):
    mean_loops: int
    limit_ngram: int
    state_draws: Positive
    injection_lrs: list[float]
    judged_lr: Annotated[float, among("injection_lrs")]
    rate_seeds: list[int]


class EndToEnd(SizesAndSeeds):
    """What begins with ``rdm`` is of the comparison in the RDM set-up; all else of that set-up is ``instability``'s."""

    rdm_sizes: dict[int, int]  # width -> layers of the loop
    rdm_lr: float
    rdm_lr_at: dict[int, float] = pydantic.Field({})
    head_dim: int = 8
    rdm_loops_at: dict[int, int]
    rdm_steps: Annotated[int, pydantic.Field(ge=0)]
    rdm_steps_at: dict[int, Positive]
    shorter: Annotated[float, pydantic.Field(ge=0, lt=1)]

    in_part = ("sizes", "steps_at", "rdm_sizes", "rdm_steps_at")

    @pydantic.model_validator(mode="after")
    def _knows_what_it_shortens(self) -> Self:
        if self.shorter and not self.rdm_steps and not {*self.rdm_sizes} <= {*self.rdm_steps_at}:
            raise ValueError("shorter: is a share of rdm_steps, which has to be set for that")
        return self


class BackpropDepth(AtDepths):
    """In the RDM set-up the width, its loop's layers and the rate are those of ``end_to_end``'s smallest RDM."""

    rdm: bool  # in the RDM set-up, or else in the Transformer's
    means: list[Positive]
    fixed_backprop: Positive
    backprops: list[Positive]
    fixed_mean: Positive
    backprops_steps: Annotated[int, pydantic.Field(ge=0)]
    fill: bool


class DepthSampling(AtDepths):
    """In the RDM set-up sizes, loops, steps and rates are those of ``end_to_end``'s comparison there."""

    rdm: bool  # in the RDM set-up, or else in the Transformer's
    mean_loops: int
    timing_rounds: Positive


class LoopGrid(SizesAndSeeds):
    """Runs at several numbers of loops and budgets, and one held out at ``mean_loops`` and ``steps``, for each seed."""

    loops: list[int]
    budgets: list[float]
    budgets_at: dict[int, list[float]]

    @pydantic.model_validator(mode="after")
    def _can_be_fitted(self) -> Self:
        """A budget's looped runs have to carry a parabola, and all of a size a law."""
        looped = [mu for mu in self.loops if mu > 1]
        if min(self.loops) < 1 or len(looped) < 3:
            raise ValueError(f"loops: {self.loops} has fewer than three above 1, which a parabola needs, list more")
        fewest = min(len(self.budgets_of(width)) for width in self.sizes)
        if len(looped) * fewest < 6:
            raise ValueError(f"budgets: {fewest} are too few for a law of five parameters, list more")
        return self

    def budgets_of(self, width: int) -> list[float]:
        """The budgets of a size."""
        return self.budgets_at.get(width, self.budgets)


class LoopingIsoflop(LoopGrid):
    resamples: Annotated[int, pydantic.Field(ge=2)] = 400


class UnifiedLaw(LoopGrid):
    depths: list[Positive]


class TestTimeSaturation(Sizes):
    means: list[int]
    deepest: int
    checkpoint: str
    injections_at: dict[int, list[str]]
    keep_weights: bool = False


class FastGeneration(Sizes):
    """Text is written by runs of ``mean_loops``, of which the widest lti is judged."""

    mean_loops: Positive
    injections_at: dict[int, list[str]]
    checkpoint: str
    timed: bool
    rows: Positive
    prompt: Positive
    new_tokens: Annotated[int, pydantic.Field(ge=2)]
    loops_a_round: list[Positive]

    context: Positive = 256
    rounds: Positive = 3
    wave: Positive = 16
    change: Annotated[float, pydantic.Field(gt=0)] = 0.03
    most_loops: Positive = 32
    kept_loops: list[Positive] = pydantic.Field([1, 2, 4, 8])
    resamples: Annotated[int, pydantic.Field(ge=2)] = 2000

    @pydantic.model_validator(mode="after")
    def _has_what_is_judged(self) -> Self:
        rules = {
            f"rows: {self.rows} of {self.val_rows} held-out rows, ask for fewer": self.rows <= self.val_rows,
            f"kept_loops: {self.kept_loops} lack 1 or mean_loops {self.mean_loops}, add them": {1, self.mean_loops}
            <= {*self.kept_loops},
            f"injections_at: width {max(self.sizes)} has no lti, which is judged, add it": "lti"
            in self.injections_at.get(max(self.sizes), ["lti"]),
            f"loops_a_round: {self.loops_a_round}, list 1, 4 and other divisors of most_loops {self.most_loops}": {1, 4}
            <= {*self.loops_a_round}
            and not any(self.most_loops % n for n in self.loops_a_round),
        }
        for told, holds in rules.items():
            if not holds:
                raise ValueError(told)
        return self


class DepthTasks(AtDepths):
    """``source`` is "generated": there is a text for each of ``families``."""

    families: list[Annotated[str, pydantic.Field(pattern=f"^({'|'.join(FAMILIES)})$")]]
    mean_loops: Annotated[int, pydantic.Field(ge=2), among("depths")]
    limit: Annotated[int, pydantic.Field(ge=0)]
    batch: Positive = 16
    source: Literal["generated"] = "generated"

    in_part = ("families",)

    def of_family(self, family: str) -> OneSize:
        """The set-up on the text of one of the families."""
        return OneSize(**self.model_dump(include={*OneSize.model_fields}) | {"source": f"{PREFIX}{family}"})


# ---- notebooks that train no runs of their own -----------------------------------------------------------------------


class TokenizerCompression(Text):
    sizes: list[int]
    judged: Annotated[int, among("sizes")]
    encodings: list[str]


class DownstreamCore(Computing):
    tasks: str
    limit: Annotated[int, pydantic.Field(ge=0)]
    seeds: list[int]
    training_seeds: list[int]
