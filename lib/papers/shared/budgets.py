"""A run that costs so many FLOPs, as a paper counts them."""

import numpy as np

from lib.base.errors import InputError
from lib.base.parameters import Training
from lib.config import GROW_AT, ModelConfig, RunConfig
from lib.flops import count
from lib.papers.shared.parameters import MuonRates, text_of, training_of
from lib.presets import optimizer


def steps_for(p: Training, budget: float, flops_per_token: float, width: int) -> int:
    """Steps that a budget of FLOPs buys. Raises InputError for fewer than ten."""
    steps = budget / flops_per_token / (p.batch * p.context)
    if not 9.5 <= steps < np.inf:
        raise InputError(f"budgets: {budget:g} FLOPs are {steps:.0f} steps at width {width}, raise them or lower batch")
    return round(steps)


def run(
    p: MuonRates,
    cfg: ModelConfig,
    budget: float,
    seed: int,
    paper: str = "000",
    like: str = "isodepth-s10-r4",
    rates: dict[str, float] | None = None,
    grow_from: int | None = None,
) -> RunConfig:
    """A model trained for ``budget`` FLOPs as ``paper`` counts them, by the optimiser of the preset ``like`` at the
    rates of ``p`` and ``rates``, by the names of the optimiser's fields. ``grow_from``: the loops that it begins with,
    where it grows; what it then saves buys steps.

    Raises InputError where the budget buys fewer than ten steps.
    """
    flops_per_token = count(cfg, p.context).published[paper]
    if grow_from:
        before = count(cfg.replace(mean_loops=grow_from), p.context).published[paper]
        flops_per_token += GROW_AT * (before - flops_per_token)
    steps = steps_for(p, budget, flops_per_token, cfg.width)
    return RunConfig(
        model=cfg,
        data=text_of(p),
        optim=optimizer(like, steps, **p.rates, **(rates or {})),
        train=training_of(p, steps=steps, seed=seed, grow_from=grow_from),
    )
