"""At the paper's size the models are 001's own, and trained as the paper trains them; in its RDM set-up architectures
differ in their architecture alone, and the margins between them are those of a known table."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from lib.flops import count
from lib.papers.parcae import setups
from lib.papers.parcae.parameters import (
    DepthTasks,
    EndToEnd,
    Instability,
    LoopingIsoflop,
    StabilityAblation,
    TokenizerCompression,
    UnifiedLaw,
)
from lib.presets import optimizer, preset
from lib.tasks.evaluations import Evaluation
from lib.train.optimiser import placements
from lib.workbook import plans
from tests.cells import function
from tests.given import given
from tests.lines import one_line

#: what the paper's 140M have in common with its other sizes
PAPERS = dict(
    head_dim=128, mean_loops=8, vocab_size=32_768, context=2048, batch=256, micro_batch=16, lr=8e-3, muon_lr=8e-3,
    precision="bf16-mixed", content="0123456789abcdef", val_rows=16, steps=100, seeds=[1, 2],
)  # fmt: skip
P = given(StabilityAblation, width=768, layers=2, injection_lrs=[8e-3], judged_lr=8e-3, rate_seeds=[1, 2], **PAPERS)


def test_at_the_papers_size_they_are_the_papers_models():
    assert setups.model(P, 8) == preset("parcae-140m") == setups.model(P, 8, backprop_loops=4)
    assert setups.transformer(P) == preset("gpt-140m")
    medium = P.replace(width=1024, layers=4)
    assert count(setups.model(medium, 8)).n_params == 388_003_328
    assert count(setups.transformer(medium)).n_params == 385_903_104
    plain = setups.model(P, 1)  # without looping nothing is sampled
    assert plain.depth == "fixed" and plain.max_backprop_loops is None
    assert count(plain).n_params == count(setups.model(P, 8)).n_params


def test_the_ladder_changes_one_thing_a_rung():
    runs = setups.ladder(P)
    fields = [runs[rung, P.seeds[0]].model.model_dump() for rung in setups.LADDER]
    changed = [{key for key in a if a[key] != b[key]} for a, b in itertools.pairwise(fields)]
    assert changed == [{"injection", "readout"}, {"depth_per"}, {"prelude_norm"}]
    assert fields[0]["injection"] == "concat" and fields[0]["depth_per"] == "batch"


def test_the_rate_of_the_injection_is_adamws_alone():
    for changes, of in (({"injection": "concat", "readout": False}, {"weight"}), ({}, {"A_log", "dt_bias", "B"})):
        model = setups.model(P, 8, **changes)
        own, same, fast = (setups.run(P, model, 100, 7, injection_lr=rate) for rate in (None, P.lr, 0.1))
        assert own == same and fast == own.replace(optim=own.optim.replace(injection_lr=0.1))
        both = zip(placements(model, own.optim), placements(model, fast.optim), strict=True)
        assert {a.name.removeprefix("injection.") for a, b in both if a != b} == of


def test_comparisons_share_their_runs():
    sizes = given(EndToEnd, sizes={768: 2, 1024: 4}, **PAPERS)
    runs = setups.against_transformer(sizes)
    assert len(runs) == 8 and len({cfg.key for cfg in runs.values()}) == 8
    assert runs["parcae", 768, 2] == setups.ladder(P)["+ prelude norm", 2]
    assert runs["transformer", 1024, 1].model == setups.transformer(P.replace(width=1024, layers=4))
    assert {cfg.train.seed for (_, _, seed), cfg in runs.items() if seed == 2} == {2}


def test_a_run_trains_as_the_paper_trains():
    model = setups.model(P, 8)
    cfg = setups.run(P, model, 1000, seed=3)
    assert cfg.optim == optimizer("parcae-140m", 1000) and cfg.optim.cooldown_steps == 500
    assert (cfg.train.seed, cfg.train.trace_every, cfg.train.micro_batch) == (3, 166, 16)
    assert cfg.tokens == 1000 * 256 * 2048
    other = setups.run(P.replace(lr=1e-3, muon_lr=2e-3, micro_batch=0), model, 1000, seed=3)
    assert (other.optim.lr, other.optim.muon_lr, other.train.micro_batch) == (1e-3, 2e-3, None)


# ---- the RDM set-up --------------------------------------------------------------------------------------------------

octaves_between, octaves_past = (function("instability", f"octaves_{name}") for name in ("between", "past"))
radius_margins = function("instability", "radius_margins")
LADDER = [1.0, 2.0, 4.0]
#: of which the lowest that fails, by seed
LOWEST = pd.DataFrame({"a": [2.0, 2.0], "b": [4.0, 4.0], "c": [math.inf, math.inf]}, index=[1, 2])


@pytest.fixture
def frame():
    """Two seeds; a fails from 2 on, b from 4 on, c never."""
    rows = [
        (f"{architecture}{seed}{lr}", architecture, seed, lr, lr if architecture == "a" else 0.5, lr < limit)
        for seed in (1, 2)
        for architecture, limit in (("a", 2), ("b", 4), ("c", math.inf))
        for lr in LADDER
    ]
    return pd.DataFrame(rows, columns=["key", "architecture", "seed", "lr", "rho_max", "trains"])


def test_distances_are_octaves_of_what_the_ladder_tells_apart():
    assert octaves_between(LOWEST, "a", "b", LADDER) == [1, 1]
    assert octaves_between(LOWEST, "b", "a", LADDER) == [-1, -1]
    assert octaves_between(LOWEST, "b", "c", LADDER) == [0, 0]  # the top understates
    assert np.isnan(octaves_between(LOWEST, "c", "c", LADDER)).all()  # neither fails
    assert np.isnan(octaves_between(LOWEST, "a", "a", [2.0, 4.0])).all()  # both at once
    assert octaves_between(LOWEST, "a", "b", [2.0, 4.0]) == [1, 1]
    assert np.isnan(octaves_past(LOWEST, "c", "c", LADDER)).all()
    # past is counted from the last rate that trains
    assert octaves_past(LOWEST, "a", "b", LADDER) == [0, 0]  # b trains at 2, where a fails
    assert octaves_past(LOWEST, "a", "c", LADDER) == [1, 1]
    assert octaves_past(LOWEST, "c", "a", LADDER) == [-2, -2]
    paper = pd.DataFrame({"base": [4e-4], "parcae": [np.inf]})
    (octaves,) = octaves_past(paper, "base", "parcae", [2e-4, 4e-4, 6e-4, 8e-4, 1e-3])
    assert octaves == pytest.approx(math.log2(2.5))


def test_radius_margins(frame):
    # a's failing runs have radii 2 and 4, its training one 1
    failing = pd.DataFrame(radius_margins(frame, "a", False, [1, 2]))
    assert failing.to_dict("list") == {"nearest rate": [math.log(2)] * 2, "other rates": [math.log(4)] * 2}
    assert radius_margins(frame, "a", True, [1, 2]) == {"nearest rate": [0, 0]}
    near = frame.assign(rho_max=frame["rho_max"].where(frame["lr"] < 2, 0.9))
    training = radius_margins(near, "b", True, [1, 2])  # at 1 and at 2, which is nearer to where it fails
    assert training["nearest rate"] == pytest.approx([-math.log(0.9)] * 2)
    assert training["other rates"] == pytest.approx([math.log(2)] * 2)
    assert radius_margins(frame, "b", False, [1, 2])["nearest rate"] == pytest.approx([math.log(0.5)] * 2)
    assert np.isnan(radius_margins(frame, "c", False, [1, 2])["nearest rate"]).all()
    # the mean of the others is no comparison where a seed has none
    assert "other rates" not in radius_margins(frame[frame["key"] != "a24.0"], "a", False, [1, 2])


SETUP = given(Instability, width=32, mlp_width=64, mean_loops=4, backprop_loops=2, steps=12, warmup_steps=2)


def test_parcae_and_the_rdm_differ_in_their_architecture_alone():
    p = given(EndToEnd, rdm_sizes={32: 1, 64: 1}, rdm_lr=0.01, seeds=[3, 4])
    runs = setups.against_rdm(p, SETUP.replace(architectures=["base", "parcae"]))
    assert {label[0] for label in runs} == {"residual-norm", "parcae"} and len(runs) == 8
    assert runs["parcae", 32, 3] == setups.rdm_run(SETUP, "parcae", 0.01, 3)
    ours, theirs = runs["parcae", 64, 4], runs["residual-norm", 64, 4]
    assert (ours.model.heads, ours.model.mlp_width) == (theirs.model.heads, theirs.model.mlp_width) == (4, 128)
    assert ours.optim == theirs.optim and ours.data == theirs.data and ours.train == theirs.train
    without = setups.against_rdm(p, SETUP.replace(architectures=["base", "parcae-rdm"]))
    assert {label[0] for label in without} == {"residual-norm", "parcae-rdm"}


def test_each_size_of_the_rdm_has_its_loop_steps_and_rate():
    p = given(EndToEnd, rdm_sizes={32: 1, 64: 2}, rdm_loops_at={64: 5}, rdm_lr=0.01, rdm_lr_at={64: 0.02}, rdm_steps=24)
    small, large = (setups.rdm_of_size(p, SETUP, d, "parcae", 3) for d in (32, 64))
    assert (small.model.recur, small.model.mean_loops, small.model.max_backprop_loops) == (1, 4, 2)
    assert (large.model.recur, large.model.mean_loops, large.model.max_backprop_loops) == (2, 5, 3)
    assert (small.train.steps, small.optim.lr, large.train.steps, large.optim.lr) == (24, 0.01, 24, 0.02)
    assert setups.rdm_of_size(p.replace(rdm_steps=0), SETUP, 32, "parcae", 3).train.steps == SETUP.steps
    assert setups.rdm_of_size(p.replace(rdm_steps_at={32: 7}), SETUP, 32, "parcae", 3).train.steps == 7


def test_the_looped_models_have_plains_parameters_and_the_deep_ones_flops_and_are_asked_at_every_depth():
    plan = plans.plan("depth_tasks", "cpu", families=["swaps", "hops"], seeds=[1], depths=[1, 8], mean_loops=8)
    assert {cfg.data.source for cfg in plan.runs} == {"generated:swaps", "generated:hops"}
    plain, deep, *looped = [cfg.model for cfg in plan.runs if cfg.data.source == "generated:swaps"]
    assert (plain.prelude, deep.prelude, plain.recur, deep.recur) == (3, 10, 0, 0)
    assert [(cfg.depth, cfg.max_backprop_loops) for cfg in looped] == [("fixed", None), ("poisson", 4)]
    for cfg in looped:
        assert 1 < count(cfg).n_params / count(plain).n_params < 1.06  # the injection and the readout
        assert count(cfg).flops_per_token_forward == pytest.approx(count(deep).flops_per_token_forward, rel=0.1)
    looped = {cfg.key for cfg in plan.runs if cfg.model.recur}
    asked = [one.case for one in plan.asked]
    assert all(isinstance(case, Evaluation) for case in asked) and {case.subject for case in asked} > looped
    assert all(case.depths == ((1, 8) if case.subject in looped else ()) for case in asked)
    assert len({(case.subject, case.task) for case in asked}) == len(asked) == 8 * 6


@pytest.mark.parametrize("kind", [LoopingIsoflop, UnifiedLaw])
def test_a_grid_carries_a_parabola_and_a_law(kind):
    for loops in ([0, 2, 4, 8], [1, 2, 4]):
        with one_line(f"loops: {loops} has fewer than three above 1", "list more"):
            given(kind, loops=loops)
    with one_line("budgets: 1 are too few for a law of five parameters", "list more"):
        given(kind, budgets=[1e11])
    assert given(kind, loops=[2, 4, 8], budgets=[1e11, 2e11]).loops == [2, 4, 8]


def test_what_is_judged_and_asked_is_among_what_is_made():
    with one_line("judged_lr: 0.5 is not one of injection_lrs", "add it there"):
        given(StabilityAblation, judged_lr=0.5)
    with one_line("mean_loops: 8 is not one of depths [1, 2]", "add it there"):
        given(DepthTasks, depths=[1, 2])
    with one_line("source:", "'generated'", "(got 'sotu')"):
        given(DepthTasks, source="sotu")
    with one_line("families.0:", "hops|addition|chains|swaps", "(got 'poems')"):
        given(DepthTasks, families=["poems"])
    with one_line("judged: 700 is not one of sizes [300, 600]", "add it there"):
        given(TokenizerCompression, sizes=[300, 600], judged=700)


def test_a_size_of_several_is_the_same_set_up_at_that_width():
    several = given(EndToEnd, sizes={32: 1, 64: 3}, rdm_sizes={32: 1, 64: 1}, lr=0.003)
    one = several.at(64)
    assert (one.width, one.layers, one.lr, one.seeds) == (64, 3, 0.003, several.seeds)
    each = several.replace(steps=10, steps_at={64: 20}, lr_at={64: 0.02})
    assert [(each.at(d).steps, each.at(d).lr) for d in (32, 64)] == [(10, 0.003), (20, 0.02)]
    for name, value in {"steps_at": 10, "lr_at": 0.01, "rdm_lr_at": 0.01, "rdm_loops_at": 4}.items():
        with one_line(f"{name}: 48 is none of the widths 32, 64", "use these"):
            several.replace(**{name: {48: value}})
    with one_line("budgets_at: 64 is none of the widths 32"):
        given(LoopingIsoflop, budgets_at={64: [1e11, 2e11]})
    with one_line("shorter: is a share of rdm_steps, which has to be set for that"):
        given(EndToEnd, rdm_steps=0, rdm_steps_at={}, shorter=0.25)
