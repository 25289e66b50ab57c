"""Loops against tokens at fixed parameters and FLOPs: 001, Sec. "Looping as an Orthogonal Scaling Axis in Training".

Works on data frames with one row a run: budget C in FLOPs, mean_loops, n_eff (the parameters with all loops unrolled,
tables included: only so do the paper's own coefficients give its models the losses it prints), F training FLOPs per
token as 001 counts them, D = C / F tokens, loss in nats per token.
"""

import contextlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from lib.base.errors import InputError
from lib.config import Label, RunConfig
from lib.fit.fits import Fit, isoflop_optimum
from lib.flops import count
from lib.papers.parcae import transformer_setup
from lib.store.runs import RunResult

COLUMNS = ("budget", "mean_loops", "seed", "n_eff", "F", "D", "loss")


def steps_for(p: dict[str, Any], mean_loops: int, budget: float) -> int:
    """Steps that ``budget`` FLOPs buy at mean_loops. Raises InputError for fewer than ten."""
    flops = count(transformer_setup.model(p, mean_loops=mean_loops), p["context"]).published["001"]
    steps = budget / flops / (p["batch"] * p["context"])
    if not steps >= 9.5:
        raise InputError(f"budgets: {budget:g} FLOPs are {steps:.0f} steps at {mean_loops} loops, raise them")
    return round(steps)


def grid(p: dict[str, Any]) -> dict[Label, RunConfig]:
    """("mean_loops = ...", budget, mean_loops, seed) -> run, for every budget, mean_loops and seed of ``p``.

    Raises InputError where no parabola could be laid through a budget's looped runs, or no law through all of them.
    """
    looped = [mu for mu in p["loops"] if mu > 1]
    if min(p["loops"]) < 1 or len(looped) < 3:
        raise InputError(f"loops: {p['loops']} has fewer than three above 1, which a parabola needs, list more")
    if len(looped) * len(p["budgets"]) < 6:
        raise InputError(f"budgets: {len(p['budgets'])} are too few for a law of five parameters, list more")
    return {
        (f"mean_loops = {mu}", budget, mu, seed): transformer_setup.run(
            p, transformer_setup.model(p, mean_loops=mu), steps_for(p, mu, budget), seed
        )
        for mu in p["loops"] for budget in p["budgets"] for seed in p["seeds"]
    }  # fmt: skip


def held_out(p: dict[str, Any]) -> dict[Label, RunConfig]:
    """The runs that the laws are asked to predict, labelled as those of ``grid``: Parcae at p's own mean_loops and
    steps, one a seed of held_out_seeds."""
    cfg = transformer_setup.model(p)
    budget = p["steps"] * p["batch"] * p["context"] * count(cfg, p["context"]).published["001"]
    return {
        ("held out", budget, p["mean_loops"], seed): transformer_setup.run(p, cfg, p["steps"], seed)
        for seed in p["held_out_seeds"]
    }


def size(cfg: RunConfig) -> dict[str, Any]:
    """n_eff, F and D of a run."""
    counts = count(cfg.model, cfg.data.context)
    return {"n_eff": counts.n_usage, "F": counts.published["001"], "D": cfg.tokens}


def frame(results: Iterable[RunResult], plan: dict[Label, RunConfig]) -> pd.DataFrame:
    """One row a finished run of the plan, as ``grid`` makes it."""
    found = {result.key: result for result in results}
    rows = []
    for (_, budget, mu, seed), cfg in plan.items():
        result = found[cfg.key]
        if result.status == "finished":
            label = {"budget": budget, "mean_loops": mu, "seed": seed}
            rows.append(label | size(cfg) | {"loss": result.summary["val_loss"]})
    return pd.DataFrame(rows, columns=COLUMNS)


def optima(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a budget: the minimum of the parabola of the loss in log mean_loops over the looped runs, all seeds
    together: mean_loops*, its standard error, the loss there and D* = C / F(mean_loops*). Where the parabola has no
    minimum among the loops trained, ``inside`` is False and the better end of them stands there instead."""
    rows = []
    for budget, cell in runs[runs["mean_loops"] > 1].groupby("budget"):
        cell = cell.sort_values("mean_loops")
        trained = cell.groupby("mean_loops")["loss"].mean()
        best = loss = stderr = np.nan
        if len(trained) >= 3:
            with contextlib.suppress(InputError):  # it has no minimum
                best, loss, stderr = isoflop_optimum(cell["mean_loops"], cell["loss"])
        inside = trained.index.min() <= best <= trained.index.max()
        if not inside:
            ends = trained.iloc[[0, -1]]
            best, loss, stderr = float(ends.index[int(ends.argmin())]), float(ends.min()), np.nan
        # F is linear in the loops but for rounding mu_bwd, so that it is interpolated in them
        D = budget / np.interp(best, cell["mean_loops"], cell["F"])
        rows.append({"budget": budget, "mean_loops": best, "stderr": stderr, "D": D, "loss": loss, "inside": inside})
    return pd.DataFrame(rows)


def gaps_to_fixed_depth(runs: pd.DataFrame, optima: pd.DataFrame) -> pd.Series:
    """For each budget the loss of the runs at mean_loops = 1 less that of the best looped one, positive where looping
    is better (001, Fig. "frontier against fixed depth")."""
    fixed = runs[runs["mean_loops"] == 1].groupby("budget")["loss"].mean()
    return (fixed - optima.set_index("budget")["loss"]).dropna()


def best_by_law(fit: Fit, p: dict[str, Any], budgets: Iterable[float], loops: Iterable[int]) -> pd.DataFrame:
    """One row a budget: which mean_loops, of a fine grid over the range of ``loops``, the fitted law wants for it, its
    tokens and its loss: the efficient frontier in 001's figure of contours."""
    trained = sorted(mu for mu in loops if mu > 1)
    counts = [count(transformer_setup.model(p, mean_loops=mu), p["context"]) for mu in trained]
    fine = np.geomspace(trained[0], trained[-1], 200)
    n_eff, F = (
        np.interp(fine, trained, values)
        for values in ([c.n_usage for c in counts], [c.published["001"] for c in counts])
    )
    rows = []
    for budget in budgets:
        losses = fit.predict(n_eff, budget / F)
        best = int(np.argmin(losses))
        rows.append({
            "budget": budget, "mean_loops": fine[best], "D": budget / F[best], "loss": losses[best],
            "inside": 0 < best < len(fine) - 1,
        })  # fmt: skip
    return pd.DataFrame(rows)


def errors(fit: Fit, runs: pd.DataFrame) -> pd.Series:
    """The law's prediction of each run less its loss, in percent of the loss, by seed."""
    off = 100 * (fit.predict(runs["n_eff"], runs["D"]) / runs["loss"] - 1)
    return pd.Series(off.to_numpy(), index=runs["seed"])
