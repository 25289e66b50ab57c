"""CART (arXiv 2606.01495): do more loops help, at few and at many tokens, and what is said by its seeds?

Losses are log perplexities on Wikipedia. Where three seeds were trained the table has their mean."""

from typing import Any

import numpy as np
import pandas as pd

from lib.fit.fits import power_law

#: standard deviation of a seed's perplexity over its mean, at width 1024 (the table of the 12-layer baseline)
SEED_SD = 0.08 / 20.35
#: stage -> loops of the models along which perplexity is a power of the width, and its exponent as printed
PRINTED = {1: (8, 0.458), 2: (6, 0.51)}


def by_loops(cart: pd.DataFrame, resamples: int, seed: int) -> list[pd.DataFrame]:
    """One row a (stage, width), one column a number of loops: loss of the models with six blocks before the loop; and
    the same with the noise of other seeds, as many as each row is a mean of, ``resamples`` times."""
    same = cart[(cart["arm"] == "cart") & (cart["prelude"] == 6) & (cart["r"] > 1)]
    noise = np.random.default_rng(seed).normal(0.0, 1.0, (resamples, len(cart)))[:, cart.index.isin(same.index)]
    shifts = np.vstack([np.zeros(len(same)), noise * (SEED_SD / np.sqrt(same["seeds"].to_numpy()))])
    index = pd.MultiIndex.from_frame(same[["stage", "width", "r"]])
    tables: Any = pd.DataFrame((same["loss"].to_numpy() + shifts).T, index).unstack("r")
    return [tables[draw] for draw in range(resamples + 1)]


def gain(losses: Any, stage: int, width: int, few: int, many: int) -> float:
    """How much lower the loss is with many loops than with few, in nats; losses: of ``by_loops``, or its
    ``to_dict``."""
    return float(losses[few][stage, width] - losses[many][stage, width])


def gains(losses: pd.DataFrame) -> pd.DataFrame:
    """One row a width: what eight loops gain over two at 4.9e7 tokens, and ten over six at 1e9."""
    first, then = losses.loc[1], losses.loc[2]
    return pd.DataFrame(
        {"4.9e7 tokens, 2 to 8 loops": first[2] - first[8], "1e9 tokens, 6 to 10 loops": then[6] - then[10]}
    )


def width_laws(losses: pd.DataFrame) -> pd.DataFrame:
    """Perplexity ~ width^-x: one row a stage; loops, x as printed and ours with its standard error."""
    rows = {}
    for stage, (loops, printed) in PRINTED.items():
        at = losses.loc[stage][loops].dropna()
        _, exponent, stderr = power_law(at.index.to_numpy(float), np.exp(at.to_numpy()))
        rows[stage] = {"loops": loops, "printed": printed, "ours": -exponent, "stderr": stderr}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("stage")
