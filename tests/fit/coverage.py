"""How often nominal 95 % intervals hold the truth, on designs whose losses have normal noise of .003 in logs:
`python -m tests.fit.coverage 400` prints the tables of `fits.bootstrap` and `fits.isoflop_optimum` (an hour).
`of_misfit` has those of a law that is not the one that the losses follow."""

import sys

import numpy as np
import pandas as pd
import scipy.stats

from lib.fit import fits, laws
from lib.papers.isodepth import readings
from lib.papers.isodepth.designs import PUBLISHED
from lib.papers.others import losses
from tests.cells import function
from tests.fit.known import iso_depth_grid


def at_budgets(budgets, sizes) -> tuple[laws.Law, pd.DataFrame, list[str]]:
    """Sizes evenly spread in logs at each budget, the optimum inside: law, inputs, and the columns of a cell."""
    rows = [(C, N, C / (6 * N)) for C in budgets for N in np.geomspace(0.06, 1, sizes) * C**0.5]
    return laws.CHINCHILLA, pd.DataFrame(rows, columns=["budget", "N", "D"]), ["budget", "N"]


DESIGNS = {
    "five budgets, 35": at_budgets(np.geomspace(1e18, 1e20, 5), 7),
    "two budgets, 10": at_budgets([1e18, 1e20], 5),
    "000, 116": (laws.JOINT, iso_depth_grid(), ["budget", "r"]),
    "one budget, 24": at_budgets([1e19], 24),
    "000, 116, coupled": (laws.coupled(laws.JOINT, "free"), iso_depth_grid(), ["budget", "r"]),
}
TRUTH = {**PUBLISHED, "c": 0.4}


def noisy(exact: np.ndarray, seed: int) -> np.ndarray:
    return exact * np.exp(np.random.default_rng(seed).normal(0, 0.003, len(exact)))


def of_laws(name: str, seeds: int, resamples: int = 200) -> pd.DataFrame:
    """One row a way, one column a parameter: how many percentile intervals, of those that there are, hold it."""
    law, frame, by = DESIGNS[name]
    inputs, rows = [frame[column].to_numpy(float) for column in law.inputs], []
    for seed in range(seeds):
        arrays = [*inputs, noisy(law.loss(TRUTH, *inputs), seed)]
        own, signs = fits.fit(law, inputs, arrays[-1]), fits.cell_signs(frame[by], resamples, seed)
        draws = {
            "bootstrap": fits.bootstrap(lambda *x: fits.fit(law, x[:-1], x[-1]), arrays, frame[by], resamples, seed),
            "fresh_fits": pd.DataFrame([each[0].params for each in fits.fresh_fits({0: own}, resamples, seed)]),
            "flipped": pd.DataFrame([each.params for each in fits.flipped(own, signs)]),
        }
        for way, found in draws.items():
            low, high, truth = *found.quantile([0.025, 0.975]).to_numpy(), found.columns.map(TRUTH)
            held = np.where(np.isnan(low), np.nan, (low <= truth) & (truth <= high))
            rows.append({"way": way, **dict(zip(found, held, strict=True))})
    return pd.DataFrame(rows).groupby("way", sort=False).mean()


def of_optima(sizes: int, seeds: int) -> tuple[float, float]:
    """How many intervals of N* at a budget hold its closed form, by the normal law and by Student's t."""
    p, (_, frame, _) = PUBLISHED, at_budgets([1e19], sizes)
    best = (p["alpha"] * p["A"] / (p["beta"] * p["B"]) * (1e19 / 6) ** p["beta"]) ** (1 / (p["alpha"] + p["beta"]))
    exact = laws.CHINCHILLA.loss(p, frame["N"], frame["D"])
    found = np.array([fits.isoflop_optimum(frame["N"], noisy(exact, seed)) for seed in range(seeds)])
    off = np.abs(found[:, 0] - best) / found[:, 2]
    return float(np.mean(off < 1.96)), float(np.mean(off < scipy.stats.t.ppf(0.975, sizes - 3)))


def of_misfit(sets: int, resamples: int = 200) -> pd.DataFrame:
    """Losses follow the coupled law that desk's grid has, with normal noise as large as its seeds' at each budget, and
    the additive law is fitted. Of each number and way to draw: how often its interval holds what the coupled law has
    (``truth``), and what the additive law has without noise (``limit``), and how wide it is in the median. 200 sets
    stand in docs/verdicts.md."""
    runs = losses.table().query("source == 'desk' and set == 'isodepth_isoflop' and seed <= 314")
    runs = runs.rename(columns={"N_once": "n_once", "N_rec": "n_rec"}).reset_index(drop=True)
    logs = np.log(runs["loss"])
    spread = logs.groupby([runs["budget"], runs["r"], runs["width"]]).transform("std")
    spread = np.sqrt((spread**2).groupby(runs["budget"]).transform("mean"))
    coupled = fits.fit_joint(*readings.joint_arrays(runs), coupling="free")
    exact = coupled.predict(*coupled.inputs)

    joint_law = function("recurrence_exponent", "joint_law")
    phi_and_drift = function("recurrence_exponent", "phi_and_drift")
    rests_on_what = function("recurrence_exponent", "rests_on_what", joint_law=joint_law, phi_and_drift=phi_and_drift)
    without = runs.assign(loss=exact)
    limit = phi_and_drift([joint_law(without)], without).iloc[0]
    phi = coupled.params["phi"]
    truth = pd.Series(
        coupled.params | {"phi, lower half": phi, "phi, upper half": phi, "drift": 0, "drift, all free": 0}
    )
    rows = []
    for seed in range(sets):
        noise = np.random.default_rng(seed).normal(0, spread)
        found = rests_on_what(runs.assign(loss=exact * np.exp(noise)), 1, resamples, seed)
        for way in ("signs", "cells", "seeds"):
            low, high = found[f"{way} low"], found[f"{way} high"]
            held = {name: (low <= of) & (of <= high) for name, of in (("truth", truth[low.index]), ("limit", limit))}
            rows.append(pd.DataFrame({**held, "width": high - low}).assign(way=way).rename_axis("of"))
    by = pd.concat(rows).groupby(["of", "way"], sort=False)
    return by[["truth", "limit"]].mean().assign(width=by["width"].median())


if __name__ == "__main__":
    print({sizes: of_optima(sizes, 4000) for sizes in (5, 7, 12)})
    for name in DESIGNS:
        print(name, of_laws(name, int(sys.argv[1])).round(3), sep="\n", flush=True)
