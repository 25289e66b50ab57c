"""Which parameter count makes tokens per parameter a constant? The width sweep of the looped nanochat log (003).

Its models are 2 + 4 x 4 + 2 layers and differ in their width alone. ``physical`` parameters are those stored; ``usage``
counts each as often as it runs: once + r looped.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from lib.config import Label, ModelConfig, RunConfig
from lib.figures.style import rate
from lib.fit import isoflop
from lib.flops import count
from lib.papers.nanochat.parameters import UsageWeighted
from lib.papers.shared import budgets
from lib.papers.shared.frames import finished
from lib.papers.shared.slopes import log_slope
from lib.presets import head_count, preset
from lib.store.result import RunResult

#: its table of sizes: parameters, FLOPs per token
PUBLISHED_SIZES = {
    8: (92_816_896, 7.678034e08),
    10: (124_049_280, 1.081651e09),
    12: (158_492_928, 1.444258e09),
    14: (196_147_840, 1.855623e09),
    16: (237_014_016, 2.315747e09),
    18: (281_091_456, 2.824630e09),
    20: (328_380_160, 3.382272e09),
}
#: its optima: FLOPs -> (parameters, tokens) with physical and with usage-weighted parameters
PUBLISHED_OPTIMA = {
    "physical": {
        1e18: (116_180_734, 1_009_724_988),
        2e18: (159_155_139, 1_482_003_055),
        5e18: (214_639_515, 2_263_974_151),
        1e19: (295_598_854, 3_351_493_312),
    },
    "usage": {
        1e18: (172_302_833, 1_006_703_553),
        2e18: (247_645_826, 1_485_003_445),
        5e18: (350_724_715, 2_268_943_864),
        1e19: (510_828_415, 3_338_573_361),
    },
}


def table_of_sizes() -> pd.DataFrame:
    """One row a size: width, heads, parameters, usage-weighted parameters, FLOPs per token by the log's formula, and
    its printed values beside them."""
    rows = []
    for size, (parameters, flops) in PUBLISHED_SIZES.items():
        cfg = preset(f"looped-nanochat-s{size}")
        counts = count(cfg)
        own = {"parameters": counts.n_params, "usage": counts.n_usage, "FLOPs / token": counts.published["003"]}
        printed = {"printed parameters": parameters, "printed FLOPs / token": flops}
        rows.append({"size": size, "width": cfg.width, "heads": cfg.heads, **own, **printed})
    return pd.DataFrame(rows).set_index("size")


def excluded_shares() -> dict[str, float]:
    """Per cent of Chinchilla's training FLOPs per token that the log's formula leaves out, by size: the embedding as a
    product with one-hot rows, 6 V d, and the softmax, 9 heads x S for each use of a layer (Chinchilla, App. F)."""
    shares = {}
    for size, (_, flops) in PUBLISHED_SIZES.items():
        cfg = preset(f"looped-nanochat-s{size}")
        uses = cfg.prelude + cfg.mean_loops * cfg.recur + cfg.coda
        left_out = 6 * cfg.vocab_size * cfg.width + 9 * cfg.heads * cfg.context * uses
        shares[f"s{size}"] = 100 * left_out / (flops + left_out)
    return shares


def model(p: UsageWeighted, width: int) -> ModelConfig:
    """003's model at a width: 2/4/2 layers, r = 4."""
    shape = dict(width=width, heads=head_count(width, p.head_dim, "widths"), mlp_width=4 * width)
    return preset("looped-nanochat-s8", vocab_size=p.vocab_size, context=p.context, **shape)


def grid(p: UsageWeighted) -> dict[Label, RunConfig]:
    """("... FLOPs", budget, width, seed) -> run, for every budget of FLOPs as 003 counts them, its widths, and every
    seed, by nanochat's optimiser. Raises InputError where a budget buys fewer than ten steps."""

    def run(width: int, budget: float, seed: int) -> RunConfig:
        return budgets.run(p, model(p, width), budget, seed, paper="003", like="looped-nanochat-s8")

    return {
        (f"{rate(budget)} FLOPs", budget, width, seed): run(width, budget, seed)
        for budget in sorted(p.widths)
        for width in p.widths[budget]
        for seed in p.seeds
    }


def frame(results: Iterable[RunResult], plan: dict[Label, RunConfig]) -> pd.DataFrame:
    """One row a finished run of ``grid``: what its label says, ``size``, and the loss in nats per token."""
    return finished(results, plan, ("group", "budget", "width", "seed"), size)


def size(cfg: RunConfig) -> dict[str, float]:
    """Physical and usage-weighted parameters, D tokens."""
    counts = count(cfg.model, cfg.data.context)
    return {"physical": counts.n_params, "usage": counts.n_usage, "D": cfg.tokens}


def optima(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a definition of N, a budget and a seed: the minimum of the parabola of the loss in log N, the tokens
    there, and the ratio D / N; nan where the minimum lies outside the widths trained."""
    parts = []
    for definition in PUBLISHED_OPTIMA:
        sized = runs.assign(N=runs[definition], F=runs["budget"] / runs["D"])
        found = isoflop.optima(sized, ["budget", "seed"])
        found.loc[~found["inside"], ["N", "D", "loss"]] = np.nan
        parts.append(found.assign(ratio=found["D"] / found["N"], **{"N is": definition}))
    return pd.concat(parts, ignore_index=True)[["N is", "budget", "seed", "N", "D", "ratio", "loss"]]


def published_optima() -> pd.DataFrame:
    """The log's own two tables, as ``optima`` gives ours."""
    return pd.DataFrame(
        [
            {"N is": definition, "budget": budget, "N": N, "D": D, "ratio": D / N}
            for definition, table in PUBLISHED_OPTIMA.items()
            for budget, (N, D) in table.items()
        ]
    )


def ratios(optima: pd.DataFrame, definition: str) -> pd.Series:
    """The mean of the optimal ratio over budgets, one a seed; nan where a budget has no optimum."""
    own = optima[optima["N is"] == definition]
    return own.groupby("seed")["ratio"].agg(lambda ratio: ratio.mean(skipna=False))


def drift(optima: pd.DataFrame, definition: str) -> float:
    """The exponent b of ratio ~ C^b over the budgets that have an optimum, 0 for a ratio that stays; nan below two."""
    line = optima[optima["N is"] == definition].dropna()
    return log_slope(line["budget"], line["ratio"])
