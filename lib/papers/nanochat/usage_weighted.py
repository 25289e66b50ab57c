"""Which parameter count makes tokens per parameter a constant? The width sweep of the looped nanochat log (003).

Its models are 2 + 4 x 4 + 2 layers and differ in their width alone. ``physical`` parameters are those stored; ``usage``
counts each as often as it runs: once + r looped.
"""

import numpy as np
import pandas as pd

from lib.config import Label, ModelConfig, RunConfig
from lib.figures.style import rate
from lib.fit import isoflop
from lib.flops import count
from lib.papers.nanochat.parameters import UsageWeighted
from lib.papers.shared import budgets
from lib.presets import head_count, preset


def model(p: UsageWeighted, width: int) -> ModelConfig:
    """003's model at a width: 2/4/2 layers, r = 4."""
    return preset(
        "looped-nanochat-s8",
        width=width,
        heads=head_count(width, p.head_dim, "widths"),
        mlp_width=4 * width,
        vocab_size=p.vocab_size,
        context=p.context,
    )


def grid(p: UsageWeighted) -> dict[Label, RunConfig]:
    """("... FLOPs", budget, width, seed) -> run, for every budget of FLOPs as 003 counts them, its widths, and every
    seed, by nanochat's optimiser. Raises InputError where a budget buys fewer than ten steps."""
    return {
        (f"{rate(budget)} FLOPs", budget, width, seed): budgets.run(
            p, model(p, width), budget, seed, paper="003", like="looped-nanochat-s8"
        )
        for budget in sorted(p.widths)
        for width in p.widths[budget]
        for seed in p.seeds
    }


def size(cfg: RunConfig) -> dict[str, float]:
    """Of a run of ``grid``: physical and usage-weighted parameters, D tokens."""
    counts = count(cfg.model, cfg.data.context)
    return {"physical": counts.n_params, "usage": counts.n_usage, "D": cfg.tokens}


def optima(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a definition of N, a budget and a seed: the minimum of the parabola of the loss in log N, the tokens
    there, and the ratio D / N; nan where the minimum lies outside the widths trained."""
    parts = []
    for definition in ("physical", "usage"):
        sized = runs.assign(N=runs[definition], F=runs["budget"] / runs["D"])
        found = isoflop.optima(sized, ["budget", "seed"])
        found.loc[~found["inside"], ["N", "D", "loss"]] = np.nan
        parts.append(found.assign(ratio=found["D"] / found["N"], **{"N is": definition}))
    return pd.concat(parts, ignore_index=True)[["N is", "budget", "seed", "N", "D", "ratio", "loss"]]
