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


def by_loops(cart: pd.DataFrame) -> pd.DataFrame:
    """One row a (stage, width), one column a number of loops: loss of the models with six blocks before the loop."""
    return _table(cart, cart[["loss"]])["loss"]


def fresh_by_loops(cart: pd.DataFrame, resamples: int, seed: int) -> list[pd.DataFrame]:
    """``by_loops`` with the noise of other seeds, as many as each row is a mean of."""
    sd = SEED_SD / np.sqrt(cart["seeds"].to_numpy())
    shifts = np.random.default_rng(seed).normal(0.0, 1.0, (resamples, len(cart))) * sd
    tables = _table(cart, pd.DataFrame((cart["loss"].to_numpy() + shifts).T, cart.index))
    return [tables[draw] for draw in range(resamples)]


def _table(cart: pd.DataFrame, losses: pd.DataFrame) -> Any:
    """One row a (stage, width), one column of each column of losses and number of loops."""
    same = (cart["arm"] == "cart") & (cart["prelude"] == 6) & (cart["r"] > 1)
    index = pd.MultiIndex.from_frame(cart.loc[same, ["stage", "width", "r"]])
    return losses[same].set_axis(index).unstack("r")


def gain(losses: Any, stage: int, width: int, few: int, many: int) -> float:
    """How much lower the loss is with many loops than with few, in nats; losses: ``by_loops``, or its ``to_dict``."""
    return float(losses[few][stage, width] - losses[many][stage, width])


def gains(losses: pd.DataFrame) -> pd.DataFrame:
    """One row a width: what eight loops gain over two at 4.9e7 tokens, and ten over six at 1e9."""
    widths = losses.index.get_level_values("width").unique()
    columns = {"4.9e7 tokens, 2 to 8 loops": (1, 2, 8), "1e9 tokens, 6 to 10 loops": (2, 6, 10)}
    return pd.DataFrame(
        {name: [gain(losses, stage, w, few, many) for w in widths] for name, (stage, few, many) in columns.items()},
        index=widths,
    )


def width_laws(losses: pd.DataFrame) -> pd.DataFrame:
    """Perplexity ~ width^-x: one row a stage; loops, x as printed and ours with its standard error."""
    rows = {}
    for stage, (loops, printed) in PRINTED.items():
        at = losses.loc[stage][loops].dropna()
        _, exponent, stderr = power_law(at.index.to_numpy(float), np.exp(at.to_numpy()))
        rows[stage] = {"loops": loops, "printed": printed, "ours": -exponent, "stderr": stderr}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("stage")
