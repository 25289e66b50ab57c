"""Does one learning rate serve everywhere? The best rate of each condition, and what a kept one costs there.

A parameterisation transfers if the optimum stays where it is (000, App. D.2; 002, Fig. 5; 004, mu-P figure).
"""

import numpy as np
import pandas as pd

from lib.errors import InputError
from lib.fit import isoflop_optimum


def best_rates(runs: pd.DataFrame, by: list[str], kept: float) -> pd.DataFrame:
    """One row a condition, a combination of the columns ``by`` of runs (which has ``lr`` and ``loss`` besides): the
    rate at the minimum of the parabola of the loss in log lr, the standard error of its logarithm (``stderr``, nan
    where three rates leave none), whether it lies ``inside`` the rates tried, and ``regret``: nats that the rate
    ``kept`` loses on the best one tried (000, Fig. 7). Seeds are averaged first; a condition without the kept rate has
    no regret.
    """
    rows = []
    for condition, cell in runs.groupby(by, sort=False):
        losses = cell.groupby("lr")["loss"].mean()
        try:
            lr, _, stderr = isoflop_optimum(losses.index, losses)
        except InputError:
            lr = stderr = np.nan
        regret = losses[kept] - losses.min() if kept in losses.index else np.nan
        inside = bool(losses.index.min() <= lr <= losses.index.max())
        found = {"lr": lr, "stderr": stderr / lr, "inside": inside, "best tried": losses.idxmin(), "regret": regret}
        rows.append({**dict(zip(by, condition, strict=True)), **found})
    return pd.DataFrame(rows)
