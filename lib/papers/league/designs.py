"""How the league moves a model's matrices by another optimiser than MuonH, and everything else as before."""

import functools
from typing import Any

from lib.config import ModelConfig, OptimConfig
from lib.train.optimiser import placements


@functools.cache  # of all seeds
def moved_by(
    rule: str, model: ModelConfig, optim: OptimConfig, steps: int, tokens_per_step: int, base_rate: float
) -> OptimConfig:
    """A run's optimiser, but the matrices are moved by Muon or AdamW, neither with decay, at ``base_rate`` under the
    corrections that MuonH's rate gets. What AdamW moved before, it moves at the same rates as before."""
    by_role = {x.role: x for x in placements(model, optim, steps, tokens_per_step)}
    roles = {"embedding_lr": "embedding", "head_lr": "head", "norm_lr": "norm"}
    others: dict[str, Any] = {field: _rounded(by_role[role].lr) for field, role in roles.items()}
    others |= {field: getattr(optim, field) for field in ("betas", "eps", "cooldown_steps", "final")}
    lr = _rounded(base_rate * by_role["matrix"].multiplier)
    if rule == "adamw":
        return OptimConfig(name="adamw", lr=lr, **others)
    return OptimConfig(
        name="muon", muon_lr=lr, muon_weight_decay=0.0, muon_cautious=False, muon_variance_reduction=False, **others
    )


def _rounded(rate: float) -> float:
    """To four digits: the last ones of a power differ between machines, and a run is known by its rates."""
    return float(f"{rate:.4g}")
