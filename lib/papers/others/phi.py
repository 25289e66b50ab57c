"""Does phi carry over? The joint law of 000 on other groups' runs, by what could explain another phi: what the loop is
compared with, where parameters are counted, and how many tokens there are a parameter."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from lib.base.statistics import percentile_interval
from lib.fit.fits import bootstrap, cell_signs, fit, fit_joint, flipped
from lib.fit.laws import JOINT_AT_ONE_D
from lib.papers.isodepth import published
from lib.papers.isodepth.readings import joint_arrays
from lib.presets import preset

#: what r = 1 is -> the arms of arXiv 2609.19107, of which loop_2 alone loops. 000's plain models are as deep as its
#: looped ones and have no boundary
BASES = {
    "own weights, same boundary": ("untied_2", "loop_2"),
    "one pass, same boundary": ("operator_1", "loop_2"),
    "both of these": ("operator_1", "untied_2", "loop_2"),
    "as deep, no boundary": ("deep_vanilla", "loop_2"),
    "one pass, no boundary": ("vanilla", "loop_2"),
}
OWN, AS_DEEP = "own weights, same boundary", "as deep, no boundary"
#: what else counts as running once -> tables of width x vocabulary
COUNTED = {"blocks": 0, "blocks and head": 1, "blocks, head and token table": 2}
VOCABULARY = 50304  # of arXiv 2609.19107
THEIRS, OURS = "2609.19107", "000"

# ---- the joint law ---------------------------------------------------------------------------------------------------


def with_base(runs: pd.DataFrame, base: str) -> pd.DataFrame:
    """The looped runs of ``runs.isoflop`` and those that they are compared with."""
    return runs[runs["arm"].isin(BASES[base])]


def tokens_a_parameter(runs: pd.DataFrame) -> pd.Series:
    """D over the parameters of the blocks, each counted once."""
    return runs["D"] / (runs["n_once"] + runs["n_rec"])


def by_base(runs: pd.DataFrame, grid: pd.DataFrame, resamples: int, seed: int) -> pd.DataFrame:
    """phi by what a loop is compared with, beside 000's ``grid`` as a whole and with its plain models and r = 2 alone,
    which is what the others' loops are: columns group, runs, phi, low, high, R2."""
    rows = {base: _row(THEIRS, with_base(runs, base), resamples, seed) for base in BASES}
    rows["as deep, no boundary, r = 1 and 2"] = _row(OURS, grid[grid["r"] <= 2], resamples, seed)
    rows["as deep, no boundary, r = 1 to 8"] = _row(OURS, grid, resamples, seed)
    return _frame(rows, "r = 1 is")


def by_accounting(runs: pd.DataFrame, grid: pd.DataFrame, resamples: int, seed: int) -> pd.DataFrame:
    """phi by what counts as running once besides the blocks."""
    own, ours = with_base(runs, OWN), preset("isodepth-s8-r1").vocab_size
    rows = {}
    for group, table, vocabulary in ((THEIRS, own, VOCABULARY), (OURS, grid, ours)):
        for counted, tables in COUNTED.items():
            more = table.assign(n_once=table["n_once"] + tables * vocabulary * table["width"])
            rows[f"{group}: {counted}"] = _row(group, more, resamples, seed)
    return _frame(rows, "counted")


def by_regime(runs: pd.DataFrame, grid: pd.DataFrame, resamples: int, seed: int) -> pd.DataFrame:
    """phi of the runs with few and with many tokens a parameter, halves at the median; and 000's where it has as many
    as the others."""
    own, rows = with_base(runs, OWN), {}
    for group, table in ((THEIRS, own), (OURS, grid)):
        ratio = tokens_a_parameter(table)
        few = ratio <= ratio.median()
        for name, half in (("few", few), ("many", ~few)):
            about = f"{name}, {ratio[half].min():.0f} to {ratio[half].max():.0f}"
            rows[f"{group}: {about}"] = _row(group, table[half], resamples, seed)
    alike = tokens_a_parameter(grid).between(*tokens_a_parameter(own).agg(["min", "max"]))
    rows[f"{OURS}: as many as {THEIRS}"] = _row(OURS, grid[alike], resamples, seed)
    return _frame(rows, "tokens a parameter")


def _row(group: str, runs: pd.DataFrame, resamples: int, seed: int) -> dict[str, Any]:
    """The interval is of a bootstrap of (budget, arm) cells, as 000's of (budget, r)."""
    arrays, cell = joint_arrays(runs), "arm" if "arm" in runs else "r"
    law, draws = fit_joint(*arrays), bootstrap(fit_joint, arrays, runs[["budget", cell]], resamples, seed)
    return _as_row(group, len(runs), law.params["phi"], draws["phi"], law.r2)


