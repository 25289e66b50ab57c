"""Core scores, their errors and the margins of the papers' claims are those worked out by hand for made-up answers."""

import functools
import gzip
import itertools
import math

import pandas as pd
import pytest
import scipy.stats

from lib import core, downstream, files, looping, measure, sparse, taskfiles
from lib.core import Contrast, contrast, least
from lib.downstream import evaluate, over_seeds
from lib.errors import InputError
from lib.store import RunStore
from lib.tasks import CORE, CORE_9, CORE_EXTENDED, LAMBADA, WIKITEXT, ZERO_SHOT
from tests.runs import ended, small_run
from tests.test_looping import SMALL
from tests.test_sparse import P as SPARSE

WIDTHS = (16, 32, 48)
PLAN = {
    (architecture, width, seed): small_run(
        train={"seed": seed}, model={"mean_loops": loops, "width": width, "heads": 2, "mlp_width": 2 * width}
    )
    for width in WIDTHS for seed in (1, 2) for architecture, loops in (("transformer", 1), ("parcae", 4))
}  # fmt: skip
NAMES = ["architecture", "width", "seed"]
ADDED = tuple(task for task in CORE_EXTENDED if task not in CORE)


def results(plan, loss=lambda label: 2.0) -> dict:
    return {cfg.key: ended(cfg, loss(label)) for label, cfg in plan.items()}


def asked(plan, accuracy, tasks=CORE_EXTENDED, depths=(None,)) -> pd.DataFrame:
    """What ``downstream.frame`` and ``over_seeds`` would say: accuracy(label, task, T) in the draw 1, .01 more or less
    in the others, with an error of .02; a token costs 2 nats less the accuracy, a word 9."""
    rows = []
    for label, cfg in plan.items():
        for T in depths:
            T = T or cfg.model.mean_loops
            for task in tasks:
                a = accuracy(label, task, T)
                per = {"token": math.exp(2 - a), "word": math.exp(9 - a)}
                rows += [
                    dict(subject=cfg.key, task=task.name, shots=task.shots, limit=9, seed=seed, T=T, n=9, cut=0,
                         chance=task.chance / 100, drawn=True, accuracy=a + 0.01 * (seed - 1), accuracy_stderr=0.02,
                         loss=2 - a, loss_stderr=0.1, token_perplexity=per["token"], word_perplexity=per["word"],
                         token_perplexity_stderr=0.03 * per["token"], word_perplexity_stderr=0.5 * per["word"])
                    for seed in (0, 1, 2)
                ]  # fmt: skip
    return over_seeds(pd.DataFrame(rows))


def above_chance(gain, task) -> float:
    return task.chance / 100 + (1 - task.chance / 100) * gain


def sized(gain=None, tasks=CORE_EXTENDED):
    """Transformers and Parcae that have ``gain`` of what lies above guessing."""
    return _sized(gain or _grows, tuple(tasks)).copy()


def _grows(label, task) -> float:
    return 0.1 * (label[0] == "parcae") + label[1] / 200


@functools.cache
def _sized(gain, tasks) -> pd.DataFrame:
    table = asked(PLAN, lambda label, task, T: above_chance(gain(label, task), task), tasks)
    return core.transformer_scores(table, PLAN, NAMES, results(PLAN))


# ---- who is asked


def test_of_each_budget_the_best_loops_and_none():
    grid = looping.grid(SMALL)
    wanted = {2e11: 2, 4e11: 4}
    found = results(grid, lambda label: 3 + abs(math.log(label[2] / wanted[label[1]])) if label[2] > 1 else 2.0)
    chosen = core.frontier(grid, found)
    assert {label: cfg.model.mean_loops for label, cfg in chosen.items()} == {
        ("looped", 2e11, 7): 2, ("fixed depth", 2e11, 7): 1, ("looped", 4e11, 7): 4, ("fixed depth", 4e11, 7): 1,
    }  # fmt: skip
    for label in [("mean_loops = 1", 2e11, 1, 7), *(key for key in grid if key[1] == 4e11 and key[2] > 1)]:
        found[grid[label].key] = ended(grid[label], None)  # what diverged is not asked
    assert [*core.frontier(grid, found)] == [("looped", 2e11, 7), ("fixed depth", 4e11, 7)]


