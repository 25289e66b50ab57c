"""004's four architectures match in what a token uses, store what its tables print, and cost their budget; what is
measured on a run is what its model says on its validation text."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.colors import to_rgb

from lib.decode import exits
from lib.decode.exits import CRITERIA
from lib.figures.style import COLOURS, MARKERS
from lib.flops import count
from lib.model.probes import looped_choices
from lib.model.routing import KINDS, divergence_by_pair
from lib.papers.looped_moe import designs, figures
from lib.papers.looped_moe.parameters import MoeIsoflop, RoutingDivergence
from lib.store.runs import RunStore
from lib.sweep.finished import OfRun, trained_model
from lib.sweep.measurements import measure
from lib.train.loop import train
from tests.cells import function
from tests.given import given
from tests.lines import one_line
from tests.runs import small_run

TEXT = {"context": 32, "max_bytes": 300_000, "val_rows": 16, "batch": 4, "precision": "fp32"}
P = given(RoutingDivergence, depth=4, **TEXT)


def test_the_four_use_as_much_and_store_differently():
    counts = {name: count(designs.model(P, name, 64, 2)) for name in designs.LOOK}
    router = 4 * 8 * 64  # of each effective layer
    active = [counts[name].n_active for name in ("base", "looped", "moe", "looped-moe")]
    assert active == [active[0], active[0], active[0] + router, active[0] + router]
    stored = {name: c.n_params - c.n_embedding for name, c in counts.items()}
    assert stored["looped"] == stored["base"] / 2 and stored["looped-moe"] == stored["moe"] / 2
    attention, mlp = 4 * 64 * 64, 3 * 64 * 176
    assert stored["moe"] == 4 * (attention + 8 * mlp / 2) + router  # an expert is half as wide as the MLP


ISO = given(MoeIsoflop, widths={1e9: [16, 32, 48]}, seeds=[3], head_dim=16, **TEXT)


def test_all_runs_of_a_budget_cost_the_same_active_flops():
    plan = designs.grid(ISO)
    assert len(plan) == 4 * 3
    for (_, budget, width, seed), cfg in plan.items():
        assert 6 * count(cfg.model).n_active * cfg.tokens == pytest.approx(budget, rel=0.05)
        assert (cfg.model.width, cfg.train.seed) == (width, seed)


def test_bad_parameters_are_named():
    bad = {"architectures: 'dense'": ("dense", 64, 2), "loops: 3": ("looped", 64, 3), "widths: 40": ("base", 40, 2)}
    for says, (name, width, loops) in bad.items():
        with one_line(starts=says):
            designs.model(P, name, width, loops)
    with one_line("at least 3 items", starts="widths.1000000000.0: "):
        ISO.replace(widths={1e9: [16, 32]})
    with one_line("are 6 steps at width 16"):
        designs.grid(ISO.replace(widths={1e8: [16, 32, 64]}))


def test_the_best_model_is_the_parabolas_or_the_best_of_those_trained():
    losses = {"base": (2.0, 1.8, 2.0), "looped": (1.9, 2.05, 2.3)}
    rows = [
        (name, 1e9, d, 1, N, 6 * N, 1e9 / (6 * N), 3 * N, loss)
        for name, row in losses.items()
        for d, N, loss in zip((16, 24, 32), (1000.0, 2000.0, 4000.0), row, strict=True)
    ]
    runs = pd.DataFrame(rows, columns=["architecture", "budget", "width", "seed", "N", "F", "D", "stored", "loss"])
    best_models = function("moe_isoflop", "best_models")
    best = best_models(runs).set_index("architecture")
    assert best["inside"].tolist() == [True, False]
    assert best["N"].tolist() == pytest.approx([2000, 1000]) and best["loss"].tolist() == pytest.approx([1.8, 1.9])
    assert best["stored"].tolist() == pytest.approx([6000, 3000])
    again = runs.assign(seed=2, loss=runs["loss"] + 0.3 * (runs["architecture"] == "looped"))
    each = best_models(pd.concat([runs, again]), ["seed"]).set_index(["architecture", "seed"])
    assert each["loss"].to_dict() == pytest.approx(
        {("base", 1): 1.8, ("base", 2): 1.8, ("looped", 1): 1.9, ("looped", 2): 2.2}
    )


def test_one_size_is_studied_with_every_number_of_loops():
    p = P.replace(steps=80, seeds=[1, 2])
    plan = designs.studied(p, [2, 4])
    looks = {"Base": None, "Looped 2x2": None, "Looped 1x4": None, "MoE": None}
    looks |= {"Looped-MoE 2x2": 10, "Looped-MoE 1x4": 10}
    assert list(dict.fromkeys(name for name, _ in plan)) == [*looks]
    assert {name: cfg.train.eval_every for (name, seed), cfg in plan.items() if seed == 1} == looks
    assert designs.studied(p, [2], ["looped"])["Looped 2x2", 1] == plan["Looped 2x2", 1]


def test_routing_is_followed_through_training(store):
    plan = designs.studied(P.replace(steps=8, seeds=[1]), [2], ["looped-moe"])
    (result,) = [train(cfg, store) for cfg in plan.values()]
    curve = pd.DataFrame({**result.metrics}).dropna(subset="routing none 1-2")
    assert curve["step"].tolist() == list(range(1, 9))
    model, text = trained_model(result.config, store)
    at_end = divergence_by_pair(looped_choices(model, torch.as_tensor(text[:, :-1], device=model.head_weight.device)))
    assert curve["routing none 1-2"].iloc[-1] == pytest.approx(at_end["none 1-2"], abs=0.01)


# ---- what is measured ------------------------------------------------------------------------------------------------

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
    cases = designs.of_exits(configs, store, rows=4, saved=saved)
    for cfg, found in zip(configs, measure(designs.trade_offs, cases, store, jobs=1), strict=True):
        read = designs.of_exits([cfg], store, rows=4)[0].read()[0]
        np.testing.assert_allclose(found["entropy"], exits.trade_off(read, "entropy", saved), rtol=1e-4)
        assert list(found["common"]) == [*CRITERIA]
        common = exits.trade_off(read, "kl", saved, exits.first_common(read))
        np.testing.assert_allclose(found["common"]["kl"], common, rtol=1e-4)
    assert math.exp(read.loss[-1].mean()) == pytest.approx(found["entropy"][0], rel=1e-4)


def test_leaving_begins_with_all_tokens_at_the_end_and_ends_with_all_at_the_first_exit(runs):
    store, configs = runs
    cases = designs.of_exits(configs, store, rows=4)
    for cfg, found in zip(configs, measure(designs.leaving, cases, store, jobs=1), strict=True):
        read = designs.of_exits([cfg], store, rows=4)[0].read()[0]
        assert found["threshold"][0] == 0 and found["threshold"][-1] >= math.log(cfg.model.vocab_size)
        ends = [1 - exits_depth for exits_depth in (read.depth[-1], read.depth[0])]
        assert (found["saved"][0], found["saved"][-1]) == pytest.approx(ends)
        loss = np.log([found["perplexity"][0], found["perplexity"][-1]])
        np.testing.assert_allclose(loss, read.loss.mean(1)[[-1, 0]], rtol=1e-4)
        assert found["median"] == pytest.approx(np.median(read.scores["entropy"][0]), rel=1e-4)
        assert all(first >= then for first, then in itertools.pairwise(column[60] for column in found["computed"]))


def test_debts_are_those_of_each_share(runs):
    store, (cfg, _) = runs
    (found,) = measure(designs.debts, designs.of_exits([cfg], store, 4, saved=[0.0, 0.2]), store, jobs=1)
    assert found["share"] == [0.0, 0.2] and found["saved"][0] == 0
    assert found["decoded"][0] == pytest.approx(found["counted"][0], rel=1e-4)  # where nobody leaves nobody owes


def test_convergence_is_of_every_layer(runs):
    store, (cfg, _) = runs
    (found,) = measure(designs.convergence, designs.of_exits([cfg], store, 4, every_layer=True), store, jobs=1)
    table = exits.convergence(designs.of_exits([cfg], store, 4, every_layer=True)[0].read()[0], cfg.data.context)
    layers = cfg.model.prelude + cfg.model.recur * cfg.model.mean_loops + cfg.model.coda
    assert found["layer"] == list(range(1, layers + 1)) and found["divergence"][-1] == pytest.approx(0, abs=1e-5)
    np.testing.assert_allclose(found["divergence"], table["divergence"], rtol=1e-3, atol=1e-5)


def test_routing_has_a_number_for_each_layer_and_pair_of_loops(runs):
    store, (cfg, _) = runs
    (found,) = measure(designs.routing, [OfRun.of(cfg, store, 1e6)], store, jobs=1)
    loops = cfg.model.mean_loops
    assert len(found["layer"]) == cfg.model.recur * loops * (loops - 1) // 2
    assert np.sum([found[kind] for kind in KINDS], axis=0) == pytest.approx(np.ones(len(found["layer"])))


def test_two_loops_look_like_their_architecture_and_more_are_darker():
    names = ["Base", "Looped 4x2", "Looped 2x4", "Looped 1x8", "MoE", "Looped-MoE 4x2"]
    looks = figures.look_of(names)
    assert looks["Looped 4x2"] == (COLOURS["looped"], MARKERS["looped"]) and looks["Base"][0] == COLOURS["transformer"]
    series = [sum(to_rgb(looks[name][0])) for name in names[1:4]]
    assert series == sorted(series, reverse=True) and len({looks[name] for name in names}) == len(names)
    assert figures.look_of(["Looped 1x8"])["Looped 1x8"] == looks["Looped 1x8"]
