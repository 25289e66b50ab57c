"""000's downstream evaluation (App. H): its grid of runs on five axes of tasks, and what is read off it.

A loss is of the right continuation, in nats per token.
"""

import numpy as np
import pandas as pd

from lib.base.errors import InputError
from lib.config import Label, RunConfig
from lib.fit.fits import Noise
from lib.papers.isodepth.parameters import DownstreamAxes, RecurrenceExponent
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
#: what r = 4 loses on r = 1 at s = 34 (Table 9)
PUBLISHED_BEYOND = {KNOWLEDGE: 0.108, READING: 0.050, MATH: 0.028, REASONING: 0.095, SYMBOLIC: -0.004}
TASKS: tuple[Task, ...] = tuple(task for tasks in AXES.values() for task in tasks)


def asked(whole: RecurrenceExponent, budgets: list[float]) -> RecurrenceExponent:
    """The grid of whose runs tasks are asked. Raises InputError for a budget that 000's grid does not have there."""
    for budget in budgets:
        if budget not in whole.budgets:
            known = ", ".join(f"{one:g}" for one in whole.budgets)
            raise InputError(f"budgets: {budget:g} is none of recurrence_exponent at {whole.profile}, use {known}")
    return whole.replace(budgets=budgets)


def questions(
    p: DownstreamAxes, plan: dict[Label, RunConfig], losses: pd.DataFrame, store: RunStore
) -> list[Evaluation]:
    """All tasks asked of all runs of a grid: of the compute-optimal runs with every seed, of the others with the first.

    plan: (group, budget, r, width, seed) -> run; losses: ``readings.frame`` of it."""
    best = losses.loc[losses.groupby(["budget", "r"])["loss"].idxmin()]
    often = {*zip(best["budget"], best["r"], best["width"], best["seed"], strict=True)}
    optimal = [Subject.of_run(cfg) for label, cfg in plan.items() if label[1:] in often]
    others = [Subject.of_run(cfg) for label, cfg in plan.items() if label[1:] not in often]
    return [
        *evaluations(optimal, store, TASKS, p.seeds, p.tasks, p.limit),
        *evaluations(others, store, TASKS, p.seeds[:1], p.tasks, p.limit),
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
    parts = [
        suite(table, tasks, "loss").assign(axis=axis, accuracy=suite(table, tasks, "accuracy")["accuracy"])
        for axis, tasks in AXES.items()
    ]
    return pd.concat(parts, ignore_index=True).merge(runs, on="subject")


def optimal(points: pd.DataFrame) -> pd.DataFrame:
    """Of each budget and r, the rows of the run with the lowest validation loss."""
    best = points.loc[points.groupby(["budget", "r"])["val_loss"].idxmin(), ["budget", "r", "subject"]]
    return points.merge(best, on=["budget", "r", "subject"])


def noise(points: pd.DataFrame, axis: str) -> Noise:
    """Of a run's loss on an axis: what a surface for each recurrence leaves over, a parabola in the log width and a
    level for each budget. It is not known on an axis without tasks."""
    left, parameters = [], 0
    for _, own in points[points["axis"] == axis].groupby("r"):
        x = np.log(own["width"].to_numpy(float))
        budgets = own["budget"].to_numpy()[:, None] == own["budget"].unique()
        design = np.column_stack([budgets, x - x.mean(), (x - x.mean()) ** 2])
        solved, _, rank, _ = np.linalg.lstsq(design, own["loss"].to_numpy(float))
        left.append(own["loss"].to_numpy(float) - design @ solved)
        parameters += int(rank)
    return Noise.left_over(left, parameters)


def drawn_gaps(points: pd.DataFrame, axis: str, n: int, seed: int) -> pd.DataFrame:
    """Loss less the plain model's of the compute-optimal runs on an axis: a column for each (budget, r), as it is in
    the first row, and in n more with noise in every run (``noise``). nan on an axis without tasks."""
    best = optimal(points)
    losses = best[best["axis"] == axis].pivot(index="budget", columns="r", values="loss")
    losses = losses.reindex(index=sorted(best["budget"].unique()), columns=sorted(best["r"].unique()))
    found, plain = losses.sub(losses[1], axis=0), [*losses.columns].index(1)
    shifts = noise(points, axis).draws(n, found.size, np.random.default_rng(seed)).reshape(n, *found.shape)
    drawn = found.to_numpy() + shifts - shifts[:, :, [plain]]
    every = np.concatenate([found.to_numpy()[None], drawn]).reshape(n + 1, -1)
    return pd.DataFrame(every, columns=pd.MultiIndex.from_product([found.index, found.columns]))


def beyond(
    points: pd.DataFrame, pair: pd.DataFrame, axis: str, n: int, seed: int, over_validation: bool = False
) -> np.ndarray:
    """What r = 4 loses on r = 1 on an axis in the pair beyond the grid (000, Table 9), or by how much more it loses
    there than in validation loss, and n draws of it with the noise of a run of the grid; nan without tasks or runs.

    points, pair: ``by_axis`` of the grid's runs and of the pair's."""
    if over_validation:
        points, pair = (some.assign(loss=some["loss"] - some["val_loss"]) for some in (points, pair))
    loss = pair[pair["axis"] == axis].set_index("r")["loss"].reindex([1, 4])  # nan where one blew up
    shifts = noise(points, axis).draws(n, 2, np.random.default_rng(seed))
    return float(loss[4] - loss[1]) + np.append(0.0, shifts[:, 1] - shifts[:, 0])


def macro(points: pd.DataFrame) -> pd.DataFrame:
    """One row a run: accuracy and loss, averaged over the axes (000, Fig. 13)."""
    by = points.groupby(["subject", "budget", "r", "width", "val_loss"], as_index=False, sort=False)
    return by[["accuracy", "loss"]].mean()


def tracking_margin(runs: pd.DataFrame, resamples: int, seed: int) -> list[float]:
    """How much closer the continuation loss is to a line in the validation loss than the accuracy is: the difference of
    the |correlations| over runs (``macro``), and on resampled runs."""
    columns = runs[["val_loss", "loss", "accuracy"]].to_numpy(float)
    random = np.random.default_rng(seed)
    drawn = [columns[random.integers(len(columns), size=len(columns))] for _ in range(resamples)]
    return [_closer(some) for some in (columns, *drawn)]


def _closer(columns: np.ndarray) -> float:
    val, loss, accuracy = columns.T
    of_loss = abs(np.corrcoef(val, loss)[0, 1])
    if not np.ptp(accuracy) > 0:  # an accuracy that never moves follows nothing
        return float(of_loss)
    return float(of_loss - abs(np.corrcoef(val, accuracy)[0, 1]))
