"""The parameters of the league of interventions."""

from typing import ClassVar, Self

from pydantic import model_validator

from lib.papers.isodepth.parameters import IsodepthGrid


class DeltaPhiLeague(IsodepthGrid):
    notebook: ClassVar[str] = "delta_phi_league"

    interventions: list[str]
    shown: int
    seeds: list[int]
    muon_rate: float
    adamw_rate: float
    dynamics_lr: float
    lanes_lr: float

    in_part = ("widths",)

    @model_validator(mode="after")
    def _has_what_is_compared(self) -> Self:
        if 1 not in self.recurrences or self.shown not in self.recurrences or self.shown == 1:
            raise ValueError(
                f"recurrences: {self.recurrences} needs 1, the plain model, and shown, {self.shown}, above 1"
            )
        return self