def test_of_each_architecture_the_best_width_at_the_largest_budget():
    p = SPARSE | {"architectures": [*sparse.LOOK], "widths": {1e9: [16, 32, 48], 2e9: [16, 32, 48]}, "lr": 0.001}
    grid = sparse.grid(p | {"seeds": [5, 6]})
    best = {("base", 5): 16, ("looped", 5): 32, ("moe", 5): 48, ("looped-moe", 5): 32, ("looped-moe", 6): 16}
    found = results(grid, lambda label: 2 + abs(label[2] - best.get((label[0], label[3]), 48)) / 100 + (label[1] > 1e9))
    chosen = core.best_of_each(grid, found)
    assert {*chosen} == {(name, best.get((name, seed), 48), seed) for name in sparse.LOOK for seed in (5, 6)}
    assert all(cfg == grid[label[0], 2e9, label[1], label[2]] for label, cfg in chosen.items())


def test_who_diverged_or_has_no_weights_is_not_asked_anew(tmp_path):
    store = RunStore(tmp_path / "runs")
    diverged, record, *others = PLAN.values()
    found = results(PLAN, lambda label: None if PLAN[label] is diverged else 2.0)
    for cfg in others:
        (store.path / cfg.key).mkdir(parents=True)
        (store.path / cfg.key / "model.safetensors").touch()

    def who():
        return {case.subject for case in core.questions(PLAN, found, store, [LAMBADA], [0], "", 5)}

    assert who() == {cfg.key for cfg in others}
    (store.path / record.key).mkdir()
    (store.path / record.key / "model.safetensors").touch()
    (case,) = core.questions({"r": record}, found, store, [LAMBADA], [0], "", 5)
    (store.path / record.key / "model.safetensors").unlink()
    path = measure._path(tmp_path, evaluate, case)
    path.parent.mkdir(parents=True)
    files.write_checked(path, {"measured": {}})
    assert who() == {cfg.key for cfg in others} | {record.key}


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
    assert core.suites_there(runs) == ["Core"] and core.suites_there(sized()) == ["Core", "Core-Extended"]


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
    scores = core.rdm_scores(table, PLAN, NAMES, results(PLAN))
    assert scores["zero-shot"].tolist() == pytest.approx([50.0] * 12) == scores["PIQA"].tolist()
    assert scores["zero-shot stderr"].tolist() == pytest.approx([2 / math.sqrt(6)] * 12)
    assert scores["SciQ stderr"].tolist() == pytest.approx([2.0] * 12)
    assert core.rdm_table(scores)["SciQ"].tolist() == pytest.approx([50.0] * 6)


def test_core_9_is_the_mean_of_its_accuracies():
    plan = {(name, 32, 5): small_run(train={"seed": i}) for i, name in enumerate(sparse.LOOK)}
    table = asked(plan, lambda label, task, T: 0.1 * len(label[0]) / 10 + 0.5 * (task is CORE_9[0]), CORE_9)
    runs = core.nine_scores(table, plan, NAMES, results(plan))
    assert runs["Core 9"].tolist() == pytest.approx([len(name) + 50 / 9 for name in sparse.LOOK])
    assert runs["SIQA"].tolist() == pytest.approx([len(name) for name in sparse.LOOK]) and len(core.NINE) == 9


def test_what_diverged_stays_in_the_table():
    found = results(PLAN, lambda label: None if label[1:] == (32, 1) else 2.0)
    finished = {label: cfg for label, cfg in PLAN.items() if label[1:] != (32, 1)}
    table = asked(finished, lambda label, task, T: 0.5, depths=(1, 4))
    runs = core.as_trained(core.transformer_scores(table, PLAN, NAMES, found))
    assert len(runs) == 12 and runs["Core"].isna().sum() == runs["perplexity"].isna().sum() == 2
    (lead, other, _) = core.leads(runs, ["Core"], core.PARCAE, core.TRANSFORMER, [1, 2])
    assert lead.values == pytest.approx([0, 0]) and math.isnan(other.values[0]) and other.values[1] == pytest.approx(0)
    assert math.isnan(core.leads(runs, ["Core"], "parcae", "never trained", [1, 2])[0].values[0])


