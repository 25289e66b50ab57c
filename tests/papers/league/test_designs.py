"""Every intervention is one change of the baseline at the same compute, and differences are taken seed by seed."""

import numpy as np
import pandas as pd
import pytest

from lib.base.errors import InputError
from lib.flops import count
from lib.papers.isodepth import designs as isodepth
from lib.papers.isodepth.parameters import InjectionAblation, PhiProbes
from lib.papers.isodepth.readings import COLUMNS
from lib.papers.league import designs as league
from lib.papers.league.designs import BASELINE, INTERVENTIONS
from lib.papers.league.parameters import DeltaPhiLeague
from lib.papers.shared import budgets
from lib.train.optimiser import placements
from tests.given import given

P = given(DeltaPhiLeague)


def run(name, r=4, **changes):
    return league.run(P.replace(**changes), name, r, 16, 4.64e10, 101)


@pytest.mark.parametrize("name", INTERVENTIONS)
def test_every_intervention_gets_the_same_compute(name):
    for r in (1, 2, 4, 8):
        cfg = run(name, r)
        flops = count(cfg.model, cfg.data.context).published["000"] * cfg.tokens
        if cfg.train.grow_from:
            before = count(cfg.model.replace(mean_loops=cfg.train.grow_from), cfg.data.context).published["000"]
            flops = flops / 4 + 0.75 * before * cfg.tokens
        assert flops == pytest.approx(4.64e10, rel=0.5 / cfg.train.steps)  # to the step


def test_what_touches_the_loop_alone_leaves_the_plain_model_alone():
    plain = run(BASELINE, 1)
    own = {name for name in INTERVENTIONS if run(name, 1) != plain}
    assert own == {"sandwich norm", "SwiGLU", "MoE", "Muon", "AdamW"}
    assert len({run(name).key for name in INTERVENTIONS}) == len(INTERVENTIONS)


def test_each_is_one_change_of_the_baseline():
    base = run(BASELINE)
    for name, field in {
        "truncated": "backprop_loops",
        "prelude norm": "prelude_norm",
        "sandwich norm": "block",
        "1/N residuals": "residual",
        "hyper-connections": "injection",
        "passthrough": "injection",
    }.items():
        cfg = run(name)
        assert cfg.replace(model=base.model, train=base.train, optim=base.optim) == base  # text, seed and batch
        changed = {key for key, value in cfg.model if value != getattr(base.model, key)}
        assert changed == {field}, name
    assert run("1/N residuals").model.residual_multiplier == 1 / 4


def test_growth_trades_loops_for_steps():
    base, grown = run(BASELINE), run("growth")
    assert grown.model == base.model and grown.train.steps > base.train.steps
    assert (grown.train.grow_from, run("growth", 2).train.grow_from, run("growth", 1)) == (2, 1, run(BASELINE, 1))


def test_the_boundary_operator_takes_the_place_of_injection_and_loop_norm():
    base, own = run(BASELINE).model, run("boundary operator").model
    assert {key for key, value in own if value != getattr(base, key)} == {"injection", "loop_norm"}


def test_runs_are_shared_with_the_notebooks_that_have_them():
    grid = isodepth.grid(given(PhiProbes), [4], {4.64e10: [16]}, [101], "truncated")
    assert [cfg.key for cfg in grid.values()] == [run("truncated").key]
    p = given(InjectionAblation)
    for name in ("linear", "additive", "passthrough"):
        model = isodepth.model(p, 4, 16, **isodepth.injection(name))
        assert budgets.run(p, model, 4.64e10, 101).key == run(name).key


@pytest.mark.parametrize("rule", ["Muon", "AdamW"])
def test_another_rule_moves_the_matrices_and_nothing_else_differently(rule):
    def moved(cfg):
        return {x.name: x for x in placements(cfg.model, cfg.optim, cfg.train.steps, cfg.tokens_per_step)}

    base, other = moved(run(BASELINE)), moved(run(rule))
    for name, was in base.items():
        now = other[name]
        if was.optimizer == "muonh":
            assert now.optimizer == rule.lower() and now.weight_decay in (0, was.weight_decay)
        else:
            assert now.optimizer == "adamw" and now.lr == pytest.approx(was.lr, rel=1e-3), name
    rate = f"{rule.lower()}_rate"
    twice = moved(run(rule, **{rate: 2 * getattr(P, rate)}))
    square = next(name for name in base if name.endswith("attn.q.weight"))
    assert twice[square].lr == pytest.approx(2 * other[square].lr, rel=1e-3)


