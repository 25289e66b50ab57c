"""The parameters of the notebook that reproduces 003."""

from lib.papers.shared.parameters import MuonRates


class UsageWeighted(MuonRates):
    muon_lr: float = 0.02
    table_lr: float = 0.029
    head_lr: float = 0.0072
    norm_lr: float = 0.0014

    widths: dict[float, list[int]]
    seeds: list[int]
    head_dim: int = 8
