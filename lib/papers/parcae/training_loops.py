"""Loops against tokens at fixed parameters and FLOPs: 001, Sec. "Looping as an Orthogonal Scaling Axis in Training".

It works on data frames with one row a run: width, budget C in FLOPs, mean_loops, seed, n_eff, F training FLOPs per
token as 001 counts them, D = C / F tokens, loss in nats per token. n_eff are the parameters with all loops unrolled and
tables included: only so do the paper's own coefficients give its models the losses that it prints.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lib.config import Label, RunConfig
from lib.fit.fits import Fit, fit_parcae, fresh_fits, noise_of
from lib.fit.isoflop import exponent, minimum
from lib.flops import count
from lib.papers.parcae import setups
from lib.papers.parcae.parameters import LoopGrid
from lib.papers.shared.budgets import steps_for
from lib.papers.shared.frames import finished
from lib.store.result import RunResult

COEFFICIENTS = 5  # of the training law


def grid(p: LoopGrid) -> dict[Label, RunConfig]:
    """("mean_loops = ...", width, budget, mean_loops, seed) -> run, for every number of loops, size, budget of it and
    seed."""
    runs: dict[Label, RunConfig] = {}
    for mu, width in itertools.product(p.loops, p.sizes):
        one = p.at(width)
        cfg = setups.model(one, mu)
        for budget, seed in itertools.product(p.budgets_of(width), p.seeds_of(width)):
            steps = steps_for(p, budget, count(cfg, p.context).published["001"], width)
            runs[f"mean_loops = {mu}", width, budget, mu, seed] = setups.run(one, cfg, steps, seed)
    return runs


def held_out(p: LoopGrid) -> dict[Label, RunConfig]:
    """The runs that the laws are asked to predict, labelled as those of ``grid``: Parcae of every size at p's
    mean_loops and steps, one for each seed."""
    runs: dict[Label, RunConfig] = {}
    for width in p.sizes:
        one = p.at(width)
        cfg = setups.model(one, p.mean_loops)
        budget = one.steps * p.batch * p.context * count(cfg, p.context).published["001"]
        for seed in p.seeds_of(width):
            runs["held out", width, budget, p.mean_loops, seed] = setups.run(one, cfg, one.steps, seed)
    return runs


def size(cfg: RunConfig) -> dict[str, Any]:
    """n_eff, F and D of a run."""
    counts = count(cfg.model, cfg.data.context)
    return {"n_eff": counts.n_usage, "F": counts.published["001"], "D": cfg.tokens}


def frame(results: Iterable[RunResult], plan: dict[Label, RunConfig]) -> pd.DataFrame:
    """One row a finished run of a plan that ``grid`` or ``held_out`` made."""
    return finished(results, plan, ("plan", "width", "budget", "mean_loops", "seed"), size)


def optima(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a budget, of runs of one size: the minimum of a parabola of the loss in log mean_loops, fitted to the
    looped runs of all seeds. It has mean_loops*, its standard error, the loss there and D* = C / F(mean_loops*). Where
    the parabola has no minimum among the loops trained, ``inside`` is False and the better end of them stands there
    instead."""
    rows = []
    for budget, cell in runs[runs["mean_loops"] > 1].groupby("budget"):
        cell = cell.sort_values("mean_loops")
        best, loss, stderr, inside = minimum(cell["mean_loops"], cell["loss"])
        if not inside:
            ends = cell.groupby("mean_loops")["loss"].mean().iloc[[0, -1]]
            best, loss, stderr = float(ends.index[int(ends.argmin())]), float(ends.min()), np.nan
        # F is interpolated in the loops, in which it is linear but for the rounding of mu_bwd
        D = budget / np.interp(best, cell["mean_loops"], cell["F"])
        rows.append({"budget": budget, "mean_loops": best, "stderr": stderr, "D": D, "loss": loss, "inside": inside})
    return pd.DataFrame(rows, columns=["budget", "mean_loops", "stderr", "D", "loss", "inside"])


