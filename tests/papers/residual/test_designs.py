"""002's models have the multipliers and rates of their rules, and increments are those of their runs."""

import numpy as np
import pytest

from lib.base.errors import InputError
from lib.model.looped import LoopedLM
from lib.papers.residual import designs
from lib.papers.residual.at_init import RULES, first_steps
from lib.papers.residual.parameters import ResidualScalingBeyond, ResidualScalingTrained
from lib.store.runs import RunStore
from lib.sweep.finished import OfRun
from lib.sweep.measurements import measure
from lib.train.loop import train
from lib.train.optimiser import placements
from tests.cells import run
from tests.given import given

P = given(
    ResidualScalingTrained,
    mlp_width=48,
    c=2.0,
    context=16,
    val_rows=8,
    max_bytes=300_000,
    batch=4,
    steps=10,
    precision="fp32",
    kept_lr=0.004,
)


@pytest.mark.parametrize(
    ("rule", "alpha"),
    [
        ("none", 2),
        ("1/sqrt(N)", 2 / 3),
        ("1/N", 2 / 9),
        ("1/sqrt(L)", 2 / 2),
        ("1/sqrt(N L)", 2 / 6),
        ("1/(N sqrt(L))", 2 / 18),
    ],
)
def test_the_rules_multiply_the_branches(rule, alpha):
    cfg = designs.model(P, rule, 9, 4)
    assert cfg.residual_multiplier == pytest.approx(alpha)
    assert LoopedLM(cfg).recur[0].a == pytest.approx(alpha) and (cfg.recur, cfg.mean_loops) == (4, 9)


def test_another_width_keeps_the_shape_of_the_mlp_and_the_gain_of_the_matrices():
    wide = designs.of_width(P, 2 * P.width)
    assert (wide.width, wide.mlp_width) == (2 * P.width, 2 * P.mlp_width)
    assert wide.init_std**2 * wide.width == pytest.approx(P.init_std**2 * P.width)
    assert designs.model(wide, "1/N", 4).width == 2 * P.width and designs.of_width(P, P.width) == P


def test_at_one_loop_the_rules_of_a_block_are_one_run():
    rules = ("1/sqrt(L)", "1/sqrt(N L)", "1/(N sqrt(L))")
    for loops, runs in ((1, 1), (4, 3)):
        keys = {designs.run(P, designs.model(P, rule, loops, 4), 0.002, 7).key for rule in rules}
        assert len(keys) == runs


@pytest.mark.parametrize("rule", RULES)
def test_a_stack_has_a_layer_for_every_use_and_the_multiplier_of_the_loop(rule):
    for layers in (1, 2):
        looped, stack = designs.model(P, rule, 6, layers), designs.stack(P, rule, 6, layers)
        assert (stack.recur, stack.mean_loops, stack.layers) == (6 * layers, 1, 6 * layers)
        assert LoopedLM(stack).recur[5].a == pytest.approx(LoopedLM(looped).recur[0].a)


def test_the_correction_is_of_the_looped_stack_and_none_at_the_reference():
    at_reference = designs.model(P, "1/(N sqrt(L))", 2, 1)
    corrected, plain = (designs.run(P, at_reference, 0.002, 7, corrected) for corrected in (True, False))
    assert corrected.key == plain.key
    cfg = designs.run(P, designs.model(P, "1/(N sqrt(L))", 2, 4), 0.002, 7)
    rates = {row.name: row.lr for row in placements(LoopedLM(cfg.model), cfg.optim)}
    assert rates["recur.0.attn.q.weight"] == pytest.approx(0.001) and rates["embed.weight"] == 0.002
    plain = designs.run(P, cfg.model, 0.002, 7, corrected=False)
    assert {row.lr for row in placements(LoopedLM(plain.model), plain.optim)} == {0.002}


def test_a_rate_of_the_table_alone_moves_nothing_else():
    cfg = designs.model(P, "1/(N sqrt(L))", 3, 4)
    alone, plain = (designs.run(P, cfg, 0.002, 7, table_lr=rate) for rate in (0.016, None))
    rates, before = ({row.name: row.lr for row in placements(LoopedLM(cfg), each.optim)} for each in (alone, plain))
    assert {name for name in rates if rates[name] != before[name]} == {"embed.weight"} and cfg.tied
    assert rates["embed.weight"] == 0.016 and before["embed.weight"] == 0.002
    assert designs.run(P, cfg, 0.002, 7, table_lr=0.002).key == plain.key  # trained once


@pytest.mark.parametrize("kind", ["looped", "concat", "lti", "hyper-connections", "post-norm"])
@pytest.mark.parametrize("rule", RULES)
def test_every_injection_takes_every_rule(kind, rule):
    changes = run("residual_scaling_beyond", "CHANGES = ", p=given(ResidualScalingBeyond)).CHANGES
    cfg = designs.model(P, rule, 3, **changes[kind])
    assert cfg.residual_multiplier == pytest.approx(2 * RULES[rule](3))
    found = first_steps(designs.steps_from_init(cfg, 1e-3, 1, 0, 1))
    assert np.isfinite(found["squares"]).all() and found["changes"][0] > 0


@pytest.mark.parametrize("layers", [1, 2])
def test_increments_of_finished_runs(tmp_path, layers):
    store = RunStore(tmp_path / "runs")
    configs = [designs.run(P, designs.model(P, "1/(N sqrt(L))", N, layers), 0.004, 1) for N in (1, 4)]
    for cfg in configs:
        train(cfg, store)
    cases = [OfRun.of(cfg, store, 1e6) for cfg in configs]
    _, four = measure(designs.increments, cases, store, jobs=1)
    assert np.shape(four["cosines"]) == np.shape(four["initial cosines"]) == (4, 4) and len(four["norms"]) == 5
    assert np.diag(four["cosines"]) == pytest.approx(np.ones(4), abs=1e-5)
    assert four["cosines"] != four["initial cosines"] and four["norms"] != four["initial norms"]
    empty = RunStore(tmp_path / "empty" / "runs")
    with pytest.raises(InputError, match=f"runs: there is no run {configs[0].key}"):
        measure(designs.increments, [OfRun.of(configs[0], empty, 1e6)], empty, jobs=1)


def test_bad_parameters_are_named():
    with pytest.raises(InputError, match="rule: '1/N2'"):
        designs.model(P, "1/N2", 2)
    with pytest.raises(InputError, match="head_dim 24"):
        designs.model(P.replace(head_dim=24), "none", 2)
    with pytest.raises(InputError, match=r"reference_depth: .* 1 \(got 0\)"):
        P.replace(reference_depth=0)
