"""Prompts that a context holds are asked whole, and differences are paired by example."""

import numpy as np
import pandas as pd
import pytest

from lib.papers.isodepth import axes, whole_prompts
from lib.papers.isodepth.parameters import DownstreamAxes
from lib.papers.shared.scores import Contrast
from lib.tasks.suites import prompt
from lib.workbook.parameters import at_profile

SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def parameters():
    return at_profile(DownstreamAxes, "addendum")


def test_what_is_asked_fits_with_the_shots_of_the_paper_or_none(parameters):
    found = whole_prompts.tasks(parameters)
    papers = {task.name: task.shots for task in axes.TASKS}
    assert {task.shots for task in found} == {5, 0} and all(task.shots in (papers[task.name], 0) for task in found)
    assert {task.name for task in found} == {"triviaqa", "natural_questions", "lambada_openai", "drop", "coqa"}
    for task, n in found.items():
        examples = whole_prompts.examples_of(task)
        lengths = [max(len((a + b).encode()) for a, b in prompt(task, examples, i, 201)) for i in range(len(examples))]
        assert n == np.sum(np.array(lengths) <= parameters.whole_context) >= whole_prompts.FEWEST


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
    exact = whole_prompts.gaps(losses(GAPS), 4)
    for (_, task), found in exact.items():
        assert found.values == pytest.approx([GAPS[task]] * 3) and found.stderr == pytest.approx(0, abs=1e-12)
    noisy = whole_prompts.gaps(losses(GAPS, 0.2), 4)
    # of examples nothing is left but what models differ by: the root of two seeds' sums, over three seeds
    assert noisy[1.0, "triviaqa"].stderr == pytest.approx(0.2 * np.sqrt(2 / 3 / 400), rel=0.1)


def test_an_axis_is_the_mean_of_its_tasks():
    of = {(1.0, "triviaqa"): Contrast([0.1, 0.2], 0.03), (1.0, "natural_questions"): Contrast([0.3, 0.2], 0.04)}
    found = whole_prompts.axis_gaps(of | {(1.0, "drop"): Contrast([0.5, 0.7], 0.01)})
    assert found[1.0, axes.KNOWLEDGE].values == pytest.approx([0.2, 0.2])
    assert found[1.0, axes.KNOWLEDGE].stderr == pytest.approx(0.025)
    assert found[1.0, axes.READING] == Contrast([0.5, 0.7], 0.01)


def test_the_width_is_that_of_the_lowest_mean_over_seeds():
    rows = [
        dict(budget=1.0, r=r, width=width, seed=seed, loss=mean + spread * (seed - 2))
        for r, width, mean, spread in ((1, 8, 2.0, 0.5), (1, 16, 1.9, 0.01), (4, 8, 1.95, 0.1), (4, 16, 2.1, 0.4))
        for seed in SEEDS
    ]
    best = whole_prompts.optimal(pd.DataFrame([*rows, dict(rows[0], budget=2.0)]), [1, 4])
    assert {*zip(best["r"], best["width"], strict=True)} == {(1, 16), (4, 8)} and len(best) == 6
    gap = whole_prompts.validation_gaps(best, 4)[1.0, "validation"]
    assert gap.values == pytest.approx([1.85 - 1.89, 1.95 - 1.9, 2.05 - 1.91])


def test_a_summary_covers_seeds_and_examples():
    found = whole_prompts.summary({(1.0, "drop"): Contrast([0.1, 0.2, 0.3], 0.05)})
    row = found.loc[(1.0, "drop")]
    alone = whole_prompts.summary({(1.0, "drop"): Contrast([0.1, 0.2, 0.3], 0.0)}).loc[(1.0, "drop")]
    assert row["gap"] == pytest.approx(0.2) and row["error over seeds"] == pytest.approx(0.1 / np.sqrt(3))
    assert alone["low"] == pytest.approx(0.2 - 4.303 * 0.1 / np.sqrt(3), abs=0.01)  # Student's t of two degrees
    assert row["low"] < alone["low"] and row["high"] > alone["high"]
