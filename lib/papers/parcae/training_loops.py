"""Loops against tokens at fixed parameters and FLOPs: 001, Sec. "Looping as an Orthogonal Scaling Axis in Training".

It works on data frames with one row a run: width, budget C in FLOPs, mean_loops, seed, n_eff, F training FLOPs per
token as 001 counts them, D = C / F tokens, loss in nats per token. n_eff are the parameters with all loops unrolled and
tables included: only so do the paper's own coefficients give its models the losses that it prints.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from lib.base.errors import InputError
from lib.config import Label, RunConfig
from lib.fit.fits import Fit
from lib.fit.isoflop import minimum
from lib.flops import count
from lib.papers.parcae import transformer_setup
from lib.papers.parcae.parameters import LoopGrid
from lib.store.runs import RunResult

COLUMNS = ("width", "budget", "mean_loops", "seed", "n_eff", "F", "D", "loss")


def steps_for(p: LoopGrid, width: int, mean_loops: int, budget: float) -> int:
    """Steps that ``budget`` FLOPs buy at a width and mean_loops. Raises InputError for fewer than ten."""
    flops = count(transformer_setup.model(p.at(width), mean_loops), p.context).published["001"]
    steps = budget / flops / (p.batch * p.context)
    if not steps >= 9.5:
        raise InputError(f"budgets: {budget:g} FLOPs are {steps:.0f} steps at {mean_loops} loops, raise them")
    return round(steps)


def grid(p: LoopGrid) -> dict[Label, RunConfig]:
    """("mean_loops = ...", width, budget, mean_loops, seed) -> run, for every number of loops, size, budget of it and
    seed."""
    runs: dict[Label, RunConfig] = {}
    for mu in p.loops:
        for width in p.sizes:
            one = p.at(width)
            cfg = transformer_setup.model(one, mu)
            for budget in p.budgets_of(width):
                steps = steps_for(p, width, mu, budget)
                for seed in p.seeds:
                    label = (f"mean_loops = {mu}", width, budget, mu, seed)
                    runs[label] = transformer_setup.run(one, cfg, steps, seed)
    return runs


def held_out(p: LoopGrid) -> dict[Label, RunConfig]:
    """The runs that the laws are asked to predict, labelled as those of ``grid``: Parcae of every size at p's
    mean_loops and steps, one for each of held_out_seeds."""
    runs: dict[Label, RunConfig] = {}
    for width in p.sizes:
        one = p.at(width)
        cfg = transformer_setup.model(one, p.mean_loops)
        budget = one.steps * p.batch * p.context * count(cfg, p.context).published["001"]
        for seed in p.held_out_seeds:
            label = ("held out", width, budget, p.mean_loops, seed)
            runs[label] = transformer_setup.run(one, cfg, one.steps, seed)
    return runs


def size(cfg: RunConfig) -> dict[str, Any]:
    """n_eff, F and D of a run."""
    counts = count(cfg.model, cfg.data.context)
    return {"n_eff": counts.n_usage, "F": counts.published["001"], "D": cfg.tokens}


def frame(results: Iterable[RunResult], plan: dict[Label, RunConfig]) -> pd.DataFrame:
    """One row a finished run of a plan that ``grid`` or ``held_out`` made."""
    found = {result.key: result for result in results}
    rows = []
    for (_, width, budget, mu, seed), cfg in plan.items():
        result = found[cfg.key]
        if result.status == "finished":
            label = {"width": width, "budget": budget, "mean_loops": mu, "seed": seed}
            rows.append(label | size(cfg) | {"loss": result.summary["val_loss"]})
    return pd.DataFrame(rows, columns=COLUMNS)


def optima(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a budget, of runs of one size: the minimum of a parabola of the loss in log mean_loops, fitted to the
    looped runs of all seeds. It has mean_loops*, its standard error, the loss there and D* = C / F(mean_loops*). Where
    the parabola has no minimum among the loops trained, ``inside`` is False and the better end of them stands there
    instead."""
    rows = []
    for budget, cell in runs[runs["mean_loops"] > 1].groupby("budget"):
        cell = cell.sort_values("mean_loops")
        trained = cell.groupby("mean_loops")["loss"].mean()
        best, loss, stderr, inside = minimum(cell["mean_loops"], cell["loss"])
        if not inside:
            ends = trained.iloc[[0, -1]]
            best, loss, stderr = float(ends.index[int(ends.argmin())]), float(ends.min()), np.nan
        # F is interpolated in the loops, in which it is linear but for the rounding of mu_bwd
        D = budget / np.interp(best, cell["mean_loops"], cell["F"])
        rows.append({"budget": budget, "mean_loops": best, "stderr": stderr, "D": D, "loss": loss, "inside": inside})
    return pd.DataFrame(rows)


def gaps_to_fixed_depth(runs: pd.DataFrame, optima: pd.DataFrame) -> pd.Series:
    """For each budget the loss at mean_loops = 1 less that of the looped optimum, in nats: positive where looping is
    better (001, Fig. "frontier against fixed depth")."""
    fixed = runs[runs["mean_loops"] == 1].groupby("budget")["loss"].mean()
    return (fixed - optima.set_index("budget")["loss"]).dropna()


def best_by_law(p: LoopGrid, width: int, fit: Fit) -> pd.DataFrame:
    """One row a budget of a size: the mean_loops that its law wants for it, of a fine grid between the fewest and the
    most looped with, its tokens D and its loss. These make the efficient frontier in 001's figure of contours.
    ``inside`` is False where mean_loops is an end of the grid."""
    trained = sorted(mu for mu in p.loops if mu > 1)
    counts = [count(transformer_setup.model(p.at(width), mu), p.context) for mu in trained]
    fine = np.geomspace(trained[0], trained[-1], 200)
    n_eff = np.interp(fine, trained, [c.n_usage for c in counts])
    F = np.interp(fine, trained, [c.published["001"] for c in counts])
    rows = []
    for budget in p.budgets_of(width):
        losses = fit.predict(n_eff, budget / F)
        best = int(np.argmin(losses))
        rows.append(
            {
                "budget": budget,
                "mean_loops": fine[best],
                "D": budget / F[best],
                "loss": losses[best],
                "inside": 0 < best < len(fine) - 1,
            }
        )
    return pd.DataFrame(rows)


def errors(fit: Fit, runs: pd.DataFrame) -> pd.Series:
    """The law's prediction of each run less its loss, in percent of the loss, by seed."""
    off = 100 * (fit.predict(runs["n_eff"], runs["D"]) / runs["loss"] - 1)
    return pd.Series(off.to_numpy(), index=runs["seed"])
