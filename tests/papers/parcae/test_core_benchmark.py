"""Core scores and the margins of the papers' claims are those worked out by hand for made-up answers."""

import math

import pandas as pd
import pytest

from lib.papers.parcae import core_benchmark, training_loops
from lib.tasks.suites import CORE, WIKITEXT, ZERO_SHOT
from tests.cells import function, run
from tests.papers.parcae.test_training_loops import SMALL
from tests.runs import ended
from tests.scored import ADDED, NAMES, PLAN, WIDTHS, above_chance, asked, grows, results, sized

# ---- who is asked


def test_of_each_budget_the_best_loops_and_none():
    grid = training_loops.grid(SMALL)
    wanted = {2e11: 2, 4e11: 4}
    found = results(grid, lambda label: 3 + abs(math.log(label[3] / wanted[label[2]])) if label[3] > 1 else 2.0)

    def chosen():
        frontier = run("downstream_core", "in_loops = ", loops=grid, found=found, largest={}).frontier
        return {(which, budget, cfg.model.mean_loops) for (which, _, budget, _), cfg in frontier.items()}

    assert chosen() == {("looped", 2e11, 2), ("fixed depth", 2e11, 1), ("looped", 4e11, 4), ("fixed depth", 4e11, 1)}
    for label in [("mean_loops = 1", 64, 2e11, 1, 7), *(key for key in grid if key[2] == 4e11 and key[3] > 1)]:
        found[grid[label].key] = ended(grid[label], None)  # what diverged is not asked
    assert chosen() == {("looped", 2e11, 2), ("fixed depth", 4e11, 1)}


# ---- scores


def test_core_is_what_lies_between_guessing_and_all_right():
    runs = sized(lambda label, task: 0.2 if task in CORE else 0.5)
    assert runs["Core"].tolist() == pytest.approx([20.0] * 12)
    assert runs["Core-Extended"].tolist() == pytest.approx([(22 * 20 + 24 * 50) / 46] * 12)
    errors = [1 / (1 - task.chance / 100) for task in CORE]
    assert runs["Core stderr"].tolist() == pytest.approx([2 * math.hypot(*errors) / 22] * 12)
    assert runs["Core spread"].tolist() == pytest.approx([math.hypot(*errors) / 22] * 12)
    assert runs["perplexity"].tolist() == pytest.approx([math.exp(2)] * 12)
    assert runs["T"].tolist() == [1, 4] * 6


def test_core_extended_is_empty_where_none_of_what_it_adds_was_asked():
    assert sized(tasks=(*CORE, ADDED[0]))["Core-Extended"].notna().all()
    runs = sized(tasks=CORE)
    assert runs["Core-Extended"].isna().all() and runs["Core-Extended stderr"].isna().all()


def test_texts_have_nats_and_perplexities_with_errors():
    runs = sized(lambda label, task: 0.2, tasks=CORE)
    assert runs["LAMBADA nats"].tolist() == pytest.approx([1.8] * 12)
    assert runs["LAMBADA nats stderr"].tolist() == pytest.approx([0.03] * 12)
    assert runs["LAMBADA per token"].tolist() == pytest.approx([math.exp(1.8)] * 12)
    assert runs["LAMBADA per word"].tolist() == pytest.approx([math.exp(8.8)] * 12)
    assert runs["LAMBADA per word stderr"].tolist() == pytest.approx([0.5 * math.exp(8.8)] * 12)
    assert runs["WikiText per word"].isna().all()  # no file of it was there
    runs = sized(lambda label, task: 0.2, tasks=(*CORE, WIKITEXT))
    assert runs["WikiText nats"].tolist() == pytest.approx([1.8] * 12)


def test_zero_shot_tasks_are_not_those_with_examples_in_front():
    table = asked(PLAN, lambda label, task, T: 0.9 if task.shots else 0.5, [*ZERO_SHOT.values(), *CORE[1:]])
    scores = core_benchmark.rdm_scores(table, PLAN, NAMES, results(PLAN))
    assert scores["zero-shot"].tolist() == pytest.approx([50.0] * 12) == scores["PIQA"].tolist()
    assert scores["zero-shot stderr"].tolist() == pytest.approx([2 / math.sqrt(6)] * 12)
    assert scores["SciQ stderr"].tolist() == pytest.approx([2.0] * 12)


@pytest.mark.usefixtures("style")
def test_the_table_of_transformers_is_of_means_over_seeds():
    answers = asked(PLAN, lambda label, task, T: above_chance(grows(label, task), task))
    given = dict(table=answers, matched=PLAN, found=results(PLAN))
    table = run("downstream_core", "def closed(", **given).said.tables["downstream_core"]
    assert table.index.tolist() == [(w, a) for w in WIDTHS for a in ("transformer", "parcae")]
    assert table.loc[[(16, "transformer"), (48, "parcae")], "Core"].tolist() == pytest.approx([8, 34])
    assert table["closed, Core (%)"].tolist()[1::2] == pytest.approx([125, 125, math.nan], nan_ok=True)
    assert table["closed, Core (%)"].isna().tolist()[::2] == [True] * 3
    closed = function("downstream_core", "closed")
    flat = closed(sized(lambda label, task: 0.1 * (label[0] == "parcae") - label[1] / 1000), "Core")
    assert flat.isna().all()  # the larger one is no better
    runs = sized()
    runs.loc[(runs["width"] == 16) & (runs["seed"] == 1), "Core"] = math.nan  # of the other seed alone
    assert closed(runs, "Core").tolist() == pytest.approx([125, 125, math.nan], nan_ok=True)


# ---- what the papers say of them


def test_a_share_of_each_gap_and_three_quarters_of_the_last():
    runs = sized()  # 10 above its own size, which is 8 below the next
    means = {name: one.mean for name, one in core_benchmark.part_of_the_gap(runs, ["Core"], [1, 2]).items()}
    assert [*means] == [
        f"Core, {a}: {side}" for a, b in ((16, 32), (32, 48)) for side in (f"above d = {a}", f"below d = {b}")
    ]
    assert [*means.values()] == pytest.approx([10, -2, 10, -2])
    assert core_benchmark.half_the_parameters(runs, [1, 2]).values == pytest.approx([10 - 0.75 * 8] * 2)
    # the paper's own: 25.07 of 22.42 and 25.45
    paper = runs.assign(Core=0.0).set_index(["width", "architecture"])
    for one, score in (((32, "parcae"), 25.07), ((32, "transformer"), 22.42), ((48, "transformer"), 25.45)):
        paper.loc[one, "Core"] = score
    assert core_benchmark.half_the_parameters(paper.reset_index(), [1, 2]).values[0] > 0.3


def test_the_frontier_is_compared_at_the_largest_third_of_the_budgets():
    rows = [
        {"which": which, "width": 64, "budget": C, "seed": 7, "Core": C * (which == "looped"), "Core stderr": 0.3}
        for which in ("looped", "fixed depth")
        for C in (1.0, 2.0, 4.0, 8.0, 16.0, 64.0)
    ]

    def found(rows):
        return {name: one.values for name, one in core_benchmark.upper_third(pd.DataFrame(rows), [7]).items()}

    assert found(rows) == {"d = 64, 16 FLOPs": [16.0], "d = 64, 64 FLOPs": [64.0]}
    assert found(rows[:2] + rows[6:8]) == {"d = 64, 2 FLOPs": [2.0]}
    assert math.isnan(found(rows[6:] + rows[:5])["d = 64, 64 FLOPs"][0])  # its run diverged
