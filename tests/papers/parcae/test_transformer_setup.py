"""At the paper's size the models are 001's own, and trained as the paper trains them."""

import itertools

import pytest

from lib.flops import count
from lib.papers.parcae import transformer_setup
from lib.papers.parcae.parameters import EndToEnd, StabilityAblation
from lib.presets import optimizer, preset
from lib.train.optimiser import placements
from tests.given import given

#: what the paper's 140M have in common with its other sizes
PAPERS = dict(
    head_dim=128, mean_loops=8, vocab_size=32_768, context=2048, batch=256, micro_batch=16, lr=8e-3, muon_lr=8e-3,
    precision="bf16-mixed", content="0123456789abcdef", val_rows=16, steps=100, seeds=[1, 2],
)  # fmt: skip
P = given(StabilityAblation, width=768, layers=2, injection_lrs=[8e-3], judged_lr=8e-3, rate_seeds=[1, 2], **PAPERS)


def test_at_the_papers_size_they_are_the_papers_models():
    assert transformer_setup.model(P, 8) == preset("parcae-140m") == transformer_setup.model(P, 8, backprop_loops=4)
    assert transformer_setup.transformer(P) == preset("gpt-140m")
    medium = P.replace(width=1024, layers=4)
    assert count(transformer_setup.model(medium, 8)).n_params == 388_003_328
    assert count(transformer_setup.transformer(medium)).n_params == 385_903_104


def test_the_ladder_changes_one_thing_a_rung():
    runs = transformer_setup.ladder(P)
    fields = [runs[rung, P.seeds[0]].model.model_dump() for rung in transformer_setup.LADDER]
    changed = [{key for key in a if a[key] != b[key]} for a, b in itertools.pairwise(fields)]
    assert changed == [{"injection", "readout"}, {"depth_per"}, {"prelude_norm"}]
    assert fields[0]["injection"] == "concat" and fields[0]["depth_per"] == "batch"


@pytest.mark.parametrize(
    ("changes", "of_injection"),
    [({"injection": "concat", "readout": False}, {"weight"}), ({}, {"A_log", "dt_bias", "B"})],
)
def test_the_rate_of_the_injection_is_adamws_alone(changes, of_injection):
    model = transformer_setup.model(P, 8, **changes)
    own, same, fast = (transformer_setup.run(P, model, 100, 7, injection_lr=rate) for rate in (None, P.lr, 0.1))
    assert own == same and fast == own.replace(optim=own.optim.replace(injection_lr=0.1))
    both = zip(placements(model, own.optim), placements(model, fast.optim), strict=True)
    assert {a.name.removeprefix("injection.") for a, b in both if a != b} == of_injection


def test_comparisons_share_their_runs():
    sizes = given(EndToEnd, sizes={768: 2, 1024: 4}, **PAPERS)
    runs = transformer_setup.against_transformer(sizes)
    assert len(runs) == 8 and len({cfg.key for cfg in runs.values()}) == 8
    assert runs["parcae", 768, 2] == transformer_setup.ladder(P)["+ prelude norm", 2]
    assert runs["transformer", 1024, 1].model == transformer_setup.transformer(P.replace(width=1024, layers=4))
    assert {cfg.train.seed for (_, _, seed), cfg in runs.items() if seed == 2} == {2}


def test_without_looping_nothing_is_sampled():
    cfg = transformer_setup.model(P, 1)
    assert cfg.depth == "fixed" and cfg.max_backprop_loops is None
    assert count(cfg).n_params == count(transformer_setup.model(P, 8)).n_params


def test_a_run_trains_as_the_paper_trains():
    model = transformer_setup.model(P, 8)
    cfg = transformer_setup.run(P, model, 1000, seed=3)
    assert cfg.optim == optimizer("parcae-140m", 1000) and cfg.optim.cooldown_steps == 500
    assert (cfg.train.seed, cfg.train.trace_every, cfg.train.micro_batch) == (3, 166, 16)
    assert cfg.tokens == 1000 * 256 * 2048
    other = transformer_setup.run(P.replace(lr=1e-3, muon_lr=2e-3, micro_batch=0), model, 1000, seed=3)
    assert (other.optim.lr, other.optim.muon_lr, other.train.micro_batch) == (1e-3, 2e-3, None)
