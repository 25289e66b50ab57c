"""Does 000's base rate serve everywhere (App. D)? Losses near it, by parabolas in the log rate."""

import numpy as np
import pandas as pd

from lib.fit.noise import Noise


def parabolas(runs: pd.DataFrame, base: float, n: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """loss = level + slope x + bend x^2, x = log(rate / base rate): level and slope of each (architecture, condition),
    bend of each architecture, in columns [1 + n]: the estimate, then its n draws. These have normal noise, as large as
    all parabolas together leave over.

    The conditions of an architecture share the bend, so that three rates each leave something over. runs: columns group
    (architecture), condition, lr and loss, each run once."""
    x, loss = np.log(runs["lr"].to_numpy(float) / base)[:, None], runs["loss"].to_numpy()
    cell, cells = pd.MultiIndex.from_frame(runs[["group", "condition"]]).factorize()
    group, groups = runs["group"].factorize()
    of_cell, of_group = np.eye(len(cells))[cell], np.eye(len(groups))[group]
    design = np.hstack([of_cell, of_cell * x, of_group * x**2])
    solved = np.linalg.pinv(design)
    best = solved @ loss
    noise = Noise.left_over([loss - design @ best], design.shape[1])
    draws = best + noise.draws(n, len(runs), np.random.default_rng(seed)) @ solved.T
    level, slope, bend = np.split(np.vstack([best, draws]), [len(cells), 2 * len(cells)], axis=1)
    return pd.DataFrame(level, columns=cells), pd.DataFrame(slope, columns=cells), pd.DataFrame(bend, columns=groups)
