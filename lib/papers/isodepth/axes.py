"""000's downstream evaluation (App. H): its grid of runs on five axes of tasks, and what is read off it.

A loss is of the right continuation, in nats per token.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from lib.base.errors import InputError
from lib.config import Label, RunConfig
from lib.fit.fits import Noise
from lib.papers.isodepth import designs, readings
from lib.papers.isodepth.parameters import DownstreamAxes, RecurrenceExponent
from lib.papers.shared.frames import with_labels
from lib.papers.shared.scores import Contrast
from lib.store.runs import RunStore
from lib.tasks import primitives, scoring
from lib.tasks.evaluations import Evaluation, Subject, evaluations, examples_of, suite
from lib.tasks.suites import CORE, Task, table
from lib.text.tokenizer import ByteTokenizer

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
WHOLE = (KNOWLEDGE, READING)  # axes that are asked of models whose context holds their prompts
FEWEST = 50  # examples that fit, or the task is not asked
LABEL = ("group", *readings.CELL)  # of a run of the grid

Gaps = dict[tuple[float, str], Contrast]  # (budget, task or axis) -> what more loops lose on one


def asked(whole: RecurrenceExponent, budgets: list[float]) -> RecurrenceExponent:
    """The grid of whose runs tasks are asked. Raises InputError for a budget that 000's grid does not have there."""
    if unknown := [budget for budget in budgets if budget not in whole.budgets]:
        known = ", ".join(f"{one:g}" for one in whole.budgets)
        raise InputError(f"budgets: {unknown[0]:g} is none of recurrence_exponent at {whole.profile}, use {known}")
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
    known = losses[[*readings.CELL, "loss"]].rename(columns={"loss": "val_loss"})
    return with_labels(table, plan, LABEL, "subject").merge(known, on=readings.CELL)


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


# ---- asked whole -----------------------------------------------------------------------------------------------------
# of models whose context holds the prompts: nothing is cut, and the loss of each example is kept, so that recurrences
# are compared by example; tasks have the paper's shots, or none where those do not fit


def whole_grid(p: DownstreamAxes, whole: RecurrenceExponent) -> dict[Label, RunConfig]:
    """(group, budget, r, width, seed) -> run: 000's models on rows that hold prompts."""
    return designs.grid(
        whole.replace(context=p.whole_context, batch=p.whole_batch), p.whole_recurrences, p.whole_at, p.whole_seeds
    )


def whole_tasks(p: DownstreamAxes) -> dict[Task, int]:
    """Task, with the shots that fit -> how many of its examples do; those of which ``FEWEST`` do."""
    found = {}
    for task in (task for axis in WHOLE for task in AXES[axis]):
        for shots in sorted({task.shots, 0}, reverse=True):
            own = task.at(shots)
            fit = scoring.fitting(ByteTokenizer(), own, examples_of(own, p.tasks), p.seeds[0], p.whole_context)
            if len(fit) >= FEWEST:
                found[own] = len(fit)
                break
    return found


def whole_questions(p: DownstreamAxes, plan: dict[Label, RunConfig], store: RunStore) -> list[Evaluation]:
    """Every task that fits, asked of every run with the first draw of the examples in front."""
    return evaluations(
        [Subject.of_run(cfg) for cfg in plan.values()], store, [*whole_tasks(p)], p.seeds[:1], p.tasks, p.whole_limit
    )


def whole_optimal(losses: pd.DataFrame, recurrences: Sequence[int]) -> pd.DataFrame:
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
    rows = [
        pd.DataFrame({"subject": case.subject, "task": case.task, "example": of["which"], "loss": of["loss"]})
        for case, of in zip(cases, found, strict=True)
    ]
    return with_labels(pd.concat(rows), plan, LABEL, "subject").merge(best[[*readings.CELL]], on=readings.CELL)


def gaps(table: pd.DataFrame, r: int) -> Gaps:
    """(budget, task) -> loss at r loops less that at one, by example: a number a seed, and the standard error over
    examples of the seeds' mean. table: ``by_example``."""
    losses = table.pivot(index=["budget", "task", "example"], columns=["r", "seed"], values="loss")
    found: Gaps = {}
    for budget, task in table[["budget", "task"]].drop_duplicates().itertuples(index=False):
        paired = (losses[r] - losses[1]).loc[budget, task].dropna(axis=1)
        found[float(budget), str(task)] = Contrast(paired.mean().tolist(), float(paired.mean(axis=1).sem()))
    return found


def validation_gaps(best: pd.DataFrame, r: int) -> Gaps:
    """(budget, "validation") -> validation loss at r loops less that at one, by seed. best: ``whole_optimal``."""
    losses = best.pivot(index=["budget", "seed"], columns="r", values="loss")
    paired = (losses[r] - losses[1]).dropna()
    return {(float(C), "validation"): Contrast(paired[C].tolist(), 0.0) for C in paired.index.unique("budget")}


def axis_gaps(gaps: Gaps) -> Gaps:
    """(budget, axis) -> the mean over an axis' tasks of ``gaps``, a number a seed; tasks have other examples, so that
    their errors are independent."""
    of_axis = {
        (budget, axis): [gaps[budget, task.name] for task in AXES[axis] if (budget, task.name) in gaps]
        for budget in dict.fromkeys(budget for budget, _ in gaps)
        for axis in WHOLE
    }
    return {
        label: Contrast(
            np.mean([of.values for of in own], axis=0).tolist(),
            float(np.linalg.norm([of.stderr for of in own])) / len(own),
        )
        for label, own in of_axis.items()
        if own
    }


def over_validation(gaps: Gaps, validation: Gaps) -> Gaps:
    """How much more loops lose on an axis than on the validation text, seed by seed."""
    return {
        (budget, f"{axis} over validation"): Contrast(
            np.subtract(of.values, validation[budget, "validation"].values).tolist(), of.stderr
        )
        for (budget, axis), of in gaps.items()
    }


def whole_gaps(
    cases: list[Evaluation],
    found: list[dict[str, list[float]]],
    plan: dict[Label, RunConfig],
    best: pd.DataFrame,
    r: int,
) -> Gaps:
    """All gaps of r loops to one: on the axes, these over validation, on the tasks, and in validation loss. found: what
    ``evaluations.losses_of_whole_prompts`` measured of cases."""
    of_tasks, validation = gaps(by_example(cases, found, plan, best), r), validation_gaps(best, r)
    of_axes = axis_gaps(of_tasks)
    return of_axes | over_validation(of_axes, validation) | of_tasks | validation


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
