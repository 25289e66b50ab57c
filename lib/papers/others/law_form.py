"""Do losses add? How the gap between loops and one goes with tokens, and which of two laws foretells runs better."""

from collections.abc import Iterable

import numpy as np
import pandas as pd


def gaps(losses: pd.DataFrame) -> pd.DataFrame:
    """A row for each row of ``losses`` and r > 1 among its columns, which are numbers of loops: ``gap``, the loss of r
    loops less that of one."""
    return (
        losses.drop(columns=1).sub(losses[1], axis=0).melt(value_name="gap", ignore_index=False).dropna().reset_index()
    )


def slopes(gaps: pd.DataFrame, by: list[str]) -> pd.Series:
    """Of the gap in ln D by least squares, nats an e-fold, for all that is alike in ``by``."""
    return gaps.groupby(by)[["D", "gap"]].apply(lambda own: np.polyfit(np.log(own["D"]), own["gap"], 1)[0])


def by_width(slopes: pd.Series) -> pd.DataFrame:
    """One row a width: the mean of ``slopes`` by width, r and seed, its standard error, and the degrees of freedom that
    this is known with. It rests on the variance between seeds of a width and r, which is pooled over all of them."""
    spread, own = slopes.groupby(["width", "r"]).agg(["var", "size"]), slopes.groupby("width")
    error, freedom = np.sqrt(spread["var"].mean() / own.size()), (spread["size"] - 1).sum()
    return pd.DataFrame({"slope": own.mean(), "error": error, "freedom": freedom})


def better(left_out: pd.DataFrame) -> tuple[float, float, int]:
    """The mean over budgets of the log ratio of errors, additive over coupled, on runs of a budget that neither has
    seen, its standard error, and how many budgets have the three runs that count. left_out: of a ``Bakeoff``."""
    off = left_out.query("by == 'budget' and law in ['additive', 'coupled']")
    errors = off.groupby(["group", "law"])["off"].agg(lambda x: np.sqrt(np.mean(x**2))).unstack()
    ratios = np.log(errors["additive"] / errors["coupled"])[off.groupby("group")["run"].nunique() >= 3]
    return ratios.mean(), ratios.std() / np.sqrt(len(ratios)), len(ratios)


def student(known: Iterable[float], n: int, random: np.random.Generator) -> list[float]:
    """n draws of what a mean may be. known: the mean, its standard error, and the degrees of freedom of this."""
    mean, error, freedom = known
    return (mean + error * random.standard_t(freedom, n)).tolist()
