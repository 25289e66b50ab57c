"""000's knowledge and reading axes asked of models whose context holds the prompts: nothing is cut, and the loss of
each example is kept, so that recurrences are compared by example.

A loss is of the right continuation, in nats per token. Tasks have the paper's shots, or none where those do not fit.
"""

import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd

from lib.config import Label, RunConfig
from lib.papers.isodepth import axes, designs
from lib.papers.isodepth.parameters import DownstreamAxes, RecurrenceExponent
from lib.papers.shared.scores import Contrast
from lib.store.runs import RunStore
from lib.tasks import scoring
from lib.tasks.evaluations import Evaluation, Subject, evaluations, examples_of
from lib.tasks.suites import Task
from lib.text.tokenizer import ByteTokenizer

Gaps = dict[tuple[float, str], Contrast]  # (budget, task or axis) -> what more loops lose on one

FEWEST = 50  # examples that fit, or the task is not asked
AXES = (axes.KNOWLEDGE, axes.READING)


def grid(p: DownstreamAxes, whole: RecurrenceExponent) -> dict[Label, RunConfig]:
    """(group, budget, r, width, seed) -> run: 000's models on rows that hold prompts."""
    longer = whole.replace(context=p.whole_context, batch=p.whole_batch)
    return designs.grid(longer, p.whole_recurrences, p.whole_at, p.whole_seeds)


def tasks(p: DownstreamAxes) -> dict[Task, int]:
    """Task, with the shots that fit -> how many of its examples do; those of which ``FEWEST`` do."""
    found = {}
    for task in (task for axis in AXES for task in axes.AXES[axis]):
        for shots in sorted({task.shots, 0}, reverse=True):
            own = task.at(shots)
            fit = scoring.fitting(ByteTokenizer(), own, examples_of(own, p.tasks), p.seeds[0], p.whole_context)
            if len(fit) >= FEWEST:
                found[own] = len(fit)
                break
    return found


def questions(p: DownstreamAxes, plan: dict[Label, RunConfig], store: RunStore) -> list[Evaluation]:
    """Every task that fits, asked of every run with the first draw of the examples in front."""
    subjects = [Subject.of_run(cfg) for cfg in plan.values()]
    return evaluations(subjects, store, [*tasks(p)], p.seeds[:1], p.tasks, p.whole_limit)


def optimal(losses: pd.DataFrame, recurrences: Sequence[int]) -> pd.DataFrame:
    """Of each budget and r the runs of one width, that of the lowest mean validation loss over seeds. losses:
    ``readings.frame``. Budgets where one of the recurrences has no run are left out."""
    losses = losses[losses.groupby("budget")["r"].transform("nunique") == len(recurrences)]
    means = losses.groupby(["budget", "r", "width"])["loss"].mean()
    best = means.loc[means.groupby(["budget", "r"]).idxmin()].index.to_frame(index=False)
    return losses.merge(best, on=["budget", "r", "width"])


def by_example(
    cases: list[Evaluation], found: list[dict[str, list[float]]], plan: dict[Label, RunConfig], best: pd.DataFrame
) -> pd.DataFrame:
    """One row a run of ``best``, task and example: task, budget, r, seed, ``example``, ``loss``. found: what
    ``evaluations.losses_of_whole_prompts`` measured of cases."""
    names = ["budget", "r", "width", "seed"]
    runs = pd.DataFrame([(cfg.key, *label) for (_, *label), cfg in plan.items()], columns=["subject", *names])
    rows = [
        pd.DataFrame({"subject": case.subject, "task": case.task, "example": of["which"], "loss": of["loss"]})
        for case, of in zip(cases, found, strict=True)
    ]
    return pd.concat(rows, ignore_index=True).merge(runs.merge(best[names]), on="subject")


def gaps(table: pd.DataFrame, r: int) -> Gaps:
    """(budget, task) -> loss at r loops less that at one, by example: a number a seed, and the standard error over
    examples of the seeds' mean. table: ``by_example``."""
    losses = table.pivot(index=["budget", "task", "example"], columns=["r", "seed"], values="loss")
    found: Gaps = {}
    for budget, task in table[["budget", "task"]].drop_duplicates().itertuples(index=False):
        paired = (losses[r] - losses[1]).loc[budget, task].dropna(axis=1)
        error = paired.mean(axis=1).std(ddof=1) / np.sqrt(len(paired))
        found[float(budget), str(task)] = Contrast(paired.mean().tolist(), float(error))
    return found


def validation_gaps(best: pd.DataFrame, r: int) -> Gaps:
    """(budget, "validation") -> validation loss at r loops less that at one, a number a seed. best: ``optimal``."""
    losses = best.pivot(index=["budget", "seed"], columns="r", values="loss")
    paired = (losses[r] - losses[1]).dropna()
    return {(float(C), "validation"): Contrast(paired[C].tolist(), 0.0) for C in paired.index.unique("budget")}


def axis_gaps(gaps: Gaps) -> Gaps:
    """(budget, axis) -> the mean over an axis' tasks of ``gaps``, a number a seed; tasks have other examples, so that
    their errors are independent."""
    found = {}
    for budget, axis in itertools.product(dict.fromkeys(budget for budget, _ in gaps), AXES):
        own = [gaps[budget, task.name] for task in axes.AXES[axis] if (budget, task.name) in gaps]
        if own:
            error = np.sqrt(sum(of.stderr**2 for of in own)) / len(own)
            found[budget, axis] = Contrast(np.mean([of.values for of in own], axis=0).tolist(), float(error))
    return found


def summary(gaps: Gaps) -> pd.DataFrame:
    """One row a budget and task or axis: the gap, its 95 % interval over seeds and examples, and both errors."""
    rows = {
        label: {
            "gap": of.mean,
            "low": np.quantile(of.draws, 0.025),
            "high": np.quantile(of.draws, 0.975),
            "error over seeds": np.std(of.values, ddof=1) / np.sqrt(len(of.values)) if len(of.values) > 1 else np.nan,
            "error over examples": of.stderr,
        }
        for label, of in gaps.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["budget", "of"])