def growths(runs: pd.DataFrame, seeds: Sequence[int]) -> dict[str, list[float]]:
    """Of each seed's own optima, in octaves: how far the one at the largest budget lies above the fewest loops looped
    with, and how far mean_loops* rises with an octave of the budget, from the least budget to the largest.

    An optimum outside the loops trained counts as their end, which understates both; nan where both budgets have theirs
    at the same end, or a seed has not both."""
    least = runs.loc[runs["mean_loops"] > 1, "mean_loops"].min()
    budgets = runs["budget"].min(), runs["budget"].max()
    above, rise = [], []
    for seed in seeds:
        found = optima(runs[runs["seed"] == seed]).set_index("budget").reindex(budgets)
        first, last = found["mean_loops"]
        same_end = first == last and not found["inside"].any()
        above.append(float(np.log2(last / least)))
        rise.append(np.nan if same_end else float(np.log2(last / first) / np.log2(budgets[1] / budgets[0])))
    return {"above the fewest": above, "with the budget": rise}


def exponents(runs: pd.DataFrame, column: str, seeds: Sequence[int]) -> list[float]:
    """For each seed the exponent of a power law of ``column`` in the budget through its own optima inside the loops
    trained; nan below two of them."""
    return [exponent(optima(runs[runs["seed"] == seed]), column)[0] for seed in seeds]


def best_by_law(p: LoopGrid, width: int, fit: Fit) -> pd.DataFrame:
    """One row a budget of a size: the mean_loops that its law wants for it, of a fine grid between the fewest and the
    most looped with, its tokens D and its loss. These make the efficient frontier in 001's figure of contours. Budgets
    for which it wants an end of the grid are left out."""
    trained = sorted(mu for mu in p.loops if mu > 1)
    counts = [count(setups.model(p.at(width), mu), p.context) for mu in trained]
    fine = np.geomspace(trained[0], trained[-1], 200)
    n_eff = np.interp(fine, trained, [c.n_usage for c in counts])
    F = np.interp(fine, trained, [c.published["001"] for c in counts])
    rows = []
    for budget in p.budgets_of(width):
        losses = fit.predict(n_eff, budget / F)
        best = int(np.argmin(losses))
        if 0 < best < len(fine) - 1:
            rows.append((budget, fine[best], budget / F[best], losses[best]))
    return pd.DataFrame(rows, columns=["budget", "mean_loops", "D", "loss"])


def of_one_grid(runs: pd.DataFrame, held_out: pd.DataFrame, resamples: int, seed: int) -> pd.DataFrame:
    """The law of all looped runs of a size that has a single grid: its a, b and E, and ``error``, its prediction of the
    held-out runs less their loss in percent of it. The first row is the law's; the others are those of fresh grids: the
    law's own predictions, with noise as large as it leaves over (``fits.fresh_fits``); held-out losses get noise of a
    run, too. nan where the size is not trained."""
    looped = runs[runs["mean_loops"] > 1]
    if len(looped) <= COEFFICIENTS or held_out.empty:
        return pd.DataFrame(np.nan, range(1 + resamples), ["a", "b", "E", "error"])
    law = fit_parcae(looped["n_eff"], looped["D"], looped["loss"])
    laws = [law, *(grid[0] for grid in fresh_fits({0: law}, resamples, seed))]
    noise = np.sqrt(noise_of({0: law}).variance)
    shifts = noise * np.random.default_rng([seed, 1]).standard_normal((resamples, len(held_out)))
    measured = held_out["loss"].to_numpy() * np.exp(np.vstack([np.zeros(len(held_out)), shifts]))
    off = [
        100 * (fit.predict(held_out["n_eff"], held_out["D"]) / of - 1) for fit, of in zip(laws, measured, strict=True)
    ]
    return pd.DataFrame([fit.params for fit in laws]).assign(error=np.mean(off, axis=1))[["a", "b", "E", "error"]]
