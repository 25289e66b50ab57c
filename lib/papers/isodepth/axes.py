"""000's downstream evaluation: its grid of runs on five axes of tasks (App. H), and what is read off it."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import scipy.stats

from lib.config import Label, RunConfig
from lib.store.runs import RunStore
from lib.tasks import primitives
from lib.tasks.scoring import Evaluation, Subject, evaluations, suite
from lib.tasks.suites import CORE, Task, table

_TRIVIA = ("triviaqa_wikipedia_nocontext_val", "triviaqa_sm_sub", "triviaqa")
_of = {task.name: task for task in CORE} | table(
    ("triviaqa", 5, 0, " ", _TRIVIA, "trivia_qa/rc.wikipedia.nocontext"),
    ("natural_questions", 5, 0, " ", ("nq_open_val", "naturalqs_sample1000"), "nq_open/none"),
    ("webquestions", 5, 0, " ", ("webquestions_test", "webquestions"), ""),
    ("tydiqa_goldp", 3, 0, " ", ("tydiqa_english_dev", "tydiqa"), ""),
    ("squad_v2", 3, 0, " ", ("squad_v2",), ""),
    ("drop", 3, 0, " ", ("drop", "drop_sample1000"), "drop/bpb_5shot"),
    ("svamp", 5, 0, " ", ("symbolic_problem_solving/svamp", "svamp"), ""),
    ("asdiv", 5, 0, " ", ("asdiv",), ""),
    ("mawps", 5, 0, " ", ("mawps",), ""),
)  # fmt: skip
#: axis -> tasks (000, Table 7)
AXES: dict[str, tuple[Task, ...]] = {
    "Parametric knowledge": (_of["triviaqa"], _of["natural_questions"], _of["webquestions"]),
    "Reading comprehension": (
        _of["lambada_openai"], _of["tydiqa_goldp"], _of["squad_v2"], _of["drop"], _of["coqa"].at(1),
    ),
    "Math word problems": (_of["svamp"], _of["asdiv"], _of["mawps"]),
    "Reasoning primitives": tuple(primitives.PROBES),
    "Compositional symbolic": (
        _of["bigbench_dyck_languages"], _of["bigbench_qa_wikidata"], _of["arc_easy"], _of["bigbench_cs_algorithms"],
    ),
}  # fmt: skip
KNOWLEDGE, READING, MATH, REASONING, SYMBOLIC = AXES
TASKS: tuple[Task, ...] = tuple(task for tasks in AXES.values() for task in tasks)


def questions(
    plan: dict[Label, RunConfig], losses: pd.DataFrame, store: RunStore, seeds: Sequence[int], source: str, limit: int
) -> list[Evaluation]:
    """All tasks asked of all runs of a grid: with every seed of the compute-optimal ones, with the first of the others.

    plan: (group, budget, r, width, seed) -> run; losses: ``isodepth.frame`` of it."""
    best = losses.loc[losses.groupby(["budget", "r"])["loss"].idxmin()]
    often = {*zip(best["budget"], best["r"], best["width"], best["seed"], strict=True)}
    groups: dict[bool, list[Subject]] = {True: [], False: []}
    for (_, *label), cfg in plan.items():
        groups[tuple(label) in often].append(Subject.of_run(cfg))
    return [
        *evaluations(groups[True], store, TASKS, seeds, source, limit),
        *evaluations(groups[False], store, TASKS, seeds[:1], source, limit),
    ]


def labelled(table: pd.DataFrame, plan: dict[Label, RunConfig], losses: pd.DataFrame) -> pd.DataFrame:
    """``downstream.over_seeds`` of a grid's runs with their budget, r, width and validation loss, ``val_loss``.

    plan: (group, budget, r, width, seed) -> run; losses: ``isodepth.frame`` of it."""
    names = ["budget", "r", "width", "seed"]
    runs = pd.DataFrame([(cfg.key, *label) for (_, *label), cfg in plan.items()], columns=["subject", *names])
    known = losses[[*names, "loss"]].rename(columns={"loss": "val_loss"})
    return table.merge(runs, on="subject").merge(known, on=names)


def by_axis(table: pd.DataFrame) -> pd.DataFrame:
    """One row a run and axis: ``loss``, the mean over the axis' tasks that are there (nats per token), its ``stderr``,
    ``accuracy``, ``tasks``; from ``labelled``. Axes without any task are left out."""
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
    """Loss less the plain model's on an axis: a row a budget, a column a recurrence, nan on an axis without tasks; from
    ``optimal``."""
    losses = best[best["axis"] == axis].pivot(index="budget", columns="r", values="loss")
    losses = losses.reindex(index=sorted(best["budget"].unique()), columns=sorted(best["r"].unique()))
    return losses.sub(losses[1], axis=0)


def knowledge_margins(best: pd.DataFrame) -> list[float]:
    """Of each budget, the least rise of the gap from one recurrence to the next: positive where the plain model leads
    and the gap grows with r."""
    return np.diff(gaps(best, KNOWLEDGE).to_numpy(), axis=1).min(1).tolist()


def reading_margins(best: pd.DataFrame) -> list[float]:
    """Of each budget, the gap at the most recurrences less the largest of the others, in size."""
    found = gaps(best, READING).drop(columns=1)
    return (found.iloc[:, -1] - found.iloc[:, :-1].abs().max(axis=1)).tolist()


def tie_margins(best: pd.DataFrame) -> list[float]:
    """Of each budget, the largest gap on parametric knowledge less the largest on compositional symbolic, in size:
    positive where the one is tied beside the other."""
    knowledge, symbolic = (gaps(best, axis).abs().max(axis=1) for axis in (KNOWLEDGE, SYMBOLIC))
    return (knowledge - symbolic).tolist()


def order_margins(best: pd.DataFrame) -> list[float]:
    """Of each recurrence, what the 95 % interval of its mean gap over budgets (Student's t) leaves above that mean's
    size, the least of reasoning primitives and math word problems: positive where no order is resolved."""
    margins = []
    for axis in (REASONING, MATH):
        found = gaps(best, axis).drop(columns=1)
        reach = scipy.stats.t.ppf(0.975, len(found) - 1) * found.std(ddof=1) / np.sqrt(len(found))
        margins.append(reach - found.mean().abs())
    return pd.concat(margins, axis=1).min(axis=1).tolist()


def macro(points: pd.DataFrame) -> pd.DataFrame:
    """One row a run: accuracy and loss, averaged over the axes (000, Fig. 13)."""
    by = points.groupby(["subject", "budget", "r", "width", "val_loss"], as_index=False, sort=False)
    return by[["accuracy", "loss"]].mean()


def tracking_margin(runs: pd.DataFrame, resamples: int, seed: int) -> tuple[float, tuple[float, float]]:
    """How much closer to a line in the validation loss the continuation loss is than the accuracy: the difference of
    the |correlations| over runs (``macro``), and its 95 % interval from resampled runs."""
    columns = runs["val_loss"].to_numpy(), runs["loss"].to_numpy(), runs["accuracy"].to_numpy()

    def margin(val: np.ndarray, loss: np.ndarray, accuracy: np.ndarray) -> float:
        moves = np.ptp(accuracy) > 0  # one that never moves follows nothing
        return abs(np.corrcoef(val, loss)[0, 1]) - (abs(np.corrcoef(val, accuracy)[0, 1]) if moves else 0.0)

    found = scipy.stats.bootstrap(
        columns, margin, paired=True, vectorized=False, n_resamples=resamples, method="percentile",
        random_state=np.random.default_rng(seed),
    ).confidence_interval  # fmt: skip
    return margin(*columns), (float(found.low), float(found.high))
