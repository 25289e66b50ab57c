"""What would settle a claim is what a simulation says, and what pays best comes first."""

import math

import numpy as np
import pytest
from safetensors.numpy import save_file

from lib.base.statistics import mean_and_interval
from lib.config import RunConfig, TrainConfig
from lib.flops import count
from lib.store.result import RunResult
from lib.store.runs import RunStore
from lib.workbook import claims, power
from lib.workbook.power import Need, purchases
from lib.workbook.ran import ran
from tests.cases import claim
from tests.workbooks import a_notebook


def found(values, entry=None, folder=None, **given):
    seeds = [*range(len(next(iter(claims.as_comparisons(values).values()))))]
    return claims.report(entry or claim(), "n", values, seeds, "cpu", folder, "nats", "", **given)


def test_so_many_seeds_settle_it_four_times_in_five(tmp_path):
    values = np.random.default_rng(0).normal(0.0, 0.02, 5).tolist()
    need = power.need(claim(), found(values, folder=tmp_path), hours=2.0)
    random, spread = np.random.default_rng(1), np.std(values, ddof=1)
    draws = [random.normal(claim().effect, spread, need.wanted) for _ in range(2000)]
    assert np.mean([mean_and_interval(x)[1] > 0 for x in draws]) == pytest.approx(0.8, abs=0.06)
    assert need.there == 5 and need.hours == 2.0 * (need.wanted - 5) and need.text.startswith(f"{need.wanted} seeds")


def test_several_comparisons_and_two_ends_need_more(tmp_path):
    one = [0.02, -0.02, 0.0]
    few = power.need(claim(), found(one, folder=tmp_path), 1.0).wanted
    both = power.need(claim(), found({"a": one, "b": one}, folder=tmp_path), 1.0).wanted
    tie = power.need(claim("tie"), found(one, claim("tie"), tmp_path), 1.0).wanted
    assert both == tie > few


def test_a_grid_is_made_again_as_often_as_its_interval_has_to_shrink(tmp_path):
    entry = claim(replicates="resamples", effect=0.1)
    random = np.random.default_rng(0)
    finding = found([0.0], entry, tmp_path, draws=random.normal(0.0, 0.1, 4000))
    assert power.need(entry, finding, 3.0).wanted == 8  # ((1.96 + 0.84) x 0.1 / 0.1)^2 = 7.8
    assert power.need(entry, finding, 3.0).hours == pytest.approx(21)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([math.nan, 1.0], "no number"),
        ([1.0], "one replicate shows no spread"),
        ([1.0, -1.0, 0.5], "too wide for an effect of 0.01"),
        ([0.001, -0.001, 0.0, 0.002, 0.0005], "5 show the smallest effect in 80 % of all cases"),
    ],
)
def test_what_nothing_settles_says_why(tmp_path, values, why):
    need = power.need(claim(), found(values, folder=tmp_path), 1.0)
    assert need.wanted is None and why in need.why and why in need.text and math.isnan(need.hours)


@pytest.mark.precision
def test_a_replicate_costs_what_one_seed_of_the_plan_does(tmp_path):
    outputs = tmp_path / "outputs"
    nb = a_notebook("instability", outputs)
    runs = {
        ("a", seed, steps): RunConfig(train=TrainConfig(seed=seed, steps=steps))
        for seed in (1, 2, 9)
        for steps in (3, 5)
    }
    nb.plan(runs)
    rate = power.RATE
    one = next(iter(runs.values()))
    flops = sum(cfg.tokens for label, cfg in runs.items() if label[1] == 1) * count(one.model, 64).flops_per_token
    by_seed = power.seconds_by_seed(ran(outputs, "cpu", "instability"))
    assert by_seed == pytest.approx({None: 0, 1: flops / rate, 2: flops / rate, 9: flops / rate})
    assert power.seconds_of_replicate(by_seed, [1, 2]) == pytest.approx(flops / rate)
    assert power.seconds_of_replicate(by_seed, []) == pytest.approx(3 * flops / rate)
    trained = RunResult(runs["a", 1, 3], "finished", {"seconds": 70.0}, {"step": [0]}, {})
    RunStore(outputs / "runs").finish(trained, lambda path: save_file({}, path))
    rest = count(one.model, 64).flops_per_token * runs["a", 1, 5].tokens / rate
    assert power.seconds_by_seed(ran(outputs, "cpu", "instability"))[1] == pytest.approx(70 + rest)
    assert power.seconds_of_replicate({None: 6.0, 1: 3.0, 2: 5.0, 9: 100.0}, [1, 2]) == 7.0
    nb.claim("001-base-state-explodes", [1.0, -1.0, 0.5], [1, 2, 3], "decades")
    nb.claim("001-base-converged-rho-below-one", [1.0, 1.1, 0.9], [1, 2, 3], "log rho")
    settled = power.needs(claims.findings(outputs / "claims" / "cpu"), lambda name: ran(outputs, "cpu", name))
    assert [*settled] == ["001-base-state-explodes"]
    assert "001-base-state-explodes" in power.table(outputs, "cpu")
    assert power.table(outputs, "gpu").startswith("No claim at gpu is unresolved")


def test_what_pays_best_stands_first():
    needs = {
        "a": Need("a", "dear", 3, 9, 6.0),
        "b": Need("b", "dear", 3, 5, 2.0),
        "c": Need("c", "cheap", 3, 4, 0.1),
        "d": Need("d", "cheap", 3, None, math.nan, "no"),
    }
    assert [(one.notebook, one.wanted, one.claims) for one in purchases(needs)] == [
        ("cheap", 4, ["c"]),
        ("dear", 5, ["b"]),
        ("dear", 9, ["a", "b"]),
    ]
    assert [round(one.rate, 2) for one in purchases(needs)] == [10.0, 0.5, 0.33]


def test_the_report_says_what_would_settle_a_claim(tmp_path):
    from lib.workbook import report

    nb = a_notebook("instability", tmp_path)
    nb.claim("001-base-state-explodes", [1.0], [1], "decades")
    report.build(tmp_path, "cpu")
    page = (tmp_path / "report" / "index.html").read_text()
    assert "to settle it: no number of replicates: one replicate shows no spread, run two" in page
