"""000's twenty tasks stand on its five axes, and margins read off them are positive where the paper is right."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from lib.base.errors import InputError
from lib.papers.isodepth import axes, designs
from lib.papers.isodepth.axes import by_axis, labelled, macro, optimal
from lib.papers.isodepth.parameters import DownstreamAxes, RecurrenceExponent
from lib.papers.shared.scores import Contrast
from lib.store.runs import RunStore
from lib.tasks.evaluations import over_seeds
from lib.tasks.suites import CORE, prompt
from lib.workbook.parameters import at_profile
from tests.cells import function
from tests.given import given
from tests.runs import small_run

growth, at = (function("downstream_axes", name) for name in ("growth", "at"))
BUDGETS, RECURRENCES, WIDTHS = (1e9, 1e10), (1, 2, 4), (8, 16)

#: what is the same of every task that is asked here
ANSWER = dict(limit=50, seed=0, chance=0.0, n=50, cut=0, drawn=True)
ANSWER |= dict(accuracy=0.1, accuracy_stderr=0.01, loss_stderr=0.02)


def grid(loss=lambda axis, budget, r, width: 2.0, val=lambda budget, r, width: 2 + width / 100):
    """Asked tasks of a grid of runs: plan, losses and table, as the notebook has them."""
    plan, losses, rows = {}, [], []
    for i, (budget, r, width) in enumerate((b, r, w) for b in BUDGETS for r in RECURRENCES for w in WIDTHS):
        cfg = small_run(train={"seed": i})
        plan["g", budget, r, width, 7] = cfg
        losses.append(dict(budget=budget, r=r, width=width, seed=7, loss=val(budget, r, width)))
        rows += [
            ANSWER | dict(subject=cfg.key, task=task.name, shots=task.shots, T=r, loss=loss(axis, budget, r, width))
            for axis, tasks in axes.AXES.items()
            for task in tasks
        ]
    return labelled(over_seeds(pd.DataFrame(rows)), plan, pd.DataFrame(losses))


def frame(axis, loss, val=lambda budget, r, width: width, widths=(8, 12, 16, 24, 32)):
    """One row a run of a grid on an axis, from its budget, r and width."""
    cells = itertools.product(BUDGETS, RECURRENCES, widths)
    rows = [(axis, f"{cell}", *cell, val(*cell), loss(*cell)) for cell in cells]
    return pd.DataFrame(rows, columns=["axis", "subject", "budget", "r", "width", "val_loss", "loss"])


def test_the_lower_budgets_of_the_grid_can_be_asked_alone():
    grid = at_profile(RecurrenceExponent, "desk")
    some = axes.asked(grid, grid.budgets[:2])
    assert some.budgets == grid.budgets[:2] and some.widths == grid.widths
    runs = {cfg.key for cfg in designs.grid_with_noise(some).values()}
    assert runs < {cfg.key for cfg in designs.grid_with_noise(grid).values()}
    with pytest.raises(InputError, match="budgets: 7 is none of recurrence_exponent at desk, use 1e\\+11"):
        axes.asked(grid, [1e11, 7])


def test_the_best_runs_are_asked_with_every_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(axes, "TASKS", axes.AXES[axes.REASONING][1:2])  # with examples in front
    plan = {("g", 1e9, r, width, 7): small_run(train={"seed": r + width}) for r in (1, 2) for width in (8, 16)}
    losses = pd.DataFrame(
        [dict(budget=1e9, r=r, width=width, seed=7, loss=width * (-1) ** r) for _, _, r, width, _ in plan]
    )
    p = given(DownstreamAxes, tasks="", limit=10, seeds=[4, 5, 6])
    cases = axes.questions(p, plan, losses, RunStore(tmp_path / "runs"))
    seeds = {label[2:4]: sorted(case.seed for case in cases if case.subject == cfg.key) for label, cfg in plan.items()}
    assert seeds == {(1, 8): [4], (1, 16): [4, 5, 6], (2, 8): [4, 5, 6], (2, 16): [4]}


def test_an_axis_is_the_mean_of_its_tasks():
    table = grid(lambda axis, budget, r, width: len(axis) / 10)
    points = by_axis(table)
    assert len(points) == 12 * 5
    for axis, part in points.groupby("axis"):
        k = len(axes.AXES[axis])
        assert part["loss"].tolist() == pytest.approx([len(axis) / 10] * 12)
        assert part["stderr"].tolist() == pytest.approx([0.02 / math.sqrt(k)] * 12) and set(part["tasks"]) == {k}
    assert macro(points)["loss"].tolist() == pytest.approx([np.mean([len(axis) for axis in axes.AXES]) / 10] * 12)
    # tasks that a source does not have, and axes with none of them, are left out
    some = table[table["task"] != "drop"]
    some = by_axis(some[~some["task"].isin(task.name for task in axes.AXES[axes.MATH])])
    assert set(some[some["axis"] == axes.READING]["tasks"]) == {4} and axes.MATH not in set(some["axis"])


def test_the_best_run_of_a_cell_is_the_one_with_the_lowest_validation_loss():
    best = optimal(by_axis(grid(val=lambda budget, r, width: 2 + (width == (8 if r == 2 else 16)))))
    assert len(best) == 2 * 3 * 5
    assert set(best[best["r"] == 2]["width"]) == {16} and set(best[best["r"] != 2]["width"]) == {8}


def test_margins_are_read_at_every_budget_with_their_sign():
    of = {1: 0.0, 2: 0.1, 4: 0.3}, {1: 0.0, 2: -0.01, 4: 0.2}  # of other axes, and of reading
    points = by_axis(grid(lambda axis, budget, r, width: 2 + of[axis == axes.READING][r]))
    found = axes.drawn_gaps(points, axes.READING, 0, 0)
    margins = {name: float(x[0]) for name, x in (growth(found) | at(found, [2])).items()}
    each = {"1 to 2": -0.01, "2 to 4": 0.21, "2": -0.01}
    assert margins == pytest.approx({f"r = {r}, {C} FLOPs": x for C in ("1e+09", "1e+10") for r, x in each.items()})


def test_draws_have_the_noise_that_a_surface_leaves_over():
    random = np.random.default_rng(0)
    points = frame(
        axes.MATH,
        lambda budget, r, width: 2 + np.log10(budget) * r + 0.3 * np.log(width) ** 2 + 0.01 * random.normal(),
        widths=(8, 16, 32),
    )
    found = axes.noise(points, axes.MATH)
    assert found.freedom == 18 - 3 * 4 and found.variance**0.5 == pytest.approx(0.01, rel=0.6)
    drawn = axes.drawn_gaps(points, axes.MATH, 500, 0)
    assert len(drawn) == 501 and (drawn.xs(1, axis=1, level=1) == 0).all(axis=None)
    gap, *draws = drawn[1e10, 4]
    best = optimal(points).set_index(["budget", "r"])["loss"]
    assert gap == best[1e10, 4] - best[1e10, 1]
    assert np.quantile(np.abs(np.array(draws) - gap), 0.68) == pytest.approx(np.sqrt(2 * found.variance), rel=0.25)


def test_an_axis_without_tasks_has_no_margin():
    table = grid()
    points = by_axis(table[~table["task"].isin(task.name for task in axes.AXES[axes.KNOWLEDGE])])
    assert not axes.noise(points, axes.KNOWLEDGE).freedom
    found = {axis: axes.drawn_gaps(points, axis, 3, 0) for axis in (axes.KNOWLEDGE, axes.READING)}
    assert len(found[axes.KNOWLEDGE]) == 4 and found[axes.KNOWLEDGE].isna().all(axis=None)
    assert found[axes.READING].iloc[0].notna().all()


def test_what_follows_the_validation_loss_is_told_from_noise():
    random = np.random.default_rng(0)
    val = np.linspace(2, 3, 30)
    runs = pd.DataFrame(dict(val_loss=val, loss=val + 0.02 * random.normal(size=30), accuracy=random.normal(size=30)))
    margin, *draws = axes.tracking_margin(runs, 200, 0)
    low, high = np.quantile(draws, [0.025, 0.975])
    assert 0.5 < margin < 1 and len(draws) == 200 and 0 < low < margin < high
    swapped = runs.rename(columns={"loss": "accuracy", "accuracy": "loss"})
    assert axes.tracking_margin(swapped, 200, 0)[0] == pytest.approx(-margin)
    still = runs.assign(accuracy=0.0)
    assert axes.tracking_margin(still, 50, 0)[0] == pytest.approx(abs(np.corrcoef(val, runs["loss"])[0, 1]))


def test_the_pair_beyond_the_grid_has_the_noise_of_the_grids_runs():
    random = np.random.default_rng(0)
    points = frame(
        axes.KNOWLEDGE, lambda b, r, w: 3.0 - w / 100 + random.normal(0, 0.03), lambda b, r, w: 2.0 - w / 100
    )
    pair = pd.DataFrame(
        [dict(r=r, axis=axes.KNOWLEDGE, loss=loss, val_loss=val) for r, loss, val in ((1, 2.5, 1.9), (4, 2.7, 2.0))]
    )
    gap, *draws = axes.beyond(points, pair, axes.KNOWLEDGE, 4000, 0)
    noise = axes.noise(points, axes.KNOWLEDGE)
    spread = math.sqrt(2 * noise.variance * noise.freedom / (noise.freedom - 2))  # of two runs, Student's
    assert gap == pytest.approx(0.2) and np.mean(draws) == pytest.approx(0.2, abs=0.01)
    assert np.std(draws) == pytest.approx(spread, rel=0.06)
    over, *_ = axes.beyond(points, pair, axes.KNOWLEDGE, 10, 0, over_validation=True)
    assert over == pytest.approx(0.1)  # .2 on the axis, .1 in validation loss
    assert math.isnan(axes.beyond(points, pair.iloc[:1], axes.KNOWLEDGE, 10, 0)[0])  # one of the two blew up
    assert np.isnan(axes.beyond(points, pair, axes.MATH, 10, 0)).all()


def test_single_tasks_are_read_at_the_largest_budget():
    slopes = {task.name: 0.0 for task in axes.TASKS} | {"drop": -0.1, "coqa": 0.2}
    tables = [
        frame(task, lambda budget, r, width, slope=slope: 2.0 + slope * (r - 1) * (budget == 1e10)).assign(task=task)
        for task, slope in slopes.items()
    ]
    table = pd.concat(tables, ignore_index=True).drop(columns="axis")
    of_tasks = function("downstream_axes", "of_tasks", table=table, best=optimal(table), draws=(5, 0))
    named = {task.name: task for task in axes.TASKS}
    drawn = of_tasks(lambda gaps: at(-gaps, [2, 4]), named["drop"], CORE[0]) | of_tasks(growth, named["coqa"])
    read = {"drop, r = 2": 0.1, "drop, r = 4": 0.3, "coqa, r = 1 to 2": 0.2, "coqa, r = 2 to 4": 0.4}
    read = {f"{name}, 1e+10 FLOPs": x for name, x in read.items()}
    assert {name: x[0] for name, x in drawn.items()} == pytest.approx(read)
    assert {len(x) for x in drawn.values()} == {6}


# ---- asked whole -----------------------------------------------------------------------------------------------------


SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def parameters():
    return at_profile(DownstreamAxes, "addendum")


def test_what_is_asked_fits_with_the_shots_of_the_paper_or_none(parameters):
    found = axes.whole_tasks(parameters)
    papers = {task.name: task.shots for task in axes.TASKS}
    assert {task.shots for task in found} == {5, 0} and all(task.shots in (papers[task.name], 0) for task in found)
    assert {task.name for task in found} == {"triviaqa", "natural_questions", "lambada_openai", "drop", "coqa"}
    for task, n in found.items():
        examples = axes.examples_of(task)
        lengths = [max(len((a + b).encode()) for a, b in prompt(task, examples, i, 201)) for i in range(len(examples))]
        assert n == np.sum(np.array(lengths) <= parameters.whole_context) >= axes.FEWEST


def losses(gap, noise=0.0):
    """Answers of two recurrences on examples of very different difficulty."""
    random = np.random.default_rng(0)
    rows = []
    for task, n in (("triviaqa", 400), ("natural_questions", 100), ("drop", 200)):
        difficulty = random.normal(3, 1, n)
        for r in (1, 4):
            for seed in SEEDS:
                loss = difficulty + (r == 4) * gap[task] + noise * random.normal(size=n) + 0.1 * seed
                rows.append(pd.DataFrame(dict(task=task, budget=1.0, r=r, seed=seed, example=range(n), loss=loss)))
    return pd.concat(rows)


GAPS = {"triviaqa": 0.1, "natural_questions": 0.3, "drop": -0.05}


def test_a_gap_is_paired_by_example():
    exact = axes.gaps(losses(GAPS), 4)
    for (_, task), found in exact.items():
        assert found.values == pytest.approx([GAPS[task]] * 3) and found.stderr == pytest.approx(0, abs=1e-12)
    noisy = axes.gaps(losses(GAPS, 0.2), 4)
    # of examples nothing is left but what models differ by: the root of two seeds' sums, over three seeds
    assert noisy[1.0, "triviaqa"].stderr == pytest.approx(0.2 * np.sqrt(2 / 3 / 400), rel=0.1)


def test_the_gap_of_an_axis_is_the_mean_of_its_tasks():
    of = {(1.0, "triviaqa"): Contrast([0.1, 0.2], 0.03), (1.0, "natural_questions"): Contrast([0.3, 0.2], 0.04)}
    found = axes.axis_gaps(of | {(1.0, "drop"): Contrast([0.5, 0.7], 0.01)})
    assert found[1.0, axes.KNOWLEDGE].values == pytest.approx([0.2, 0.2])
    assert found[1.0, axes.KNOWLEDGE].stderr == pytest.approx(0.025)
    assert found[1.0, axes.READING] == Contrast([0.5, 0.7], 0.01)


def test_the_width_is_that_of_the_lowest_mean_over_seeds():
    rows = [
        dict(budget=1.0, r=r, width=width, seed=seed, loss=mean + spread * (seed - 2))
        for r, width, mean, spread in ((1, 8, 2.0, 0.5), (1, 16, 1.9, 0.01), (4, 8, 1.95, 0.1), (4, 16, 2.1, 0.4))
        for seed in SEEDS
    ]
    best = axes.whole_optimal(pd.DataFrame([*rows, dict(rows[0], budget=2.0)]), [1, 4])
    assert {*zip(best["r"], best["width"], strict=True)} == {(1, 16), (4, 8)} and len(best) == 6
    gap = axes.validation_gaps(best, 4)[1.0, "validation"]
    assert gap.values == pytest.approx([1.85 - 1.89, 1.95 - 1.9, 2.05 - 1.91])


def test_an_axis_stands_beside_validation_seed_by_seed():
    of, validation = (
        {(1.0, axes.KNOWLEDGE): Contrast([0.1, 0.3], 0.03)},
        {(1.0, "validation"): Contrast([0.2, 0.1], 0.0)},
    )
    (over,) = (found := axes.over_validation(of, validation)).values()
    assert over.values == pytest.approx([-0.1, 0.2]) and over.stderr == 0.03
    row, alone = axes.summary(found).iloc[0], Contrast(over.values, 0.0).draws
    assert row["gap"] == pytest.approx(0.05) and row["error over seeds"] == pytest.approx(0.15)
    assert row["low"] < np.quantile(alone, 0.025) < np.quantile(alone, 0.975) < row["high"]
