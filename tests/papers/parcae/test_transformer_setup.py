"""At the paper's size the models are 001's own, and each rung and sampler changes what its name says alone."""

import itertools

import pytest

from lib.base.errors import InputError
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
    models = {rung: transformer_setup.model(P, 8, **changes) for rung, changes in transformer_setup.LADDER.items()}
    fields = {rung: model.model_dump() for rung, model in models.items()}
    rungs = list(fields)
    changed = [{key for key in fields[a] if fields[a][key] != fields[b][key]} for a, b in itertools.pairwise(rungs)]
    assert changed == [{"injection", "readout"}, {"depth_per"}, {"prelude_norm"}]
    assert models[rungs[-1]] == transformer_setup.model(P, 8)
    assert fields["RDM"]["injection"] == "concat" and fields["RDM"]["depth_per"] == "batch"


def test_the_released_sampler_is_the_second_rung_with_loops_on_top():
    ours = transformer_setup.model(P, 8, **transformer_setup.LADDER["+ constrained A"])
    runs = transformer_setup.ladder(P, transformer_setup.RELEASED)
    assert [cfg.model for cfg in runs.values()] == [ours.replace(on_top=True)] * 2


def test_the_rates_of_the_injection_are_adamws_alone():
    p = P.replace(injection_lrs=[8e-3, 0.1], judged_lr=0.1, rate_seeds=[1, 7])
    runs, ladder = transformer_setup.injection_rates(p), transformer_setup.ladder(p)
    assert len(runs) == 2 * 2 * 2 and runs["RDM", 8e-3, 1] == ladder["RDM", 1]
    assert runs["+ constrained A", 8e-3, 1] == ladder["+ constrained A", 1]
    for rung, of_injection in {"RDM": {"weight"}, "+ constrained A": {"A_log", "dt_bias", "B"}}.items():
        slow, fast = runs[rung, 8e-3, 7], runs[rung, 0.1, 7]
        assert slow.model == fast.model and slow.train == fast.train
        assert fast.optim == slow.optim.replace(injection_lr=0.1)
        changed = {
            a.name.removeprefix("injection.")
            for a, b in zip(placements(slow.model, slow.optim), placements(fast.model, fast.optim), strict=True)
            if a != b
        }
        assert changed == of_injection
    with pytest.raises(InputError, match=r"judged_lr: 0\.5 is not one of injection_lrs"):
        p.replace(judged_lr=0.5)


def test_comparisons_share_their_runs():
    sizes = given(EndToEnd, sizes={768: 2, 1024: 4}, **PAPERS)
    runs, ladder = transformer_setup.against_transformer(sizes), transformer_setup.ladder(P)
    assert len(runs) == 8 and len(ladder) == 4 * 2 and len({cfg.key for cfg in runs.values()}) == 8
    assert runs["parcae", 768, 2] == ladder["+ prelude norm", 2]
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