def test_swiglu_is_as_large_as_the_mlp_that_it_replaces():
    for width in (48, 192, 768):  # multiples of 3
        fields = league.changes("SwiGLU", 4, width)
        assert 3 * fields["mlp_width"] == 2 * 4 * width


def test_bad_grids_are_refused():
    for changed, says in [
        ({"interventions": ["linear", "glue"]}, "interventions: 'glue' is not known, use linear"),
        ({"interventions": ["Muon"]}, "interventions: 'linear' is missing"),
    ]:
        with pytest.raises(InputError, match=says):
            league.grid(P.replace(**changed))


# ---- what is read off


def made_up(shift, plain=0.0, seeds=(1, 2, 3)):
    """Runs whose losses are known: 3 + seed / 100, + 0.1 at r = 4, + ``shift`` where it loops."""
    sizes = dict(n_once=1.0, n_rec=1.0, N=2.0, F=1.0, D=1e6)
    rows = [
        dict(budget=1e9, r=r, width=16, seed=s, **sizes, loss=3 + s / 100 + (0.1 + shift if r > 1 else plain))
        for r in (1, 4)
        for s in seeds
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def test_differences_are_taken_seed_by_seed():
    runs = {BASELINE: made_up(0.0), "truncated": made_up(-0.02), "MoE": made_up(-0.05, plain=-0.05).assign(D=5e5)}
    gains = league.gains(runs, 4).groupby("intervention")
    assert np.allclose(gains["loss"].mean()[["MoE", "truncated", BASELINE]], [-0.05, -0.02, 0])
    assert np.allclose(gains["price"].mean()[["MoE", "truncated", BASELINE]], [0.1, 0.08, 0.1])
    assert gains["loss"].std().max() < 1e-12  # what a seed adds is on both sides
    standings = league.standings(runs, 4)
    assert [*standings.index] == ["MoE", "truncated", BASELINE]
    assert np.allclose(standings[["loss_low", "loss_high"]].loc["MoE"], -0.05)
    assert standings["tokens"].to_dict() == {"MoE": 0.5, "truncated": 1, BASELINE: 1}


def test_a_diverged_run_is_counted_and_its_seed_left_out():
    runs = {BASELINE: made_up(0.0), "AdamW": made_up(0.3).query("r == 1 or seed != 2")}
    assert league.gains(runs, 4).query("intervention == 'AdamW'")["seed"].tolist() == [1, 3]
    assert league.standings(runs, 4)["diverged"].to_dict() == {BASELINE: 0, "AdamW": 1}


def test_an_intervention_that_always_diverges_stays_in_the_table():
    runs = {BASELINE: made_up(0.0), "AdamW": made_up(0.3).query("r == 1")}
    standings = league.standings(runs, 4)
    assert [*standings.index] == [BASELINE, "AdamW"] and standings.loc["AdamW", "diverged"] == 3
    assert np.isnan(standings.loc["AdamW", "loss"])


def test_phi_is_shown_only_where_the_grid_resolves_it():
    grid = isodepth.published_grid().query("budget < 2e18")
    assert league.why_not_phi(grid, 10, 0) == ""
    assert league.why_not_phi(grid.query("r < 4"), 10, 0) == "2 values of r, three are needed"
    assert league.why_not_phi(grid.query("budget < 1e18"), 10, 0).startswith("one budget or one width")
    # the law with phi = 0 at the same noise: a loop is worth nothing, and the interval reaches out of (0, 1)
    flat = grid.assign(loss=grid["loss"] * (1 + 0.03 * np.random.default_rng(0).standard_normal(len(grid))))
    assert league.why_not_phi(flat, 10, 0).startswith("phi is ")
    nothing = league.phi_shifts({BASELINE: grid.query("r < 4"), "MoE": grid.query("r < 4")}, 10, 0)
    assert nothing.empty and nothing.attrs["why"].startswith("2 values")


def test_the_shift_of_phi_is_that_of_the_law_behind_the_runs():
    from lib.fit import laws

    grid = isodepth.published_grid().query("budget < 2e18")
    for phi in (0.3, 0.6):
        law = {**isodepth.PUBLISHED, "phi": phi}
        shifted = grid.assign(loss=laws.JOINT.loss(law, grid["n_once"], grid["n_rec"], grid["r"], grid["D"]))
        shifts = league.phi_shifts({BASELINE: grid, "truncated": shifted}, 3, 0)
        assert [*shifts.index] == [BASELINE, "truncated"]
        row = shifts.loc["truncated"]
        assert row["delta"] == pytest.approx(phi - isodepth.PUBLISHED["phi"], abs=0.01)
        assert row["delta_low"] <= row["delta"] + 1e-6 and row["delta"] <= row["delta_high"] + 1e-6
