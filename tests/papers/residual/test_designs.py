"""002's models have the multipliers and rates of their rules; the stream and a step's effect grow with the loops as its
theorems say, and are measured on the model itself; figures print the exponents of their tables."""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch

from lib.base import seeds
from lib.base.errors import InputError
from lib.config import OptimConfig
from lib.flops import count
from lib.model.looped import LoopedLM
from lib.papers.residual import designs, figures
from lib.papers.residual.designs import RULES, FirstSteps, Start, first_steps, initial_increments, relu_steps
from lib.papers.residual.parameters import ResidualScalingBeyond, ResidualScalingTrained
from lib.papers.shared.transfer import slopes
from lib.presets import preset
from lib.store.runs import RunStore
from lib.sweep.finished import OfRun
from lib.sweep.measurements import measure
from lib.train.loop import train
from lib.train.optimiser import placements
from tests.cells import run
from tests.given import given

SMALL = dict(mlp_width=48, context=16, val_rows=8, max_bytes=300_000, batch=4, steps=10, precision="fp32")
P = given(ResidualScalingTrained, c=2.0, kept_lr=0.004, **SMALL)


def test_the_rules_multiply_the_branches():
    alphas = {"none": 2, "1/sqrt(N)": 2 / 3, "1/N": 2 / 9, "1/sqrt(L)": 2 / 2, "1/sqrt(N L)": 2 / 6}
    for rule, alpha in (alphas | {"1/(N sqrt(L))": 2 / 18}).items():
        cfg = designs.model(P, rule, 9, 4)
        assert cfg.residual_multiplier == pytest.approx(alpha), rule
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
    for changes in ({"reference_depth": 0}, {"steps": 0}, {"deep_loops.1": [4, 0]}):  # which train nothing
        ((field, value),) = changes.items()
        with pytest.raises(InputError, match=rf"{field}: .* 1 \(got 0\)"):
            P.replace(**{field.partition(".")[0]: value})


# ---- at the init ---------------------------------------------------------------------------------------------------

LOOPS = [8, 16, 32, 64]
#: exponents of the squares that Theorem 1 predicts
SQUARES = {"looped": {"none": 2, "1/sqrt(N)": 1, "1/N": 0}, "stack": {"none": 1, "1/sqrt(N)": 0, "1/N": 0}}
GOLDEN_STEPS = [0.54714, 0.56579, 0.10154]  # squares and changes
GOLDEN_START = [0.54345, 0.35037]  # branches, a cosine


def tiny(**fields):
    sizes = dict(vocab_size=64, width=32, heads=2, mlp_width=48, context=16, init_std=0.1, recur=1)
    return preset("residual-L12-N1", **{**sizes, "residual": "none", **fields})


def slope(values):
    return np.polyfit(np.log(LOOPS), np.log(values), 1)[0]


def in_theory(width, rule, shared, quantity):
    """The exponent of the theory's model, over 20 seeds."""
    found = [relu_steps(width, N, RULES[rule](N), shared, True, 1e-4, list(range(20)))[quantity] for N in LOOPS]
    return slope([of_seeds.mean() for of_seeds in found])


def test_the_theorems_in_their_own_model():
    for rule in RULES:
        assert in_theory(32, rule, True, "square") == pytest.approx(SQUARES["looped"][rule], abs=0.3)
        assert in_theory(32, rule, False, "square") == pytest.approx(SQUARES["stack"][rule], abs=0.3)
    found = {rule: in_theory(64, rule, True, "change") for rule in RULES}
    # the second's premise is alpha = 1/N; without scaling the stream grows too, and the change faster than N
    assert found["1/N"] == pytest.approx(0, abs=0.1)
    assert found["none"] > found["1/sqrt(N)"] + 0.3 > found["1/N"] + 0.6


