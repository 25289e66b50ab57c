"""000's downstream evaluation (App. H): its grid of runs on five axes of tasks, and what is read off it.

A loss is of the right continuation, in nats per token.
"""

import numpy as np
import pandas as pd
import scipy.stats

from lib.config import Label, RunConfig
from lib.papers.isodepth.parameters import DownstreamAxes
from lib.store.runs import RunStore
from lib.tasks import primitives
from lib.tasks.evaluations import Evaluation, Subject, evaluations, suite
from lib.tasks.suites import CORE, Task, table

_TRIVIA = ("triviaqa_wikipedia_nocontext_val", "triviaqa_sm_sub", "triviaqa")
_named = {task.name: task for task in CORE} | table(
    ("triviaqa", 5, 0, " ", _TRIVIA, "trivia_qa/rc.wikipedia.nocontext"),
    ("natural_questions", 5, 0, " ", ("nq_open_val", "naturalqs_sample1000"), "nq_open/none"),
    ("webquestions", 5, 0, " ", ("webquestions_test", "webquestions"), ""),
    ("tydiqa_goldp", 3, 0, " ", ("tydiqa_english_dev", "tydiqa"), ""),
    ("squad_v2", 3, 0, " ", ("squad_v2",), ""),
    ("drop", 3, 0, " ", ("drop", "drop_sample1000"), "drop/bpb_5shot"),
    ("svamp", 5, 0, " ", ("symbolic_problem_solving/svamp", "svamp"), ""),
    ("asdiv", 5, 0, " ", ("asdiv",), ""),
    ("mawps", 5, 0, " ", ("mawps",), ""),
)


def _tasks(names: str) -> tuple[Task, ...]:
    return tuple(_named[name] for name in names.split())


#: axis -> tasks (000, Table 7)
AXES: dict[str, tuple[Task, ...]] = {
    "Parametric knowledge": _tasks("triviaqa natural_questions webquestions"),
    "Reading comprehension": (*_tasks("lambada_openai tydiqa_goldp squad_v2 drop"), _named["coqa"].at(1)),
    "Math word problems": _tasks("svamp asdiv mawps"),
    "Reasoning primitives": tuple(primitives.PROBES),
    "Compositional symbolic": _tasks("bigbench_dyck_languages bigbench_qa_wikidata arc_easy bigbench_cs_algorithms"),
}
KNOWLEDGE, READING, MATH, REASONING, SYMBOLIC = AXES
TASKS: tuple[Task, ...] = tuple(task for tasks in AXES.values() for task in tasks)


def questions(
    p: DownstreamAxes, plan: dict[Label, RunConfig], losses: pd.DataFrame, store: RunStore
) -> list[Evaluation]:
    """All tasks asked of all runs of a grid: of the compute-optimal runs with every seed, of the others with the first.

    plan: (group, budget, r, width, seed) -> run; losses: ``readings.frame`` of it."""
    best = losses.loc[losses.groupby(["budget", "r"])["loss"].idxmin()]
    often = {*zip(best["budget"], best["r"], best["width"], best["seed"], strict=True)}
    groups: dict[bool, list[Subject]] = {True: [], False: []}
    for (_, *label), cfg in plan.items():
        groups[tuple(label) in often].append(Subject.of_run(cfg))
    return [
        *evaluations(groups[True], store, TASKS, p.seeds, p.tasks, p.limit),
        *evaluations(groups[False], store, TASKS, p.seeds[:1], p.tasks, p.limit),
    ]


def labelled(table: pd.DataFrame, plan: dict[Label, RunConfig], losses: pd.DataFrame) -> pd.DataFrame:
    """``evaluations.over_seeds`` of a grid's runs with their budget, r, width, seed and validation loss, ``val_loss``.

    plan: (group, budget, r, width, seed) -> run; losses: ``readings.frame`` of it."""
    names = ["budget", "r", "width", "seed"]
    runs = pd.DataFrame([(cfg.key, *label) for (_, *label), cfg in plan.items()], columns=["subject", *names])
    known = losses[[*names, "loss"]].rename(columns={"loss": "val_loss"})
    return table.merge(runs, on="subject").merge(known, on=names)


