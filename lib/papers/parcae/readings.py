"""What is read off 001's runs.

Loops against tokens at fixed parameters and FLOPs (Sec. "Looping as an Orthogonal Scaling Axis in Training"), on data
frames with one row a run: width, budget C in FLOPs, mean_loops, seed, n_eff, F training FLOPs per token as 001 counts
them, D = C / F tokens, loss in nats per token. n_eff are the parameters with all loops unrolled and tables included:
only so do the paper's own coefficients give its models the losses that it prints.

Its downstream evaluation: CORE, Core-Extended, zero-shot tasks and perplexities, on data frames with one row for each
run and test-time depth. Scores are in points: a hundredth of the accuracy, in CORE a hundredth of what lies between
guessing and all right. Beside each score stands its ``stderr`` over examples.

And what sampling a depth for every sequence costs (App. "Per-sequence Sampling").
"""

import itertools
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from lib.base.machine import device_type
from lib.base.processes import one_thread_on_cpu
from lib.config import Label, ModelConfig, RunConfig
from lib.fit.fits import Fit, fit_parcae, fresh_fits, noise_of
from lib.fit.isoflop import exponent, minimum
from lib.flops import count
from lib.model.looped import Draw, LoopedLM
from lib.papers.parcae import setups
from lib.papers.parcae.parameters import LoopGrid
from lib.papers.shared.frames import finished
from lib.papers.shared.scores import Contrast, accuracy_scores, contrast, labelled, suite_scores, text_scores
from lib.store.result import RunResult
from lib.tasks.suites import CORE, CORE_EXTENDED, WIKITEXT, ZERO_SHOT, Task

SUITES: dict[str, tuple[Task, ...]] = {"Core": CORE, "Core-Extended": CORE_EXTENDED}
#: asked of runs in 001's Transformer set-up, and in its RDM set-up
IN_TRANSFORMER_SETUP, IN_RDM_SETUP = (*CORE_EXTENDED, WIKITEXT), (*ZERO_SHOT.values(), WIKITEXT)
PARCAE, TRANSFORMER, RDM = "parcae", "transformer", "residual-norm"
#: share of the gap to the next larger model that half the parameters have to close; 001 has .875, says "comparable"
CLOSED = 0.75


# ---- loops against tokens --------------------------------------------------------------------------------------------


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
        rows.append((budget, best, stderr, budget / np.interp(best, cell["mean_loops"], cell["F"]), loss, inside))
    return pd.DataFrame(rows, columns=["budget", "mean_loops", "stderr", "D", "loss", "inside"])


def best_of_others(losses: pd.DataFrame, seed: int) -> Any:
    """A seed's loss at the loops where that of the other seeds is least in the mean; ``losses`` has a row a seed and a
    column for each number of loops. A single seed says so alone."""
    others = (losses.drop(index=seed) if len(losses) > 1 else losses).mean()
    return losses.at[seed, others.idxmin()] if others.notna().any() else np.nan


def gaps_to_fixed_depth(runs: pd.DataFrame, seeds: Sequence[int]) -> pd.DataFrame:
    """By how much the best looped model lies below fixed depth: a row a seed, a column a budget that has both."""
    every = runs.pivot(index="seed", columns=["budget", "mean_loops"], values="loss").reindex([*seeds])
    both = {budget: every[budget] for budget in runs["budget"].unique() if {1} < {*every[budget]}}
    gaps = {
        budget: [losses.at[seed, 1] - best_of_others(losses.drop(columns=1), seed) for seed in seeds]
        for budget, losses in both.items()
    }
    return pd.DataFrame(gaps, index=pd.Index(seeds, name="seed"))


def above_twice_the_fewest(looped: pd.DataFrame, seeds: Sequence[int]) -> list[float]:
    """At the largest budget, what each seed's loss at the fewest loops lies above that at twice as many; nan where one
    of the two is not trained."""
    top, fewest = looped[looped["budget"] == looped["budget"].max()], looped["mean_loops"].min()
    losses = top.pivot(index="seed", columns="mean_loops", values="loss").reindex(
        index=[*seeds], columns=[fewest, 2 * fewest]
    )
    return (losses[fewest] - losses[2 * fewest]).tolist()


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
    losses = {budget: fit.predict(n_eff, budget / F) for budget in p.budgets_of(width)}
    best = {budget: int(np.argmin(of)) for budget, of in losses.items()}
    rows = [(C, fine[i], C / F[i], losses[C][i]) for C, i in best.items() if 0 < i < len(fine) - 1]
    return pd.DataFrame(rows, columns=["budget", "mean_loops", "D", "loss"])