def test_the_raw_recursion_explodes():
    at = {N: relu_steps(64, N, 1.0, True, False, 1e-4, [0])["square"][0] for N in (16, 32, 64)}
    # exponential: the logarithm doubles with N, where a power law would add a constant
    assert np.log(at[64]) / np.log(at[32]) == pytest.approx(2, rel=0.3) and at[64] > 1e12
    assert relu_steps(64, 64, 1 / 64, True, False, 1e-4, [0])["square"][0] < 10  # and 1/N holds it all the same


def test_a_step_of_the_relu_model_is_the_signs():
    # one loop: x_1 = x_0 + W relu(x_0), and the gradient of u . x_1 is u relu(x_0)^T
    small, large = (relu_steps(8, 1, 1.0, True, False, lr, [3])["change"][0] for lr in (1e-6, 2e-6))
    assert large == pytest.approx(2 * small, rel=1e-6)
    x0 = torch.randn(8, generator=seeds.torch_stream("relu model", 3), dtype=torch.float64)
    assert small == pytest.approx(1e-6 * torch.relu(x0).sum().item(), rel=1e-6)


def test_the_first_steps_are_the_models_own():
    case = FirstSteps(model=tiny(mean_loops=3), optim=OptimConfig(lr=1e-3), steps=2, seed=4)
    found = first_steps(case)
    assert len(found["squares"]) == 3 and len(found["changes"]) == 2 and first_steps(case) == found
    model = LoopedLM(tiny(mean_loops=3), seed=4).eval()
    with torch.no_grad():
        x = model.hidden(case.tokens()[:, :-1])[1].state
    assert found["squares"][0] == pytest.approx(x.square().mean().item(), rel=1e-5)
    # a rate that moves nothing changes nothing
    still = first_steps(case.replace(optim=OptimConfig(lr=1e-12)))
    assert still["changes"] == pytest.approx([0, 0], abs=1e-8)
    # nor does a random initial state
    lti = tiny(mean_loops=2, injection="lti", state_init="like-init")
    still = first_steps(FirstSteps(model=lti, optim=OptimConfig(lr=1e-12), steps=2))
    assert still["changes"] == pytest.approx([0, 0], abs=1e-8)
    # the change of a step bounds the difference of the norms around it
    norms = np.sqrt(found["squares"])
    assert (np.abs(np.diff(norms)) <= np.array(found["changes"]) + 1e-9).all()


def test_increments_of_a_shared_block_are_parallel_and_of_others_not():
    looped = Start(model=tiny(mean_loops=8, recur=2), block=2)
    stacked = Start(model=tiny(mean_loops=1, recur=16), block=2)
    for case, bounds in ((looped, (0.5, 1)), (stacked, (-0.2, 0.2))):
        found = initial_increments(case)
        cosines, x0 = np.array(found["cosines"]), LoopedLM(case.model, seed=0).embed(case.tokens()[:, :-1])
        end = LoopedLM(case.model, seed=0).eval().hidden(case.tokens()[:, :-1])[1].state
        assert found["branches"] == pytest.approx((end - x0).square().mean().item(), rel=1e-4)
        assert cosines.shape == (8, 8) and np.diag(cosines) == pytest.approx(np.ones(8), abs=1e-5)
        assert bounds[0] < cosines[~np.eye(8, dtype=bool)].mean() < bounds[1]


def test_measurements_are_made_tidy_and_cost_what_their_steps_cost():
    results = [{"squares": [1.0, 4.0], "changes": [0.5]}, {"squares": [9.0, 16.0], "changes": [0.7]}]
    states, changes = designs.tidy([("a", 1), ("b", 1)], ["model", "seed"], results)
    assert states["norm"].tolist() == [1, 2, 3, 4] and states["step"].tolist() == [0, 1, 0, 1]
    assert changes["change"].tolist() == [0.5, 0.7] and changes["model"].tolist() == ["a", "b"]
    case = FirstSteps(model=tiny(mean_loops=2), optim=OptimConfig(), steps=3)
    assert case.flops == 4 * 16 * count(case.model).flops_per_token


