"""000 judged on its own runs: the losses that its authors published (data/README.md), and what is read off them.

Numbers without a unit are nats per token. ``sets`` names the groups of runs that the paper fits its joint law to.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from lib.base.errors import InputError
from lib.base.statistics import percentile_interval
from lib.fit import isoflop, r2_of_gaps
from lib.fit.fits import Fit, bootstrap, fit_joint, fresh_fits, split
from lib.flops import count
from lib.papers.isodepth import readings
from lib.papers.isodepth.designs import intervention
from lib.presets import preset

DATA = Path(__file__).parent / "data"
#: where the injection's parameters are counted -> in words
ACCOUNTINGS = {
    "authors": "once, as the authors' tables have it",
    "once": "once, as lib.flops counts it",
    "loop": "in the loop, as everywhere else here",
}

# ---- the runs --------------------------------------------------------------------------------------------------------


def runs(accounting: str = "authors") -> pd.DataFrame:
    """One row a run: probe, budget, r, width, seed, n_once, n_rec, N, F, D, loss as ``readings.frame`` has them, and
    ``error``, how far the loss may be misread. ``accounting`` says whether n_once or n_rec has the injection; N, their
    sum as the paper's Table 6 has it, is the same by each."""
    if accounting not in ACCOUNTINGS:
        raise InputError(f"accounting: {accounting!r} is not known, use one of {', '.join(ACCOUNTINGS)}")
    table = pd.read_csv(DATA / "runs.csv").rename(
        columns={
            "budget_flops": "budget",
            "flops_per_token": "F",
            "D_tokens": "D",
            "loss_nats": "loss",
            "error_nats": "error",
        }
    )
    table["probe"] = table["set"].str.replace("_", "-")
    if accounting == "authors":
        table = table.assign(n_once=table["n_once_authors"], n_rec=table["n_rec_authors"])
    if accounting == "once":
        models = zip(table["probe"], table["r"], table["width"] // 64, strict=True)
        moved = [count(preset(f"isodepth-s{s}-r{r}", **intervention(probe, r))).n_injection for probe, r, s in models]
        table = table.assign(n_once=table["n_once"] + moved, n_rec=table["n_rec"] - moved)
    return table.assign(seed=0)[["probe", *readings.COLUMNS, "error"]]


def sets(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The runs of each of the paper's joint fits. A probe's looped runs are fitted with the plain ones of the baseline
    at the same budgets (Sec. 5)."""
    grid = table[table["probe"] == "baseline"]
    low, high = (grid[half] for half in split(grid["budget"]))
    four = grid[grid["budget"] <= table.loc[table["probe"] != "baseline", "budget"].max()]
    plain = four[four["r"] == 1]
    cut, lanes = (pd.concat([plain, table[table["probe"] == probe]]) for probe in ("truncated", "hyper-connections"))
    return {
        "all": grid,
        "lower half": low,
        "upper half": high,
        "lower four": four,
        "truncated": cut,
        "truncated, without r = 2": cut[cut["r"] != 2],
        "hyper-connections": lanes,
    }


def families(table: pd.DataFrame) -> dict[int, pd.DataFrame]:
    """r -> the sizes of its models (``fit.isoflop.sizes``), by the table's accounting."""
    models = table.drop_duplicates(["r", "width"]).sort_values("width").rename(columns={"F": "flops"})
    return {
        r: models.loc[models["r"] == r, ["width", "n_once", "n_rec", "flops"]]
        for r in sorted(models["r"].unique().tolist())
    }


def minima(optima: pd.DataFrame) -> pd.DataFrame:
    """Ours (``readings.optima`` of the baseline) beside those that the authors print: one row a budget and r, with N
    and loss of both, how much larger our N is, and how much higher our loss."""
    printed = pd.read_csv(DATA / "minima.csv").set_axis(["budget", "r", "N printed", "loss printed"], axis=1)
    both = optima[["budget", "r", "N", "loss"]].merge(printed, on=["budget", "r"]).set_index(["budget", "r"])
    return both.assign(**{"N off": both["N"] / both["N printed"] - 1, "loss off": both["loss"] - both["loss printed"]})


def pair(table: pd.DataFrame) -> pd.DataFrame:
    """The two runs past the grid: width 2176 on 47e9 tokens, with the losses printed for them (App. I, Table 9)."""
    wide = table[(table["probe"] == "baseline") & (table["width"] == 2176) & table["r"].isin([1, 4])].sort_values("r")
    return wide.assign(D=47e9, budget=47e9 * wide["F"], loss=[2.047, 2.108], error=0.0005)


# ---- what the paper prints -------------------------------------------------------------------------------------------

#: (runs, number) -> where it stands, the number, its interval or bounds. The joint laws' tables are complete on the
#: project page
PRINTED: dict[tuple[str, str], tuple[str, float, float, float]] = {
    ("all", "phi"): ("Table 2", 0.459, 0.41, 0.53),
    ("all", "alpha"): ("Table 2", 0.199, np.nan, np.nan),
    ("all", "beta"): ("Table 2", 0.369, np.nan, np.nan),
    ("all", "E"): ("Table 2", 1.57, np.nan, np.nan),
    ("all", "R2"): ("Table 2", 0.9972, np.nan, np.nan),
    ("all", "R2, phi = 0"): ("Table 2", 0.9858, np.nan, np.nan),
    ("all", "R2, phi = 1"): ("Table 2", 0.9552, np.nan, np.nan),
    ("all", "rmse"): ("App. F.1", 0.010, np.nan, np.nan),
    ("all", "largest residual"): ("App. F.1", 0.036, np.nan, np.nan),
    ("all", "rank correlation with N"): ("App. F.1", 0.04, np.nan, np.nan),
    ("all", "rank correlation with D"): ("App. F.1", 0.05, np.nan, np.nan),
    ("lower half", "phi"): ("App. F.3", 0.44, np.nan, np.nan),
    ("upper half", "phi"): ("App. F.3", 0.49, np.nan, np.nan),
    ("lower four", "phi"): ("Table 3", 0.453, np.nan, np.nan),
    ("lower four", "R2"): ("Table 3", 0.9959, np.nan, np.nan),
    ("lower four", "a_D"): ("App. G.3", 0.63, np.nan, np.nan),
    ("truncated", "phi"): ("Table 3", 0.380, np.nan, np.nan),
    ("truncated", "R2"): ("Table 3", 0.9827, np.nan, np.nan),
    ("truncated", "a_D"): ("App. G.3", 0.65, np.nan, np.nan),
    ("truncated, without r = 2", "phi"): ("Table 3", 0.373, np.nan, np.nan),
    ("truncated, without r = 2", "R2"): ("Table 3", 0.9958, np.nan, np.nan),
    ("hyper-connections", "phi"): ("Table 3", 0.646, np.nan, np.nan),
    ("hyper-connections", "R2"): ("Table 3", 0.9900, np.nan, np.nan),
    ("hyper-connections", "a_D"): ("App. G.3", 0.60, np.nan, np.nan),
    ("r = 1", "a_D"): ("Sec. 4.2", 0.52, np.nan, np.nan),
    **{(f"r = {r}", "a_D"): ("Sec. 4.2", np.nan, 0.61, 0.67) for r in (2, 4, 8)},
    **{(f"r = {r}", "R2"): ("Sec. 4.2", np.nan, 0.997, np.nan) for r in (1, 2, 4, 8)},
    **{(f"r = {r}", "largest residual"): ("App. F.1", np.nan, np.nan, 0.007) for r in (1, 2, 4, 8)},
}

#: r -> least and most loss above the plain model's, over the budgets (Sec. 4.2)
BANDS = {2: (0.03, 0.06), 4: (0.05, 0.08), 8: (0.09, 0.12)}


def measured(table: pd.DataFrame, resamples: int, seed: int) -> pd.DataFrame:
    """The numbers of PRINTED and more of their kind, off the runs: one row a (runs, number); value, low, high.

    Intervals of the joint laws are bootstraps of (budget, r) cells (App. F.2), those of a recurrence's own law of
    fresh grids. Numbers that say how a law fits these very runs have none."""
    rows: dict[tuple[str, str], tuple[float, float, float]] = {}
    for name, own in sets(table).items():
        fit = fit_joint(*readings.joint_arrays(own))
        draws = bootstrap(fit_joint, readings.joint_arrays(own), own[["budget", "r"]], resamples, seed)
        draws["a_D"] = draws["beta"] / (draws["alpha"] + draws["beta"])
        for number, value in {**fit.params, "a_D": readings.a_D(fit)}.items():
            rows[name, number] = (value, *percentile_interval(draws[number]))
        quality = _quality(own, fit) | {"R2 of gaps": r2_of_gaps(fit, own[["budget", "width"]])}
        rows |= {(name, number): (value, np.nan, np.nan) for number, value in quality.items()}
    grid = sets(table)["all"]
    for phi in (0.0, 1.0):
        rows["all", f"R2, phi = {phi:g}"] = (fit_joint(*readings.joint_arrays(grid), phi=phi).r2, np.nan, np.nan)
    laws = readings.own_laws(grid)
    fresh = fresh_fits(laws, resamples, seed)
    for r, fit in laws.items():
        own = grid[grid["r"] == r]
        rows[f"r = {r}", "a_D"] = (readings.a_D(fit), *percentile_interval([readings.a_D(law[r]) for law in fresh]))
        rows |= {(f"r = {r}", number): (value, np.nan, np.nan) for number, value in _quality(own, fit).items()}
    return pd.DataFrame(rows, index=["value", "low", "high"]).T.rename_axis(["runs", "number"])


def _quality(own: pd.DataFrame, fit: Fit) -> dict[str, float]:
    return {
        "R2": fit.r2,
        "rmse": fit.rms_residual,
        "largest residual": float(np.abs(fit.off).max()),
        # of measured less predicted, as the paper has it
        "rank correlation with N": -float(spearmanr(fit.residuals, own["N"]).statistic),
        "rank correlation with D": -float(spearmanr(fit.residuals, own["D"]).statistic),
    }


def beside(found: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """``measured`` by some accountings beside what the paper prints: one row a printed number, and below each R2 of
    losses that of gaps."""
    rows = [(runs, x) for runs, number in PRINTED for x in [number, "R2 of gaps"][: 1 + (number == "R2")]]
    printed = pd.DataFrame(
        [PRINTED.get(row, [None] * 4) for row in rows],
        pd.MultiIndex.from_tuples(rows, names=["runs", "number"]),
        ["where", "paper", "paper low", "paper high"],
    )
    return printed.join(
        [own.add_prefix(f"{name} ").rename(columns={f"{name} value": name}) for name, own in found.items()]
    ).dropna(how="all")


# ---- noise and misfit ------------------------------------------------------------------------------------------------


def rms(values: pd.Series) -> float:
    return float(np.sqrt((values**2).mean()))


def scatter(table: pd.DataFrame) -> float:
    """Standard deviation of a run about the parabola of its probe, budget and r: the root of the cells' mean variance.
    It holds the noise of a seed, and what a parabola leaves out. Cells of three runs, which leave nothing, do not
    count."""
    cell = ["probe", "budget", "r"]
    enough = table[table.groupby(cell)["N"].transform("size") > 3]
    off = enough.assign(squared=(enough["loss"] - isoflop.parabolas(enough, cell)[0]) ** 2).groupby(cell)["squared"]
    return float(np.sqrt((off.sum() / (off.size() - 3)).mean()))