def _as_row(group: str, runs: int, phi: float, draws: Sequence[float] | pd.Series, r2: float) -> dict[str, Any]:
    low, high = percentile_interval(draws)
    return {"group": group, "runs": runs, "phi": phi, "low": low, "high": high, "R2": r2}


def _frame(rows: dict[str, dict[str, Any]], index: str) -> pd.DataFrame:
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(index)


# ---- at one D --------------------------------------------------------------------------------------------------------


def sets_at_one_D(loops: pd.DataFrame, allocation: pd.DataFrame, cart: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Runs that all have as many tokens, by name: those of ``runs.loops``, with ``runs.allocation``, and of each stage
    of ``runs.cart``."""
    tuned, tied = loops["recipe"] == "tuned", loops["arm"] == "tied"
    same = (cart["arm"] == "cart") & (cart["prelude"] == 6)
    return {
        f"{THEIRS}: tied and own weights": loops[tuned],
        f"{THEIRS}: tied alone": loops[tuned & tied],
        f"{THEIRS}: tied, and other shares in the loop": pd.concat(
            [loops[tuned & tied & (loops["depth"] <= 10)], allocation]
        ),
        f"{THEIRS}: one recipe, 1 epoch": loops[loops["recipe"] == "fresh"],
        f"{THEIRS}: one recipe, 4 epochs": loops[loops["recipe"] == "replay250m4"],
        f"{THEIRS}: one recipe, 10 epochs": loops[loops["recipe"] == "replay100m10"],
        "CART: 4.9e7 tokens": cart[same & (cart["stage"] == 1)],
        "CART: 1e9 tokens": cart[same & (cart["stage"] == 2) & (cart["r"] > 1)],
    }


def at_one_D(sets: dict[str, pd.DataFrame], resamples: int, seed: int) -> pd.DataFrame:
    """phi of the joint law at one D: rows and columns as ``by_base``."""
    rows = {name: _row_at_one_D(name.partition(":")[0], runs, resamples, seed) for name, runs in sets.items()}
    return _frame(rows, "runs with one D")


def by_loops(loops: pd.DataFrame, grid: pd.DataFrame, resamples: int, seed: int) -> pd.DataFrame:
    """phi of one pass and r tied passes alone, and what r passes are worth, r^phi passes with own layers: one row a
    (group, r), columns as ``by_base`` and worth, worth low, worth high. Were phi one number, it would not depend on r.

    arXiv 2609.19107 at one D, one epoch, with the boundary at one pass too; 000's ``grid`` at all D."""
    tied = loops[(loops["recipe"] == "tuned") & (loops["arm"] == "tied")]
    rows = {}
    for r in sorted(tied["r"].unique())[1:]:
        rows[THEIRS, r] = _row_at_one_D(THEIRS, tied[tied["r"].isin([1, r])], resamples, seed)
    for r in sorted(grid["r"].unique())[1:]:
        rows[OURS, r] = _row(OURS, grid[grid["r"].isin([1, r])], resamples, seed)
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis(["group", "r"]).drop(columns="group")
    passes = table.index.get_level_values("r").to_numpy(float)
    names = {"phi": "worth", "low": "worth low", "high": "worth high"}
    return table.assign(**{worth: passes ** table[phi] for phi, worth in names.items()})


def _row_at_one_D(group: str, runs: pd.DataFrame, resamples: int, seed: int) -> dict[str, Any]:
    """These sets have few sizes, so that what the law leaves over is turned size by size (``fits.flipped``) in the
    place of a bootstrap."""
    inputs = runs["n_once"], runs["n_rec"], runs["r"]
    law = fit(JOINT_AT_ONE_D, inputs, runs["loss"])
    fresh = flipped(law, cell_signs(runs[["width"]], resamples, seed))
    return _as_row(group, len(runs), law.params["phi"], [one.params["phi"] for one in fresh], law.r2)


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
    gains = {"tokens a parameter": table["ratio"], "tied": tied, "untied": untied, "share": tied / untied}
    return pd.DataFrame(gains).assign(low=low, high=high)


def scatter(runs: pd.DataFrame) -> float:
    """Standard deviation, in nats, of a run of ``runs.isoflop`` about the parabola of its arm and budget."""
    return published.scatter(runs.assign(probe=runs["arm"]))
