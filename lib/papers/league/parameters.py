"""The parameters of the league of interventions."""

from typing import ClassVar

from lib.base.parameters import Positive
from lib.papers.isodepth.parameters import ComparedGrid


class DeltaPhiLeague(ComparedGrid):
    notebook: ClassVar[str] = "delta_phi_league"

    interventions: list[str]
    muon_rate: float
    adamw_rate: float
    dynamics_lr: float
    lanes_lr: float
    resamples: Positive = 100
