"""Counts of parameters and FLOPs are the papers' to the digit, and those of the matmuls that a model executes."""

import collections

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lib.config import ModelConfig
from lib.flops import count
from lib.kernels import door
from lib.model.depth import DepthRule
from lib.model.looped import Draw, LoopedLM
from lib.papers.isodepth.designs import PUBLISHED_SIZES
from lib.presets import preset
from tests.models import KINDS, config

# 001, Tables of model definitions and parameter counts; FLOPs from running the authors' code
TRANSFORMER_SETUP = {
    "parcae-140m": (144_323_136, 1_359_902_976),
    "parcae-370m": (388_003_328, 4_173_740_032),
    "parcae-770m": (776_655_680, 8_859_905_280),
    "parcae-1.3b": (1_338_591_744, 15_833_634_816),
    "gpt-140m": (143_141_184, 821_098_368),
    "gpt-370m": (385_903_104, 2_416_081_920),
    "gpt-770m": (773_375_040, 4_954_823_040),
    "gpt-1.3b": (1_333_868_544, 8_607_191_040),
}
RDM_SETUP = {
    "rdm-100m": 114_242_560,
    "rdm-350m": 382_765_056,
    "parcae-rdm-350m": 378_558_464,
    "parcae-rdm-100m": 113_189_888,  # the paper prints the RDM's number here
}


def test_001s_counts_to_the_last_digit():
    found = {name: count(preset(name)) for name in [*TRANSFORMER_SETUP, *RDM_SETUP]}
    flops = {name: (found[name].n_params, found[name].flops_per_token_published) for name in TRANSFORMER_SETUP}
    assert flops == TRANSFORMER_SETUP and {name: found[name].n_params for name in RDM_SETUP} == RDM_SETUP


# 000: N, training FLOPs per token in full and with the last two of four loops backpropagated
def test_iso_depth_counts():
    s10, s20, flat = (count(preset(f"isodepth-{name}")) for name in ("s10-r4", "s20-r4", "s20-r1"))
    assert s10.n_once + s10.n_rec == s10.n_params - s10.n_embedding == 40_152_960
    assert flat.n_once + flat.n_rec == 393_271_040
    assert s10.flops_per_token_published == 1_047_336_960
    assert count(preset("isodepth-s10-r4"), backprop_loops=2).flops_per_token_published == 799_569_920
    assert flat.flops_per_token_published == 3_235_000_320
    assert s20.flops_per_token_published == 3_313_643_520


@pytest.mark.parametrize("size", PUBLISHED_SIZES)
def test_iso_depth_parameters_at_every_width(size):
    counts = [count(preset(f"isodepth-s{size}-r{loops}")) for loops in (1, 2, 4, 8)]
    assert tuple(round((c.n_once + c.n_rec) / 1e6, 1) for c in counts) == PUBLISHED_SIZES[size]


def test_000s_own_split_counts_the_injection_once():
    """One d x 2d matrix in a looped model, none in a plain one, and with hyper-connections the scalars of all loops."""
    looped, plain = (count(preset(f"isodepth-s10-r{r}")) for r in (4, 1))
    lanes = count(preset("isodepth-s10-r4", injection="hyper-connections"))
    assert (looped.n_injection, plain.n_injection, lanes.n_injection) == (2 * 640**2, 0, 32)
    blocks = 4 * (12 * 640**2 + 2 * 640)  # as many once as in the loop, and a norm each
    assert looped.n_rec - looped.n_injection == pytest.approx(blocks, rel=1e-3)
    assert looped.n_once + looped.n_injection == pytest.approx(blocks + 2 * 640**2, rel=1e-3)
    assert looped.n_eff(0.46) == looped.n_once + 4**0.46 * looped.n_rec


def test_looped_nanochat_to_the_digit_and_residual_scaling_to_what_is_printed():
    small, large = (count(preset(f"looped-nanochat-s{size}")) for size in (8, 20))
    assert (small.flops_per_token_published, small.n_usage) == (767_803_392, 132_163_072)
    assert (large.flops_per_token_published, large.n_usage) == (3_382_272_000, 574_201_600)
    printed = [round(count(preset(f"residual-L{layers}-N4")).n_params / 1e6, 1) for layers in (12, 24, 48)]
    assert printed == [183.5, 268.4, 438.3]


# 004, table of model configurations: width -> d_ff, active, stored by Looped-MoE, stored by MoE, in millions
SCALING_STUDY = {
    128: (384, 16, 18, 23),
    256: (704, 39, 45, 65),
    384: (1024, 67, 81, 124),
    512: (1408, 103, 129, 207),
    640: (1728, 144, 184, 303),
    768: (2048, 190, 247, 417),
    896: (2432, 246, 325, 560),
    1024: (2752, 305, 407, 711),
}


