"""A run that costs so many FLOPs, as a paper counts them."""

from typing import Any

import numpy as np

from lib.base.errors import InputError
from lib.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from lib.flops import count
from lib.presets import optimizer


def steps_for(budget: float, flops_per_token: float, data: DataConfig, batch: int, width: int) -> int:
    """Steps that a budget of FLOPs buys. Raises InputError for fewer than ten."""
    if batch < 1:
        raise InputError(f"batch: {batch} rows train nothing, use at least 1")
    steps = budget / flops_per_token / (batch * data.context)
    if not 9.5 <= steps < np.inf:
        raise InputError(f"budgets: {budget:g} FLOPs are {steps:.0f} steps at width {width}, raise them or lower batch")
    return round(steps)


def run(
    cfg: ModelConfig, budget: float, data: DataConfig, rates: dict[str, Any], training: dict[str, Any],
    paper: str = "000", like: str = "isodepth-s10-r4",
) -> RunConfig:  # fmt: skip
    """A model trained for ``budget`` FLOPs as ``paper`` counts them, by the optimiser of the preset ``like`` at these
    base rates.

    Raises InputError where the budget buys fewer than ten steps.
    """
    steps = steps_for(budget, count(cfg, data.context).published[paper], data, training["batch"], cfg.width)
    return RunConfig(
        model=cfg, data=data, optim=optimizer(like, steps, **rates),
        train=TrainConfig(steps=steps, **training),
    )  # fmt: skip
