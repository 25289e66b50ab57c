"""Who is asked, what a contrast of scores is and how far it can be trusted are worked out by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from lib.base import files
from lib.base.errors import InputError
from lib.base.statistics import mean_and_interval, percentile_interval
from lib.papers.looped_moe.parameters import MoeIsoflop
from lib.papers.parcae import readings
from lib.papers.parcae.parameters import EndToEnd
from lib.papers.shared import scores
from lib.papers.shared.scores import Contrast, contrast
from lib.store.runs import RunStore
from lib.sweep import measurements
from lib.tasks.evaluations import evaluate
from lib.tasks.suites import CORE, LAMBADA, Task
from lib.workbook.parameters import at_profile
from tests.scored import ADDED, NAMES, PLAN, asked, results, sized


def test_runs_of_some_training_seeds_can_be_asked_alone():
    ends = at_profile(EndToEnd, "paper")
    fewer = scores.of_seeds(ends, [2, 0, 9])
    assert fewer.seeds == [0, 2] and fewer.seeds_at == {1536: [0]} and fewer.sizes == ends.sizes
    assert scores.of_seeds(at_profile(MoeIsoflop, "desk"), [311, 312]).seeds == [311, 312]
    for seeds in ([5], [1]):  # the largest size has seed 0 alone
        with pytest.raises(InputError, match=r"training_seeds: none is of \[0.*\], seeds of end_to_end at paper"):
            scores.of_seeds(ends, seeds)


def test_a_question_is_shown_as_it_is_asked_with_its_right_option(tmp_path):
    (tmp_path / "copa.jsonl").write_text('{"query": "It rained, so", "choices": ["a", "b"], "gold": 1}\n')
    copa, other = (task for task in CORE if task.name in ("copa", "coqa"))
    table = scores.example_questions({"choice": copa, "passage": other}, str(tmp_path))
    assert table.T.to_dict("list") == {"choice": ["copa", "It rained, so ", ["a", "b"], "b"]}


def test_who_diverged_or_has_no_weights_is_not_asked_anew(tmp_path):
    store = RunStore(tmp_path / "runs")
    diverged, record, *others = PLAN.values()
    found = results(PLAN, lambda label: None if PLAN[label] is diverged else 2.0)
    for cfg in others:
        (store.path / cfg.key).mkdir(parents=True)
        (store.path / cfg.key / "model.safetensors").touch()

    def who():
        return {case.subject for case in scores.questions(PLAN, found, store, [LAMBADA], [0], "", 5)}

    assert who() == {cfg.key for cfg in others}
    (store.path / record.key).mkdir()
    (store.path / record.key / "model.safetensors").touch()
    (case,) = scores.questions({"r": record}, found, store, [LAMBADA], [0], "", 5)
    (store.path / record.key / "model.safetensors").unlink()
    path = tmp_path / "measured" / measurements.name(evaluate) / f"{measurements.key(case)}.json"
    path.parent.mkdir(parents=True)
    files.write_checked(path, {"case": case.model_dump(mode="json"), "measured": {}, "provenance": {}})
    assert who() == {cfg.key for cfg in others} | {record.key}
    every = scores.questions(PLAN, None, store, [LAMBADA], [0], "", 5)  # before anybody knows how they ended
    assert {case.subject for case in every} == {cfg.key for cfg in PLAN.values()}


def test_what_diverged_stays_in_the_table():
    found = results(PLAN, lambda label: None if label[1:] == (32, 1) else 2.0)
    finished = {label: cfg for label, cfg in PLAN.items() if label[1:] != (32, 1)}
    table = asked(finished, lambda label, task, T: 0.5, depths=(1, 4))
    runs = scores.as_trained(readings.transformer_scores(table, PLAN, NAMES, found))
    assert len(runs) == 12 and runs["Core"].isna().sum() == runs["perplexity"].isna().sum() == 2
    leads = scores.leads(runs, ["Core"], readings.PARCAE, readings.TRANSFORMER, [1, 2])
    lead, other, _ = leads.values()
    assert lead.values == pytest.approx([0, 0]) and math.isnan(other.values[0]) and other.values[1] == pytest.approx(0)
    never = scores.leads(runs, ["Core"], "parcae", "never trained", [1, 2])
    assert all(math.isnan(one.mean) for one in never.values())


def test_a_contrast_is_a_weighted_sum_with_both_errors():
    rows = [("a", 1, 5.0, 0.3), ("a", 2, 7.0, 0.3), ("b", 1, 1.0, 0.8), ("b", 2, 2.0, 0.8)]
    runs = pd.DataFrame(rows, columns=["architecture", "seed", "Core", "Core stderr"])
    found = contrast(runs, "Core", {("a",): 1.0, ("b",): -0.5}, ["architecture"], [2, 1])
    assert found.values == [6.0, 4.5] and found.stderr == pytest.approx(math.hypot(0.3, 0.4))
    assert found.mean == pytest.approx(5.25)
    assert math.isnan(contrast(runs, "Core", {("c",): 1.0}, ["architecture"], [1]).values[0])
    # b guesses, 1.5 above 0 with errors of .5 over seeds and .8 over examples; a does not, 6 with 1 and .3
    assert contrast(runs, "Core", {("b",): 1.0}, ["architecture"], [1, 2]).guesses and not found.guesses
    assert not contrast(runs, "Core", {("b",): 1.0}, ["architecture"], [1, 2], chance=3.5).guesses
    assert not contrast(runs, "Core", {("b",): 1.0}, ["architecture"], [1]).guesses  # nothing is known of other seeds


def test_a_score_is_not_compared_where_most_prompts_are_cut():
    rows = [("a", 0, 6.0, 10.0), ("b", 5, 3.0, 10.0), ("b", 5, 5.0, 10.0), ("b", 0, 10.0, 10.0)]
    table = pd.DataFrame(rows, columns=["task", "shots", "cut", "n"])
    a, b, never = Task("a"), Task("b", 5), Task("never asked")
    assert scores.cut_shares(table).to_dict() == {("a", 0): 0.6, ("b", 0): 1.0, ("b", 5): 0.4}
    assert scores.cut(table, [a]) == scores.cut(table, [a, never]) == "the context cuts 60% of the prompts"
    assert scores.cut(table, [a, b]) == scores.cut(table, [never]) == ""  # tasks weigh alike


def test_draws_are_of_other_seeds_and_other_examples():
    seeds_alone, examples_alone = Contrast([6.0, 4.5, 5.0], 0.0), Contrast([2.0, 2.0, 2.0], 0.5)
    assert percentile_interval(seeds_alone.draws) == pytest.approx(mean_and_interval(seeds_alone.values)[1:], abs=0.15)
    assert percentile_interval(examples_alone.draws) == pytest.approx((2 - 0.98, 2 + 0.98), abs=0.03)
    assert np.isnan(Contrast([2.0], 0.5).draws).all()  # of a single seed nothing is known
    assert np.isnan(Contrast([2.0, math.nan], 0.5).draws).all()


@pytest.mark.parametrize(
    "of_examples", [pytest.param(0.0, marks=pytest.mark.long), 1.0, pytest.param(3.0, marks=pytest.mark.long)]
)
def test_three_seeds_draws_cover_the_mean(of_examples):
    """Seeds scatter by 1 and were asked the same examples, whose error is as large, or three times, or nothing."""
    random = np.random.default_rng(0)
    covered = []
    for _ in range(1000):
        values = random.normal(size=3) + random.normal(0, of_examples)
        low, high = percentile_interval(Contrast(values.tolist(), of_examples).draws)
        covered.append(low <= 0 <= high)
    assert 0.93 <= np.mean(covered) <= 0.98


def test_leads_are_of_each_width_and_suite():
    runs = sized(lambda label, task: (label[0] == "parcae") * (0.1 if label[1] == 32 else 0.2) + (task in ADDED) * 0.3)
    leads = scores.leads(runs, list(readings.SUITES), "parcae", "transformer", [1, 2])
    assert [*leads][:2] == ["Core, d = 16", "Core, d = 32"]
    assert [one.mean for one in leads.values()] == pytest.approx([20, 10, 20, 20, 10, 20])
    texts = scores.leads(runs, ["LAMBADA nats"], "parcae", "transformer", [1, 2])  # fewer are better
    assert [one.mean for one in texts.values()] == pytest.approx([0.2, 0.1, 0.2])