@pytest.mark.parametrize("width", SCALING_STUDY)
def test_looped_moe_counts(width):
    d_ff, active, looped, stored = SCALING_STUDY[width]
    counts = {name: count(preset(f"{name}-{width}")) for name in ("base", "looped", "moe", "looped-moe")}
    assert preset(f"base-{width}").mlp_width == d_ff
    # the paper's active parameters are equal across architectures: it leaves the routers out, which are executed too
    routers = {"base": 0, "looped": 0, "moe": 16 * 8 * width, "looped-moe": 16 * 8 * width}
    assert {c.n_active - routers[name] for name, c in counts.items()} == {counts["base"].n_active}
    assert round(counts["base"].n_active / 1e6) == active
    assert round(counts["looped-moe"].n_params / 1e6) == looped
    assert round(counts["moe"].n_params / 1e6) == stored
    assert counts["base"].flops_per_token_published == 6 * counts["base"].n_active


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_are_those_of_the_built_model(kind):
    model = LoopedLM(config(kind))
    counts = count(config(kind))
    assert counts.n_params == sum(p.numel() for p in model.parameters())
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    tables = [name for name in sizes if ("embed" in name and "norm" not in name) or "head" in name]
    assert counts.n_embedding == sum(sizes[name] for name in tables)
    looped = ("recur", "injection", "loop_norm", "exit_gate")
    assert counts.n_rec_stored == sum(sizes[name] for name in sizes if name.split(".")[0] in looped)
    assert counts.n_once_stored + counts.n_rec_stored + counts.n_embedding == counts.n_params
    if kind != "experts":
        assert (counts.n_once, counts.n_rec) == (counts.n_once_stored, counts.n_rec_stored)


@pytest.mark.parametrize("kind", KINDS)
def test_honest_flops_are_the_matmuls_that_are_executed(kind, monkeypatch):
    monkeypatch.setattr(door, "serve", lambda *x, **few: False)  # the counter sees PyTorch's own operations alone
    cfg = config(kind)
    model, S = LoopedLM(cfg).eval(), 16
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(1, S, dtype=torch.long))
    measured, expected = counter.get_total_flops(), count(cfg, seq_len=S).flops_per_token_forward * S
    # the counter does not know SDPA's kernel for CPUs: what is missing is exactly the attention
    attention = (cfg.prelude + cfg.coda + cfg.mean_loops * cfg.recur) * 4 * S * S * cfg.width
    assert measured == expected - attention
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.set_precision("bf16")(torch.zeros(1, S, dtype=torch.long))  # plain matmuls
    assert counter.get_total_flops() == expected


def test_training_costs_three_forward_passes_where_everything_backpropagates():
    cfg = config("parcae", backprop_loops="all")
    counts = count(cfg)
    assert counts.flops_per_token == pytest.approx(3 * counts.flops_per_token_forward)
    # a loop without gradient costs its forward pass alone: a third
    shorter = count(cfg.replace(mean_loops=3))
    per_loop = counts.flops_per_token_forward - shorter.flops_per_token_forward
    assert count(cfg, backprop_loops=1).flops_per_token == pytest.approx(counts.flops_per_token - 3 * 2 * per_loop)


@pytest.mark.parametrize("on_top", [False, True])
def test_sampled_depth_costs_its_expected_loops(on_top):
    cfg = config("parcae", depth="poisson", mean_loops=8, backprop_loops=4, on_top=on_top)
    n, k = DepthRule(cfg).sample(0, 0, range(20_000))
    drawn = collections.Counter(zip(n.tolist(), k.tolist(), strict=True))
    plain = cfg.replace(depth="fixed", on_top=False)
    fixed = {(a, b): count(plain.replace(mean_loops=a + b, backprop_loops=max(b, 1))) for a, b in drawn}
    average = sum(times * fixed[each].flops_per_token for each, times in drawn.items()) / 20_000
    assert count(cfg).flops_per_token == pytest.approx(average, rel=0.01)


def test_an_expected_loop_is_what_training_runs():
    model = LoopedLM(ModelConfig(width=32, depth="poisson", mean_loops=6)).train()
    steps = []
    inner = model.step
    model.step = lambda h, *rest: (steps.append(len(h)), inner(h, *rest))[1]
    x = torch.zeros(64, 4, dtype=torch.long)
    for step in range(20):
        model.hidden(x, draw=Draw(0, step, range(64)))
    # rows that are done are not computed: the work is the mean depth, not the largest
    assert sum(steps) / (20 * 64) == pytest.approx(6, rel=0.05)


@pytest.mark.parametrize("backprop", [1, 2, "all"])
@pytest.mark.parametrize(("injection", "matrices"), [("add", 0), ("lti", 1), ("concat", 2), ("concat-identity", 2)])
def test_an_injection_costs_000_its_weights_in_every_loop(injection, matrices, backprop):
    """W [e ; h] is counted whole in every loop, also its half that is the same in all of them."""
    cfg = config("additive", backprop_loops=backprop)
    given = dict(injection=injection, state_init="zero" if injection == "add" else "like-init")
    plain, counts = count(cfg), count(cfg.replace(**given))
    k, weights = 4 if backprop == "all" else backprop, matrices * 32**2
    assert counts.published["000"] - plain.published["000"] == (2 * (4 - k) + 6 * k) * weights
    assert counts.published_forward["000"] - plain.published_forward["000"] == 2 * 4 * weights


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_hyper_connections_cost_their_scalars_times_the_width(lanes):
    kinds = dict(state_init="prelude", backprop_loops="all", mean_loops=6)
    plain = count(config("hyper-connections", **{**kinds, "injection": "none"}))
    found = count(config("hyper-connections", lanes=lanes))
    assert found == count(config("hyper-connections", lanes=lanes, lanes_receive="s"))
    assert found.published["000"] - plain.published["000"] == 6 * 6 * (lanes**2 + 2 * lanes) * 32  # 000, App. G.1
    assert found.published_forward["000"] - plain.published_forward["000"] == 2 * 6 * (lanes**2 + 2 * lanes) * 32
    # as computed: the mixing alpha . l and M l of every loop, 2 FLOPs a product
    assert found.flops_per_token_forward - plain.flops_per_token_forward == 6 * 2 * 32 * (lanes**2 + lanes)
