"""Every intervention is one change of the baseline at the same compute."""

import pytest

from lib.base.errors import InputError
from lib.flops import count
from lib.papers.isodepth import designs as isodepth
from lib.papers.isodepth.parameters import DeltaPhiLeague, InjectionAblation, PhiProbes
from lib.papers.shared import budgets
from lib.train.optimiser import placements
from tests import cells
from tests.given import given

P = given(DeltaPhiLeague)
BASELINE = "linear"
league = cells.run("delta_phi_league", "INTERVENTIONS = ", "def changes(", p=P)


def run(name, r=4, **changes):
    return league.run(P.replace(**changes), name, r, 16, 4.64e10, 101)


@pytest.mark.parametrize("name", league.INTERVENTIONS)
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
    own = {name for name in league.INTERVENTIONS if run(name, 1) != plain}
    assert own == {"sandwich norm", "SwiGLU", "MoE", "Muon", "AdamW"}
    assert len({run(name).key for name in league.INTERVENTIONS}) == len(league.INTERVENTIONS)


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
    boundary = run("boundary operator").model
    assert {key for key, value in boundary if value != getattr(base.model, key)} == {"injection", "loop_norm"}


def test_growth_trades_loops_for_steps():
    base, grown = run(BASELINE), run("growth")
    assert grown.model == base.model and grown.train.steps > base.train.steps
    assert (grown.train.grow_from, run("growth", 2).train.grow_from, run("growth", 1)) == (2, 1, run(BASELINE, 1))


def test_runs_are_shared_with_the_notebooks_that_have_them():
    grid = isodepth.grid(given(PhiProbes), [4], {4.64e10: [16]}, [101], "truncated")
    assert [cfg.key for cfg in grid.values()] == [run("truncated").key]
    p = given(InjectionAblation)
    for name in ("linear", "additive", "passthrough"):
        model = isodepth.model(p, 4, 16, **isodepth.INJECTIONS[name])
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
            cells.run("delta_phi_league", "INTERVENTIONS = ", "def changes(", p=P.replace(**changed))