def test_what_a_source_has_is_said_before_anything_is_asked(tmp_path, monkeypatch):
    def first_lines(path):
        """What there is does not depend on the hundreds of thousands of others, which test_taskfiles reads."""
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            return [*enumerate(itertools.islice(file, 50), 1)]

    monkeypatch.setattr(taskfiles, "_lines", first_lines)
    monkeypatch.setattr(core, "examples_of", downstream.examples_of.__wrapped__)  # which would keep so few
    assert core.there("") == "Core: 13 of 22 tasks, Core-Extended: 13 of 46 tasks"
    assert core.there("", texts=core.TEXTS.values(), nine=CORE_9) == "texts: 1 of 2 tasks, nine: 9 of 9 tasks"
    (tmp_path / "wikitext.jsonl").write_text('{"page": "One two three."}')
    assert core.there(str(tmp_path), texts=[*core.TEXTS.values()]) == "texts: 1 of 2 tasks"
    with pytest.raises(InputError, match="is not a folder"):
        core.there(str(tmp_path / "nowhere"))
    (tmp_path / "copa.jsonl").write_text('{"context": "a"}')
    with pytest.raises(InputError, match=r"copa\.jsonl, line 1"):
        core.there(str(tmp_path))


def test_the_table_of_transformers_is_of_means_over_seeds():
    table = core.transformer_table(sized())
    assert table.index.tolist() == [(w, a) for w in WIDTHS for a in ("transformer", "parcae")]
    assert table.loc[[(16, "transformer"), (48, "parcae")], "Core"].tolist() == pytest.approx([8, 34])
    assert table["closed, Core (%)"].tolist()[1::2] == pytest.approx([125, 125, math.nan], nan_ok=True)
    assert table["closed, Core (%)"].isna().tolist()[::2] == [True] * 3
    flat = core.closed(sized(lambda label, task: 0.1 * (label[0] == "parcae") - label[1] / 1000), "Core")
    assert flat.isna().all()  # the larger one is no better
    runs = sized()
    runs.loc[(runs["width"] == 16) & (runs["seed"] == 1), "Core"] = math.nan  # of the other seed alone
    assert core.closed(runs, "Core").tolist() == pytest.approx([125, 125])


# ---- what the papers say of them


def test_a_contrast_is_a_weighted_sum_with_both_errors():
    runs = pd.DataFrame({
        "architecture": ["a", "a", "b", "b"], "seed": [1, 2, 1, 2],
        "Core": [5.0, 7.0, 1.0, 2.0], "Core stderr": [0.3, 0.3, 0.8, 0.8],
    })  # fmt: skip
    found = contrast(runs, "Core", {("a",): 1.0, ("b",): -0.5}, ["architecture"], [2, 1])
    assert found.values == [6.0, 4.5] and found.stderr == pytest.approx(math.hypot(0.3, 0.4))
    low, high = found.bounds
    of_seeds = scipy.stats.t.ppf(0.975, 1) * 0.75
    assert (low + high) / 2 == pytest.approx(5.25) and high - 5.25 == pytest.approx(math.hypot(of_seeds, 1.96 * 0.5))
    assert Contrast([2.0], 0.5).bounds == pytest.approx((2 - 0.98, 2 + 0.98))  # one run: other examples alone
    assert math.isnan(contrast(runs, "Core", {("c",): 1.0}, ["architecture"], [1]).values[0])


def test_all_have_to_be_positive():
    good, bad, unclear = Contrast([2.0], 0.5), Contrast([-2.0], 0.5), Contrast([0.5], 2.0)
    assert least([good]) == ([2.0], good.bounds)
    assert least([good, unclear]) == ([0.5], (unclear.bounds[0], good.bounds[1]))
    assert least([good, bad, unclear])[1][1] < 0
    # many that are nothing but noise do not contradict
    noise = [Contrast([x], 1.0) for x in (-1.5, -1.0, 0.0, 1.0)]
    assert least(noise)[0] == [-1.5] and least(noise)[1][0] < 0 < least(noise)[1][1]
    values, bounds = least([good, Contrast([math.nan], 0.5)])
    assert math.isnan(values[0]) and bounds == (-math.inf, math.inf)
    # a clear one with a larger mean does not hide one whose bound is lower
    assert least([Contrast([1.0], 0.1), Contrast([3.0], 5.0)])[1][0] < 0