def by_axis(table: pd.DataFrame) -> pd.DataFrame:
    """One row a run and axis, from ``labelled``: ``loss``, the mean over those of the axis' tasks that are there, its
    ``stderr``, ``accuracy``, and how many ``tasks`` they are. Axes without any task are left out."""
    runs = table[["subject", "budget", "r", "width", "seed", "val_loss"]].drop_duplicates()
    parts = []
    for axis, tasks in AXES.items():
        part = suite(table, tasks, "loss").assign(axis=axis)
        part["accuracy"] = suite(table, tasks, "accuracy")["accuracy"]
        parts.append(part)
    return pd.concat(parts, ignore_index=True).merge(runs, on="subject")


def optimal(points: pd.DataFrame) -> pd.DataFrame:
    """Of each budget and r, the rows of the run with the lowest validation loss."""
    best = points.loc[points.groupby(["budget", "r"])["val_loss"].idxmin(), ["budget", "r", "subject"]]
    return points.merge(best, on=["budget", "r", "subject"])


def gaps(best: pd.DataFrame, axis: str) -> pd.DataFrame:
    """Loss less the plain model's on an axis, from ``optimal``: a row a budget, a column a recurrence; nan on an axis
    without tasks."""
    losses = best[best["axis"] == axis].pivot(index="budget", columns="r", values="loss")
    losses = losses.reindex(index=sorted(best["budget"].unique()), columns=sorted(best["r"].unique()))
    return losses.sub(losses[1], axis=0)


def knowledge_margins(best: pd.DataFrame) -> list[float]:
    """Of each budget, the least rise of the gap from one recurrence to the next: positive where the plain model leads
    and the gap grows with r."""
    return np.diff(gaps(best, KNOWLEDGE).to_numpy(), axis=1).min(1).tolist()


def reading_margins(best: pd.DataFrame) -> list[float]:
    """Of each budget, the gap at the most recurrences less the largest of the others' sizes."""
    found = gaps(best, READING).drop(columns=1)
    return (found.iloc[:, -1] - found.iloc[:, :-1].abs().max(axis=1)).tolist()


def tie_margins(best: pd.DataFrame) -> list[float]:
    """Of each budget, the size of the largest gap on parametric knowledge less that on compositional symbolic: positive
    where the latter is tied beside the former."""
    knowledge, symbolic = (gaps(best, axis).abs().max(axis=1) for axis in (KNOWLEDGE, SYMBOLIC))
    return (knowledge - symbolic).tolist()


def order_margins(best: pd.DataFrame) -> list[float]:
    """Of each recurrence, half the 95 % interval of its mean gap over budgets (Student's t) less the size of that mean,
    the lesser of reasoning primitives and math word problems: positive where no order is resolved."""
    margins = []
    for axis in (REASONING, MATH):
        found = gaps(best, axis).drop(columns=1)
        half = scipy.stats.t.ppf(0.975, len(found) - 1) * found.std(ddof=1) / np.sqrt(len(found))
        margins.append(half - found.mean().abs())
    return pd.concat(margins, axis=1).min(axis=1).tolist()


def macro(points: pd.DataFrame) -> pd.DataFrame:
    """One row a run: accuracy and loss, averaged over the axes (000, Fig. 13)."""
    by = points.groupby(["subject", "budget", "r", "width", "val_loss"], as_index=False, sort=False)
    return by[["accuracy", "loss"]].mean()


def tracking_margin(runs: pd.DataFrame, resamples: int, seed: int) -> tuple[float, tuple[float, float]]:
    """How much closer the continuation loss is to a line in the validation loss than the accuracy is: the difference of
    the |correlations| over runs (``macro``), and its 95 % interval from resampled runs."""
    columns = runs["val_loss"].to_numpy(), runs["loss"].to_numpy(), runs["accuracy"].to_numpy()

    def margin(val: np.ndarray, loss: np.ndarray, accuracy: np.ndarray) -> float:
        of_loss = abs(np.corrcoef(val, loss)[0, 1])
        if not np.ptp(accuracy) > 0:  # an accuracy that never moves follows nothing
            return of_loss
        return of_loss - abs(np.corrcoef(val, accuracy)[0, 1])

    found = scipy.stats.bootstrap(
        columns,
        margin,
        paired=True,
        vectorized=False,
        n_resamples=resamples,
        method="percentile",
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    return margin(*columns), (float(found.low), float(found.high))
