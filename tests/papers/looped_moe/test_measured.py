"""What is measured on a run is what its model says on its validation text, found again under its own name."""

import itertools
import math

import numpy as np
import pytest

from lib.decode import exits
from lib.decode.exits import CRITERIA
from lib.model.routing import KINDS
from lib.papers.looped_moe import measured
from lib.store.runs import RunStore
from lib.sweep.finished import OfRun
from lib.sweep.measurements import measure
from lib.train.loop import train
from tests.runs import small_run

SPARSE = {"experts": 4, "active_experts": 2, "mlp": "swiglu", "depth": "fixed", "backprop_loops": "all"}
PLAIN = {"recur": 0, "mean_loops": 1, "injection": "none", "state_init": "prelude", "depth": "fixed"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A store with a sparse looped model and a plain one."""
    store = RunStore(tmp_path_factory.mktemp("measured") / "runs")
    exact = {"precision": "fp32"}  # measured here by one thread, there by several
    configs = [small_run(model=model, train=exact) for model in (SPARSE, {**PLAIN, "backprop_loops": "all"})]
    for cfg in configs:
        train(cfg, store)
    return store, configs


def test_trade_offs_are_of_the_loops_of_a_looped_model_and_the_layers_of_another(runs):
    store, configs = runs
    saved = [0.0, 0.1, 0.9]
    cases = measured.of_exits(configs, store, rows=4, saved=saved)
    for cfg, found in zip(configs, measure(measured.trade_offs, cases, store, jobs=1), strict=True):
        read = measured.of_exits([cfg], store, rows=4)[0].read()[0]
        np.testing.assert_allclose(found["entropy"], exits.trade_off(read, "entropy", saved), rtol=1e-4)
        assert list(found["common"]) == [*CRITERIA]
        common = exits.trade_off(read, "kl", saved, exits.first_common(read))
        np.testing.assert_allclose(found["common"]["kl"], common, rtol=1e-4)
    assert math.exp(read.loss[-1].mean()) == pytest.approx(found["entropy"][0], rel=1e-4)


def test_leaving_begins_with_all_tokens_at_the_end_and_ends_with_all_at_the_first_exit(runs):
    store, configs = runs
    cases = measured.of_exits(configs, store, rows=4)
    for cfg, found in zip(configs, measure(measured.leaving, cases, store, jobs=1), strict=True):
        read = measured.of_exits([cfg], store, rows=4)[0].read()[0]
        assert found["threshold"][0] == 0 and found["threshold"][-1] >= math.log(cfg.model.vocab_size)
        ends = [1 - exits_depth for exits_depth in (read.depth[-1], read.depth[0])]
        assert (found["saved"][0], found["saved"][-1]) == pytest.approx(ends)
        loss = np.log([found["perplexity"][0], found["perplexity"][-1]])
        np.testing.assert_allclose(loss, read.loss.mean(1)[[-1, 0]], rtol=1e-4)
        assert found["median"] == pytest.approx(np.median(read.scores["entropy"][0]), rel=1e-4)
        assert all(first >= then for first, then in itertools.pairwise(column[60] for column in found["computed"]))


def test_debts_are_those_of_each_share(runs):
    store, (cfg, _) = runs
    (found,) = measure(measured.debts, measured.of_exits([cfg], store, 4, saved=[0.0, 0.2]), store, jobs=1)
    assert found["share"] == [0.0, 0.2] and found["saved"][0] == 0
    assert found["decoded"][0] == pytest.approx(found["counted"][0], rel=1e-4)  # where nobody leaves nobody owes


def test_convergence_is_of_every_layer(runs):
    store, (cfg, _) = runs
    (found,) = measure(measured.convergence, measured.of_exits([cfg], store, 4, every_layer=True), store, jobs=1)
    table = exits.convergence(measured.of_exits([cfg], store, 4, every_layer=True)[0].read()[0], cfg.data.context)
    layers = cfg.model.prelude + cfg.model.recur * cfg.model.mean_loops + cfg.model.coda
    assert found["layer"] == list(range(1, layers + 1)) and found["divergence"][-1] == pytest.approx(0, abs=1e-5)
    np.testing.assert_allclose(found["divergence"], table["divergence"], rtol=1e-3, atol=1e-5)


def test_routing_has_a_number_for_each_layer_and_pair_of_loops(runs):
    store, (cfg, _) = runs
    (found,) = measure(measured.routing, [OfRun.of(cfg, store, 1e6)], store, jobs=1)
    loops = cfg.model.mean_loops
    assert len(found["layer"]) == cfg.model.recur * loops * (loops - 1) // 2
    assert np.sum([found[kind] for kind in KINDS], axis=0) == pytest.approx(np.ones(len(found["layer"])))
