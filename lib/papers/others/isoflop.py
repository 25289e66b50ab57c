"""Iso-FLOP optima and Chinchilla laws of other groups' runs, and whether the fits that authors print reach the optimum
of their own objective."""

from typing import Any

import numpy as np
import pandas as pd

from lib.base.statistics import percentile_interval
from lib.fit import isoflop
from lib.fit.fits import Fit, fit_chinchilla, fit_joint, fresh_fits, objective_at
from lib.fit.laws import CHINCHILLA, JOINT
from lib.fit.noise import Noise
from lib.papers.isodepth.designs import PUBLISHED
from lib.papers.isodepth.readings import a_D, joint_arrays

#: tokens a stored parameter at the optimum of a budget, as arXiv 2609.19107 prints it
PRINTED_RATIO = {"vanilla": 5.0, "operator_1": 6.0}
#: Chinchilla's law on the points of its figure, fitted by Besiroglu et al. (arXiv 2404.10102) to all but five
BESIROGLU = dict(A=482.01, B=2085.43, E=1.8172, alpha=0.3478, beta=0.3658)
LEFT_OUT = 5
#: of the open sets: losses that are not in nats a token
NOT_NATS = ("llama_3__raw_loss",)

# ---- arXiv 2609.19107 ------------------------------------------------------------------------------------------------


def optima(runs: pd.DataFrame) -> pd.DataFrame:
    """One row an arm and budget: the minimum of the parabola of the loss in log N, N the stored parameters
    (``isoflop.optima``), and ``ratio``, tokens a stored parameter there."""
    found = isoflop.optima(runs, ["arm", "budget"])
    return found.assign(ratio=found["D"] / found["N"])


def gaps(optima: pd.DataFrame, than: str) -> pd.DataFrame:
    """Loss at the optimum above that of another arm, in nats: one row a budget, one column an arm."""
    losses = optima.pivot(index="budget", columns="arm", values="loss")
    return losses.sub(losses[than], axis=0).drop(columns=than)


def fresh_optima(runs: pd.DataFrame, resamples: int, seed: int) -> list[pd.DataFrame]:
    """``optima`` of so many sets of runs that might have been: the parabolas, and noise anew as large as they leave
    over."""
    curve, left, parameters = np.empty(len(runs)), [], 0
    for _, at in runs.reset_index(drop=True).groupby(["arm", "budget"]).groups.items():
        cell = runs.iloc[at]
        x = np.log(cell["N"].to_numpy())
        curve[at] = np.polynomial.Polynomial.fit(x, cell["loss"], 2)(x)
        left.append(cell["loss"].to_numpy() - curve[at])
        parameters += 3
    noise = Noise.left_over(left, parameters).draws(resamples, len(runs), np.random.default_rng(seed))
    return [optima(runs.assign(loss=curve + shifts)) for shifts in noise]


def ratios(optima: pd.DataFrame) -> dict[str, float]:
    """Arm -> tokens a stored parameter at the optimum, the geometric mean over the budgets."""
    return np.exp(np.log(optima["ratio"]).groupby(optima["arm"]).mean()).to_dict()


def own_laws(runs: pd.DataFrame, resamples: int, seed: int) -> pd.DataFrame:
    """Chinchilla's law of each arm in its stored parameters: its constants and R2; a_D = beta / (alpha + beta), the
    exponent of D* by it, and its 95 % interval over fresh runs, low and high."""
    by = {str(arm): (own["N"], own["D"], own["loss"]) for arm, own in runs.groupby("arm")}
    laws = {arm: fit_chinchilla(*arrays) for arm, arrays in by.items()}
    fresh = fresh_fits(laws, {arm: arrays[:-1] for arm, arrays in by.items()}, resamples, seed)
    rows = {}
    for arm, law in laws.items():
        low, high = percentile_interval([a_D(one[arm]) for one in fresh])
        rows[arm] = {**law.params, "R2": law.r2, "a_D": a_D(law), "low": low, "high": high}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("arm")


# ---- do authors' fits reach their own optimum? -----------------------------------------------------------------------


def authors_fits(grid: pd.DataFrame, outside: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The objective of the fits that authors print and of ours on the same points: one row a fit; points, printed,
    ours, and how much lower ours is; then each constant, printed and ours.

    000's joint law on its ``grid``; Chinchilla's by Besiroglu et al. where ``chinchilla_figure`` is in ``outside``."""
    rows = {"000, joint": _beside(JOINT, PUBLISHED, joint_arrays(grid), fit_joint(*joint_arrays(grid)))}
    if "chinchilla_figure" in outside:
        points = chinchilla_points(outside["chinchilla_figure"])
        rows["Besiroglu et al., Chinchilla"] = _beside(CHINCHILLA, BESIROGLU, points, fit_chinchilla(*points))
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("fit")


def chinchilla_points(figure: pd.DataFrame) -> tuple[pd.Series, pd.Series, pd.Series]:
    """N, D and loss of the points of Chinchilla's figure without the five highest losses, as Besiroglu et al."""
    kept = figure.sort_values("loss").iloc[:-LEFT_OUT]
    return kept["N"], kept["D"], kept["loss"]


def _beside(law: Any, printed: dict[str, float], arrays: tuple[pd.Series, ...], own: Fit) -> dict[str, float]:
    theirs = objective_at(law, printed, arrays[:-1], arrays[-1])
    constants = {
        f"{name}, {whose}": p[name] for name in printed for whose, p in (("printed", printed), ("ours", own.params))
    }
    return {
        "points": len(own.loss),
        "printed": theirs,
        "ours": own.objective,
        "lower": 1 - own.objective / theirs,
        **constants,
    }


# ---- open sets -------------------------------------------------------------------------------------------------------


def open_sets(table: pd.DataFrame) -> pd.DataFrame:
    """The exponent of N* in C of each experiment of ``isoflops_open`` without what its collectors flag: by Chinchilla's
    law, a = beta / (alpha + beta), with alpha and beta; and by parabolas in log N, with its 95 % interval, low and high
    (Student's t over the budgets)."""
    rows = {}
    kept = table[~table["outlier"].astype(bool) & ~table["experiment"].isin(NOT_NATS)]
    for name, runs in kept.groupby("experiment"):
        law = fit_chinchilla(runs["N"], runs["D"], runs["loss"])
        cells = runs.rename(columns={"budget_flops": "budget"}).assign(F=lambda cell: cell["budget"] / cell["D"])
        best = isoflop.optima(cells.assign(width=np.nan), ["budget"])
        by_parabolas, (low, high) = isoflop.exponent(best, "N")
        p = law.params
        rows[str(name)] = {
            "runs": len(runs),
            "alpha": p["alpha"],
            "beta": p["beta"],
            "by the law": a_D(law),
            "by parabolas": by_parabolas,
            "low": low,
            "high": high,
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("experiment")
