import time

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lib.config import ModelConfig
from lib.flops import count
from lib.model import Draw, LoopedLM
from lib.presets import PRESETS, preset
from tests.test_model import KINDS, config

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


@pytest.mark.parametrize("name", TRANSFORMER_SETUP)
def test_published_counts_to_the_last_digit(name):
    counts = count(preset(name))
    assert (counts.n_params, counts.flops_per_token_published) == TRANSFORMER_SETUP[name]


@pytest.mark.parametrize("name", RDM_SETUP)
def test_rdm_parameter_counts(name):
    assert count(preset(name)).n_params == RDM_SETUP[name]


def test_parcae_adds_its_injection_readout_and_norm_to_the_transformer():
    for size, d in (("140m", 768), ("370m", 1024), ("770m", 1280), ("1.3b", 1536)):
        added = count(preset(f"parcae-{size}")).n_params - count(preset(f"gpt-{size}")).n_params
        assert added == 2 * d * d + 3 * d


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_are_those_of_the_built_model(kind):
    model = LoopedLM(config(kind))
    counts = count(config(kind))
    assert counts.n_params == sum(p.numel() for p in model.parameters())
    tables = [
        p.numel() for name, p in model.named_parameters() if ("embed" in name and "norm" not in name) or "head" in name
    ]
    assert counts.n_embedding == sum(tables)
    rec = sum(
        p.numel() for name, p in model.named_parameters() if name.split(".")[0] in ("recur", "injection", "loop_norm")
    )
    assert counts.n_rec == rec
    assert counts.n_once + counts.n_rec + counts.n_embedding == counts.n_params


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "values"])
def test_honest_flops_are_the_matmuls_that_are_executed(kind):
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
    truncated = count(cfg, backprop_loops=1)
    per_loop = (counts.flops_per_token - truncated.flops_per_token) / (2 / 3) / (cfg.mean_loops - 1) / 3
    assert truncated.flops_per_token == pytest.approx(counts.flops_per_token - 2 * per_loop * (cfg.mean_loops - 1))
    assert truncated.flops_per_token < counts.flops_per_token


def test_sampled_depth_costs_its_expected_loops():
    cfg = config("parcae", depth="poisson", mean_loops=8, backprop_loops=4)
    from lib import depth

    n, k = depth.split(depth.sample(cfg, 0, 0, range(40_000)), 4)
    fixed = {(a, b): count(cfg.replace(depth="fixed", mean_loops=a + b, backprop_loops=max(b, 1))).flops_per_token
             for a, b in set(zip(n.tolist(), k.tolist(), strict=True))}  # fmt: skip
    average = np.mean([fixed[a, b] for a, b in zip(n.tolist(), k.tolist(), strict=True)])
    assert count(cfg).flops_per_token == pytest.approx(average, rel=0.01)


def test_effective_parameters():
    counts = count(config("parcae"))
    assert counts.n_eff(0) == counts.n_once + counts.n_rec
    assert counts.n_eff(1) == counts.n_once + 4 * counts.n_rec
    assert counts.n_eff(0.5, loops=9) == counts.n_once + 3 * counts.n_rec
    assert counts.n_active == counts.n_once + 4 * counts.n_rec + 61 * 32


def test_counting_builds_nothing():
    begin = time.perf_counter()
    for name in PRESETS:
        count(preset(name))
    assert (time.perf_counter() - begin) / len(PRESETS) < 0.05


def test_an_expected_loop_is_what_training_runs():
    cfg = ModelConfig(width=32, depth="poisson", mean_loops=6)
    model = LoopedLM(cfg).train()
    steps = []
    inner = model._step
    model._step = lambda h, prepared, x: (steps.append(len(h)), inner(h, prepared, x))[1]
    x = torch.zeros(64, 4, dtype=torch.long)
    for step in range(20):
        model.hidden(x, draw=Draw(0, step, range(64)))
    # rows that are done are not computed: the work is the mean depth, not the largest
    assert sum(steps) / (20 * 64) == pytest.approx(6, rel=0.05)
