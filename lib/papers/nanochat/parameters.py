"""The parameters of the notebook that reproduces 003."""

from typing import ClassVar

from lib.papers.shared.parameters import MuonRates


class UsageWeighted(MuonRates):
    notebook: ClassVar[str] = "usage_weighted"

    widths: dict[float, list[int]]
    seeds: list[int]
    head_dim: int
