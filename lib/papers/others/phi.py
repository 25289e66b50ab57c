"""Does phi carry over? The joint law of 000 on other groups' runs, and what tied passes gain beside own weights.
And whether the fit that 000 prints reaches the optimum of its own objective."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from lib.base.statistics import percentile_interval
from lib.fit.fits import bootstrap, cell_signs, fit, fit_joint, flipped
from lib.fit.laws import JOINT, JOINT_AT_ONE_D
from lib.fit.optimum import DELTA, huber
from lib.papers.isodepth.designs import PUBLISHED
from lib.papers.isodepth.readings import joint_arrays


def tokens_a_parameter(runs: pd.DataFrame) -> pd.Series:
    """D over the parameters of the blocks, each counted once."""
    return runs["D"] / (runs["n_once"] + runs["n_rec"])


def few_and_many(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The runs with few and with many tokens a parameter, halves at the median."""
    ratio, group = tokens_a_parameter(runs), runs["group"].iloc[0]
    few = ratio <= ratio.median()
    return {
        f"{group}: {name}, {x.min():.0f} to {x.max():.0f}": runs.loc[x.index]
        for name, x in {"few": ratio[few], "many": ratio[~few]}.items()
    }


def of_sets(sets: Mapping[Any, pd.DataFrame], resamples: int, seed: int) -> pd.DataFrame:
    """phi of each set of runs by the joint law: one row a set, whose ``group`` is that of its runs, how many runs there
    are, phi, its 95 % interval (low, high), and R2.

    The interval is of a bootstrap of (budget, arm) cells, as 000's of (budget, r). Sets that all have as many tokens
    have few sizes: by the law at one D, what it leaves over turned size by size (``fits.flipped``)."""
    rows = {}
    for name, runs in sets.items():
        if runs["D"].max() < 1.02 * runs["D"].min():
            law = fit(JOINT_AT_ONE_D, (runs["n_once"], runs["n_rec"], runs["r"]), runs["loss"])
            draws = [one.params["phi"] for one in flipped(law, cell_signs(runs[["width"]], resamples, seed))]
        else:
            arrays, cells = joint_arrays(runs), runs[["budget", "arm" if "arm" in runs else "r"]]
            law = fit_joint(*arrays)
            draws = bootstrap(fit_joint, arrays, cells, resamples, seed)["phi"].tolist()
        low, high = percentile_interval(draws)
        rows[name] = {
            "group": runs["group"].iloc[0],
            "runs": len(runs),
            "phi": law.params["phi"],
            "low": low,
            "high": high,
            "R2": law.r2,
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def tied_share(loops: pd.DataFrame, noise: float, resamples: int, seed: int) -> pd.DataFrame:
    """How much of what passes with own weights gain do tied passes gain? One row a (depth, loops): tokens a parameter
    of one pass, gains tied and untied in nats, their ratio ``share``, and its 95 % interval, low and high, where a
    run's loss has a standard deviation of ``noise`` nats.

    (L_1 - L_tied) / (L_1 - L_untied). No phi below 1 lets it pass 1: tied passes would have the fewer effective
    parameters."""
    tuned = loops[loops["recipe"] == "tuned"]
    losses = tuned.pivot(index=["depth", "loops"], columns="arm", values="loss").dropna()
    one = tuned[tuned["loops"] == 1].set_index("depth")
    table = losses.join(one["loss"].rename("one"), how="inner").join(tokens_a_parameter(one).rename("ratio"))
    tied, untied = table["one"] - table["tied"], table["one"] - table["untied"]
    of_one, of_tied, of_untied = np.random.default_rng(seed).normal(0.0, noise, (3, resamples, len(table)))
    shares = (tied.to_numpy() + of_one - of_tied) / (untied.to_numpy() + of_one - of_untied)
    low, high = np.quantile(shares, [0.025, 0.975], axis=0)
    return pd.DataFrame(
        {"tokens a parameter": table["ratio"], "tied": tied, "untied": untied, "share": tied / untied}
    ).assign(low=low, high=high)


def authors_fit(grid: pd.DataFrame, resamples: int, seed: int) -> pd.DataFrame:
    """The objective of the joint law that 000 prints and of ours on the same points, its ``grid``: a column with how
    many points; printed, ours, and how much lower ours is; then each constant, printed and ours with its 95 % interval
    (low, high) by a bootstrap of (budget, r) cells as in the paper."""
    arrays = joint_arrays(grid)
    own, draws = fit_joint(*arrays), bootstrap(fit_joint, arrays, grid[["budget", "r"]], resamples, seed)
    theirs = float(huber(np.log(JOINT.loss(PUBLISHED, *own.inputs) / own.loss), DELTA).sum())
    row = {"points": len(grid), "printed": theirs, "ours": own.objective, "lower": 1 - own.objective / theirs}
    for name, value in PUBLISHED.items():
        low, high = percentile_interval(draws[name])
        row |= {
            f"{name}, printed": value,
            f"{name}, ours": own.params[name],
            f"{name}, ours low": low,
            f"{name}, ours high": high,
        }
    return pd.DataFrame(pd.Series(row, name="000, joint")).rename_axis(columns="fit")
