"""004's four architectures match in what a token uses, store what its tables print, and cost their budget."""

import pandas as pd
import pytest
import torch

from lib.base.errors import InputError
from lib.flops import count
from lib.model.probes import looped_choices
from lib.model.routing import divergence_by_pair
from lib.papers.looped_moe import designs
from lib.papers.looped_moe.parameters import MoeIsoflop, RoutingDivergence
from lib.sweep.finished import trained_model
from lib.train.loop import train
from tests.cells import function
from tests.given import given

TEXT = {"context": 32, "max_bytes": 300_000, "val_rows": 16, "batch": 4, "precision": "fp32"}
P = given(RoutingDivergence, depth=4, **TEXT)


def test_the_four_use_as_much_and_store_differently():
    counts = {name: count(designs.model(P, name, 64, 2)) for name in designs.LOOK}
    router = 4 * 8 * 64  # of each effective layer
    assert counts["base"].n_active == counts["looped"].n_active
    assert counts["moe"].n_active == counts["looped-moe"].n_active == counts["base"].n_active + router
    stored = {name: c.n_params - c.n_embedding for name, c in counts.items()}
    assert stored["looped"] == stored["base"] / 2 and stored["looped-moe"] == stored["moe"] / 2
    attention, mlp = 4 * 64 * 64, 3 * 64 * 176
    assert stored["moe"] == 4 * (attention + 8 * mlp / 2) + router  # an expert is half as wide as the MLP


@pytest.mark.parametrize(
    ("name", "width", "loops", "says"),
    [("dense", 64, 2, "architectures: 'dense'"), ("looped", 64, 3, "loops: 3"), ("base", 40, 2, "widths: 40")],
)
def test_bad_parameters_are_named(name, width, loops, says):
    with pytest.raises(InputError, match=says):
        designs.model(P, name, width, loops)


ISO = given(MoeIsoflop, widths={1e9: [16, 32, 48]}, seeds=[3], head_dim=16, **TEXT)


def test_all_runs_of_a_budget_cost_the_same_active_flops():
    plan = designs.grid(ISO)
    assert len(plan) == 4 * 3
    for (_, budget, width, seed), cfg in plan.items():
        assert 6 * count(cfg.model).n_active * cfg.tokens == pytest.approx(budget, rel=0.05)
        assert (cfg.model.width, cfg.train.seed) == (width, seed)


@pytest.mark.parametrize(
    ("widths", "says"), [({1e9: [16, 32]}, "too few for a parabola"), ({1e8: [16, 32, 64]}, "are 6 steps at width 16")]
)
def test_a_grid_that_says_nothing_is_refused(widths, says):
    with pytest.raises(InputError, match=says):
        designs.grid(ISO.replace(widths=widths))


def test_the_best_model_is_the_parabolas_or_the_best_of_those_trained():
    N = {16: 1000.0, 24: 2000.0, 32: 4000.0}
    losses = {"base": {16: 2.0, 24: 1.8, 32: 2.0}, "looped": {16: 1.9, 24: 2.05, 32: 2.3}}
    runs = pd.DataFrame(
        [
            {"architecture": name, "budget": 1e9, "width": d, "seed": 1, "N": N[d], "F": 6 * N[d], "loss": loss}
            for name, row in losses.items()
            for d, loss in row.items()
        ]
    ).assign(D=lambda runs: 1e9 / runs["F"], stored=lambda runs: 3 * runs["N"])
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