def test_leads_are_of_each_width_and_suite():
    runs = sized(lambda label, task: (label[0] == "parcae") * (0.1 if label[1] == 32 else 0.2) + (task in ADDED) * 0.3)
    means = [sum(one.values) / 2 for one in core.leads(runs, list(core.SUITES), "parcae", "transformer", [1, 2])]
    assert means == pytest.approx([20, 10, 20, 20, 10, 20])
    texts = core.leads(runs, ["LAMBADA nats"], "parcae", "transformer", [1, 2])  # fewer are better
    assert [sum(one.values) / 2 for one in texts] == pytest.approx([0.2, 0.1, 0.2])


def test_a_share_of_each_gap_and_three_quarters_of_the_last():
    runs = sized()  # 10 above its own size, which is 8 below the next
    means = [sum(one.values) / 2 for one in core.part_of_the_gap(runs, ["Core"], [1, 2])]
    assert means == pytest.approx([10, -2, 10, -2])
    assert core.half_the_parameters(runs, [1, 2]).values == pytest.approx([10 - 0.75 * 8] * 2)
    # the paper's own: 25.07 of 22.42 and 25.45
    paper = runs.assign(Core=0.0).set_index(["width", "architecture"])
    for run, score in (((32, "parcae"), 25.07), ((32, "transformer"), 22.42), ((48, "transformer"), 25.45)):
        paper.loc[run, "Core"] = score
    assert core.half_the_parameters(paper.reset_index(), [1, 2]).values[0] > 0.3


def test_the_frontier_is_compared_at_the_largest_third_of_the_budgets():
    rows = [
        {"which": which, "budget": C, "seed": 7, "Core": C * (which == "looped"), "Core stderr": 0.3}
        for which in ("looped", "fixed depth") for C in (1.0, 2.0, 4.0, 8.0, 16.0, 64.0)
    ]  # fmt: skip
    assert [one.values for one in core.upper_third(pd.DataFrame(rows), [7])] == [[16.0], [64.0]]
    assert [one.values for one in core.upper_third(pd.DataFrame(rows[:2] + rows[6:8]), [7])] == [[2.0]]
    assert math.isnan(core.upper_third(pd.DataFrame(rows[6:] + rows[:5]), [7])[1].values[0])  # its run diverged


def test_the_ladder_is_compared_after_the_same_loops():
    rows = [
        {"variant": rung, "seed": seed, "T": float(T), "Core": 100 * gain * T / 8 + seed, "Core stderr": 1.0}
        for rung, gain in (("+ constrained A", 0.1), ("+ per-sequence", 0.5), ("+ prelude norm", 0.3))
        for seed in (1, 2) for T in (1, 8)
    ]  # fmt: skip
    assert core.up_the_ladder(pd.DataFrame(rows), ["Core"], 8, [1, 2])[0].values == pytest.approx([20.0, 20.0])
    assert core.up_the_ladder(pd.DataFrame(rows), ["Core"], 1, [1, 2])[0].values == pytest.approx([2.5, 2.5])
    assert math.isnan(core.up_the_ladder(pd.DataFrame(rows[4:]), ["Core"], 8, [1, 2])[0].values[0])


@pytest.mark.parametrize("ours", ["parcae", "parcae-rdm"])
def test_against_the_rdm_both_the_text_and_the_tasks_count(ours):
    rows = [
        {"architecture": name, "width": width, "seed": 1, "zero-shot": 40 + 3 * (name == ours), "zero-shot stderr": 1.0,
         "WikiText nats": 2 - width / 1000 * (name == ours), "WikiText nats stderr": 0.001}
        for name in ("residual-norm", ours) for width in (32, 64)
    ]  # fmt: skip
    runs = pd.DataFrame(rows)
    assert [one.values[0] for one in core.against_rdm(runs, [1])] == pytest.approx([0.032, 0.064, 3, 3])
    assert math.isnan(least(core.against_rdm(runs.assign(**{"WikiText nats": math.nan}), [1]))[0][0])


def test_core_9_is_compared_in_pairs():
    runs = pd.DataFrame({"architecture": ["base", "looped"], "seed": 5, "Core 9": [38.7, 37.4], "Core 9 stderr": 0.5})
    one, other = core.on_core_9(runs, [("base", "looped"), ("looped-moe", "looped")], [5])
    assert one.values == pytest.approx([1.3]) and math.isnan(other.values[0])