def of_one_grid(runs: pd.DataFrame, held_out: pd.DataFrame, resamples: int, seed: int) -> pd.DataFrame:
    """The law of all looped runs of a size that has a single grid: its constants, and ``error``, its prediction of the
    held-out runs less their loss in percent of it. The first row is the law's; the others are those of fresh grids: the
    law's own predictions, with noise as large as it leaves over (``fits.fresh_fits``); held-out losses get noise of a
    run, too. nan where the size is not trained."""
    looped = runs[runs["mean_loops"] > 1]
    if len(looped) <= 5 or held_out.empty:  # the law has five constants
        return pd.DataFrame(np.nan, range(1 + resamples), [*"abEAB", "error"])
    law = fit_parcae(looped["n_eff"], looped["D"], looped["loss"])
    laws = [law, *(grid[0] for grid in fresh_fits({0: law}, resamples, seed))]
    noise = np.sqrt(noise_of({0: law}).variance)
    shifts = noise * np.random.default_rng([seed, 1]).standard_normal((resamples, len(held_out)))
    measured = held_out["loss"].to_numpy() * np.exp(np.vstack([np.zeros(len(held_out)), shifts]))
    off = [
        100 * (fit.predict(held_out["n_eff"], held_out["D"]) / of - 1) for fit, of in zip(laws, measured, strict=True)
    ]
    return pd.DataFrame([fit.params for fit in laws]).assign(error=np.mean(off, axis=1))[[*"abEAB", "error"]]


# ---- scores, and what the papers say of them -------------------------------------------------------------------------


def transformer_scores(
    table: pd.DataFrame, runs: dict[Label, RunConfig], names: Sequence[str], found: dict[str, Any]
) -> pd.DataFrame:
    """``labelled`` runs of 001's Transformer set-up with their Core and Core-Extended, and of LAMBADA and WikiText the
    nats per token and the perplexities per token and per word. Core-Extended is nan where none of the tasks that it
    adds to Core was asked.

    table: ``evaluations.over_seeds``; names: of the parts of the runs' labels; found: key -> result."""
    core, extended = (suite_scores(table, name, tasks, "centred") for name, tasks in SUITES.items())
    more = extended.pop("tasks").gt(core.pop("tasks"))
    return labelled([core, extended.where(more), *text_scores(table)], runs, names, found)


def rdm_scores(
    table: pd.DataFrame, runs: dict[Label, RunConfig], names: Sequence[str], found: dict[str, Any]
) -> pd.DataFrame:
    """``labelled`` runs of 001's RDM set-up with the zero-shot tasks, their mean ``zero-shot``, and WikiText."""
    return labelled([*accuracy_scores(table, "zero-shot", ZERO_SHOT), *text_scores(table)[1:]], runs, names, found)


def part_of_the_gap(runs: pd.DataFrame, values: Sequence[str], seeds: Sequence[int]) -> dict[str, Contrast]:
    """By how much Parcae lies above the Transformer of its width, and by how much below the next larger one. Where all
    are positive it closes a part of each gap."""
    found = {}
    for value, (small, large) in itertools.product(values, itertools.pairwise(sorted(runs["width"].unique()))):
        for side, weights in (
            (f"above d = {small}", {(PARCAE, small): 1.0, (TRANSFORMER, small): -1.0}),
            (f"below d = {large}", {(TRANSFORMER, large): 1.0, (PARCAE, small): -1.0}),
        ):
            found[f"{value}, {small}: {side}"] = contrast(runs, value, weights, ("architecture", "width"), seeds)
    return found


def half_the_parameters(runs: pd.DataFrame, seeds: Sequence[int]) -> Contrast:
    """How many points of Core Parcae at the second largest width has above the mark that lies CLOSED of the way from
    the Transformer of its width to the largest one."""
    small, large = sorted(runs["width"].unique())[-2:]
    weights = {(PARCAE, small): 1.0, (TRANSFORMER, large): -CLOSED, (TRANSFORMER, small): CLOSED - 1}
    return contrast(runs, "Core", weights, ("architecture", "width"), seeds)


def upper_third(runs: pd.DataFrame, seeds: Sequence[int]) -> dict[str, Contrast]:
    """By how much Core of the best looped runs lies above that of fixed depth, at each of the largest third of a
    size's budgets: there looping is ahead for both of 001's sizes. runs: ``frontier``'s, with columns which, width and
    budget."""
    found = {}
    for width, own in runs.groupby("width"):
        budgets = sorted(own["budget"].unique())
        for C in budgets[-max(1, len(budgets) // 3) :]:
            weights = {("looped", C): 1.0, ("fixed depth", C): -1.0}
            found[f"d = {width}, {C:g} FLOPs"] = contrast(own, "Core", weights, ("which", "budget"), seeds)
    return found


# ---- a step's time ---------------------------------------------------------------------------------------------------


def seconds_per_step(
    configs: dict[str, ModelConfig], rows: int, context: int, rounds: int, precision: str
) -> pd.DataFrame:
    """Seconds of a forward and backward pass [round, rule]. The rules take turns, so that a machine that slows down
    does so for all. Tokens are random; depths are drawn as in training."""
    device = device_type()
    seconds = []
    with one_thread_on_cpu():
        models = {name: LoopedLM(cfg).set_precision(precision).to(device).train() for name, cfg in configs.items()}
        tokens = torch.randint(min(cfg.vocab_size for cfg in configs.values()), (rows, context + 1), device=device)
        for step in range(rounds + 2):
            draw, taken = Draw(0, step, range(step * rows, (step + 1) * rows)), {}
            for name, model in models.items():
                begin = time.perf_counter()
                loss, _ = model.loss(tokens[:, :-1], tokens[:, 1:], draw=draw)
                loss.backward()
                loss.item()
                taken[name] = time.perf_counter() - begin
                model.zero_grad(set_to_none=True)
            seconds.append(taken)
    return pd.DataFrame(seconds[2:])  # the first ones warm up