def test_the_rate_of_an_explosion_is_where_the_norm_doubles():
    octaves = {  # of growth at rates of 1, 2, 4
        ("1/sqrt(N)", 1): (0.0, 0.5, 2.5),
        ("1/N", 1): (0.0, 0.1, 0.2),
        ("1/sqrt(N)", 2): (3.0, 4.0, np.nan),
        ("1/N", 2): (0.9, 0.5, np.inf),
        ("1/sqrt(N)", 3): (0.0, 0.0, 0.9),
        ("1/N", 3): (0.0, 0.0, 0.0),
    }
    states = pd.DataFrame(
        {"rule": rule, "seed": seed, "lr": lr, "step": step, "norm": 3 * 2**octave if step else 3.0}
        for (rule, seed), row in octaves.items()
        for lr, octave in zip((1.0, 2.0, 4.0), row, strict=True)
        for step in (0, 1)
    )
    found = designs.explosion_rates(states)
    assert found.loc[1].to_dict() == pytest.approx({"1/sqrt(N)": 1.25, "1/N": 2.0})  # 1/N at none: the largest
    assert found.loc[2].to_dict() == pytest.approx({"1/sqrt(N)": 0.0, "1/N": 1 + 0.5 / 9.5})
    assert found.loc[3].isna().all()


def test_a_gaussian_matrix_keeps_the_norm_on_the_cone_and_not_off_it():
    """Lemma 5, and Gordon's bound, which is tight for a cone as the width grows."""
    for width in (64, 256):
        least, most = designs.cone_gains(width, 3)
        W = torch.randn(width, width, generator=seeds.torch_stream("cone", 3), dtype=torch.float64) / width**0.5
        values = torch.linalg.svdvals(W)
        assert values[-1] < 0.05 < least and most < values[0]
        assert least == pytest.approx(designs.CONE_GAIN, abs=1.2 / width**0.5)
        assert most == pytest.approx(1 + 0.5**0.5, abs=1.2 / width**0.5)
    room = designs.cone_room([16, 32], [3, 4])
    least, most = designs.cone_gains(32, 4)
    assert room.loc[4, "below, d = 32"] == pytest.approx(least - designs.CONE_GAIN / 2)
    assert room.loc[4, "above, d = 32"] == pytest.approx(2 + designs.CONE_GAIN / 2 - most) and room.shape == (2, 4)


def test_a_changed_measurement_raises_the_recipe():
    """What is kept under a key must not change its meaning: raise ``lib.RECIPE`` when these numbers change."""
    case = FirstSteps(model=tiny(mean_loops=3), optim=OptimConfig(lr=1e-3), steps=1, seed=1)
    found = first_steps(case)
    assert found["squares"] + found["changes"] == pytest.approx(GOLDEN_STEPS, rel=1e-2)
    start = initial_increments(Start(model=tiny(mean_loops=3), seed=1))
    assert [start["branches"], start["cosines"][0][2]] == pytest.approx(GOLDEN_START, rel=1e-3)


@pytest.mark.usefixtures("style")
def test_the_legend_has_the_exponents():
    powers = {"none": 2.0, "1/sqrt(N)": 1.0, "1/N": 0.0}
    start = pd.DataFrame(itertools.product(["looped"], powers, (1, 2, 4, 8), (1, 2)))
    start = start.set_axis(["model", "rule", "N", "seed"], axis=1)
    start["square"] = start["seed"] * start["N"] ** start["rule"].map(powers)
    found = slopes(start.query("N >= 2"), ["model", "rule", "seed"], "square", "N")
    found.loc["looped", "none"] = np.nan
    (axis,) = figures.growth(start, "square", "square", {"looped": "looped"}, found, 2).axes
    words = [text.get_text().split(": ") for text in axis.get_legend().get_texts()]
    powers = ["no power", "$N^{1.00}$", "$N^{0.00}$"]
    assert words == [[figures.alpha(rule), power] for rule, power in zip(designs.RULES, powers, strict=True)]
    flat = start.assign(square=1 + 1e-7 * start["N"])
    (axis,) = figures.growth(flat, "square", "square", {"looped": "looped"}, found, 2).axes
    assert axis.get_ylim() == pytest.approx((0.1, 10), rel=1e-3)
