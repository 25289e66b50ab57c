"""The parameters of the notebooks that reproduce 000."""

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from lib.base.parameters import Computing, Parameters, Positive
from lib.papers.shared.parameters import MuonRates


class IsodepthRuns(MuonRates):
    """Runs of models that all have ``once`` + ``looped`` effective layers."""

    head_dim: int = 8
    once: int = 2
    looped: int = 8


#: a form of hyper-connections whose lanes can have a base rate of their own
Lanes = Annotated[str, Field(pattern="^hyper-connections(, as printed)?$")]
#: form -> base rate of its lanes, 000's own where it is not listed
LaneRates = dict[Lanes, float]


class IsodepthGrid(IsodepthRuns):
    """Recurrences at the widths of several budgets, and a law that is fitted to them."""

    recurrences: list[int]
    widths: dict[float, list[int]]
    seeds: list[int]
    resamples: Positive = 200

    #: runs that its law needs
    least_runs: ClassVar[int] = 1

    @model_validator(mode="after")
    def _has_runs_enough(self) -> Self:
        budgets = getattr(self, "budgets", self.widths)
        if lacking := [f"{budget:g}" for budget in budgets if budget not in self.widths]:
            raise ValueError(
                f"widths: has none for the budget {lacking[0]}; budgets and widths change together, such as "
                f"-p budgets '[{', '.join(lacking)}]' -p widths '{{{', '.join(f'{x}: [8, 16, 24]' for x in lacking)}}}'"
            )
        runs = sum(len(self.widths[budget]) for budget in budgets) * len(self.recurrences) * len(self.seeds)
        if runs < self.least_runs:
            raise ValueError(
                f"widths: {runs} runs in all fit no joint law, list more widths, budgets or recurrences, "
                f"{self.least_runs} runs at least"
            )
        return self


class PaperGrid(IsodepthGrid):
    """000's whole grid. Three notebooks ask for it; whichever runs first trains it."""

    budgets: list[float]
    noise_seeds: list[int]

    in_part = ("budgets",)
    least_part = 2  # one budget has no law

    @model_validator(mode="after")
    def _has_widths(self) -> Self:
        if not {1} < {*self.recurrences}:
            raise ValueError(f"recurrences: {self.recurrences} needs 1, the plain model, and another")
        lowest = min(self.budgets)
        if len(self.widths[lowest]) < 2:
            raise ValueError(
                f"widths: has fewer than two for the budget {lowest:g}, where seeds are repeated, list more"
            )
        return self


class IsodepthIsoflop(PaperGrid):
    resamples: Positive = 400


class RecurrenceExponent(PaperGrid):
    least_runs = 7  # one more than the law has parameters


class Extrapolation(RecurrenceExponent):
    beyond_recurrences: list[int]
    beyond_budget: float
    beyond_width: int
    beyond_batch: Annotated[int, Field(ge=0)]
    beyond_seeds: list[int]
    tokens_at: dict[int, list[float]]  # width -> tokens a parameter of the plain model there
    ladder_seeds: list[int]
    other_lrs_at: list[float]


class ComparedGrid(IsodepthGrid):
    """What changes of the looped models do to their loss, at ``shown`` loops, and to the law."""

    shown: int

    in_part = ("widths",)

    @model_validator(mode="after")
    def _has_what_is_compared(self) -> Self:
        if 1 not in self.recurrences or self.shown not in self.recurrences or self.shown == 1:
            raise ValueError(
                f"recurrences: {self.recurrences} needs 1, the plain model, and shown, {self.shown}, above 1"
            )
        return self


class PhiProbes(ComparedGrid):
    least_runs = RecurrenceExponent.least_runs

    probes: list[str]
    lanes_lr: LaneRates
    resamples: Positive = 100

    @model_validator(mode="after")
    def _probes_are_compared_with_the_baseline(self) -> Self:
        if "baseline" in self.probes:
            raise ValueError("probes: baseline is what probes are compared with, leave it out")
        return self


class DeltaPhiLeague(ComparedGrid):
    interventions: list[str]
    muon_rate: float
    adamw_rate: float
    dynamics_lr: float
    lanes_lr: float
    resamples: Positive = 100


class PublishedRuns(Parameters):
    """000 judged on the runs that its authors published: nothing is trained."""

    drawn_from = "published runs"

    accounting: str
    resamples: Positive
    seed: int


class InjectionAblation(IsodepthRuns):
    injections: list[str]
    for_reference: list[str]
    lanes_lr: LaneRates
    lanes_lrs: list[float]
    tuning_seeds: list[int]
    recurrence: int
    budget: float
    width: int
    limit_ngram: int
    seeds: list[int]


class LrTransferHyperp(IsodepthRuns):
    recurrences: list[int]
    muon_lr: float
    muon_lrs: list[float]
    width: int
    per_parameter: bool  # whether budgets are tokens a parameter, or else FLOPs
    budget: float
    other_widths: list[int]
    other_budgets: list[float]
    other_batches: list[int]
    seed: int
    resamples: Positive = 2000

    in_part = ("other_widths", "other_budgets", "other_batches")

    @model_validator(mode="after")
    def _keeps_a_rate_that_is_tried(self) -> Self:
        if self.muon_lr not in self.muon_lrs:
            raise ValueError(
                f"muon_lr: {self.muon_lr:g} is not among muon_lrs, add it: regret is measured at that rate"
            )
        return self


class DownstreamAxes(Computing):
    budgets: list[float]
    tasks: str
    limit: Annotated[int, Field(ge=0)]
    seeds: list[int]
    depths: list[Positive]
    whole_at: dict[float, list[int]]  # budget -> widths of models whose context holds prompts; none when empty
    whole_recurrences: list[int]
    whole_seeds: list[int]
    whole_context: Positive
    whole_batch: Positive
    whole_limit: Annotated[int, Field(ge=0)]
    resamples: Positive = 2000

    in_part = ("budgets",)
    least_part = 2  # as what is asked of, 000's grid
