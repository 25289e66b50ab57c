"""Every kind of preset learns at a reduced size, and each makes a run with its paper's optimiser."""

import pytest
import torch

from lib.config import DataConfig, RunConfig, TrainConfig
from lib.model.looped import Draw, LoopedLM
from lib.presets import PRESETS, head_count, instability_model, optimizer, preset
from lib.train.optimiser import Optimizer
from tests.lines import one_line


def reduced(name: str):
    """The preset with its structure at a width of 64; stacks of more than four layers are cut."""
    cfg = preset(name, vocab_size=97, width=64, heads=2, mlp_width=96, context=32)
    return cfg.replace(prelude=min(cfg.prelude, 4), recur=min(cfg.recur, 4))


#: presets that differ in more than size, by their first name
KINDS = {reduced(name).model_dump_json(): name for name in reversed(PRESETS)}


@pytest.mark.parametrize("name", KINDS.values())
def test_every_preset_trains_three_steps_at_reduced_size(name):
    cfg = reduced(name)
    generator = torch.Generator().manual_seed(0)
    model, x = LoopedLM(cfg).train(), torch.randint(97, (4, 33), generator=generator)
    settings = optimizer(name, 100, warmup_steps=0)
    if settings.name == "muonh":
        settings = settings.replace(scaling="none", muon_lr=0.02, embedding_lr=0.05)  # its rule wants its batches
    steps = Optimizer(model, settings.replace(lr=3e-3), steps=100)

    def loss_at(n, draw):
        return model.loss(x[:, :-1], x[:, 1:], n, draw)[0]

    first = loss_at(cfg.mean_loops, Draw(0, 0, range(4))).item()
    for step in range(3):
        loss_at(None, Draw(0, step, range(4))).backward()  # at the depths its own rule draws
        assert all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters())
        steps.clip_gradients()
        steps.step(step)
        steps.zero_grad()
    assert loss_at(cfg.mean_loops, Draw(0, 0, range(4))).item() < first


@pytest.mark.precision
def test_every_preset_and_its_optimiser_make_a_run():
    assert {reduced(name).model_dump_json() for name in PRESETS} == KINDS.keys()
    for name in PRESETS:
        data = DataConfig(context=preset(name).context, content="0" * 16, source="x.txt")
        RunConfig(model=preset(name), optim=optimizer(name, 10_000), train=TrainConfig(steps=10_000), data=data)


def test_the_papers_optimisers():
    parcae, large = optimizer("parcae-140m", 1000), optimizer("gpt-1.3b", 1000)
    assert (parcae.lr, parcae.muon_lr, parcae.betas, parcae.eps) == (8e-3, 8e-3, (0.8, 0.95), 1e-10)
    assert large.lr == 6e-3 and parcae.cooldown_steps == 500 and parcae.muon_weight_decay == 0.2
    assert parcae.injection == "adamw" == large.injection  # 001, Table "Optimizer parameter group assignment"
    rdm = optimizer("parcae-rdm-350m", 20_000, lr=2e-3)
    assert rdm.update_clipping and rdm.lr == 2e-3 and (rdm.warmup_steps, rdm.cooldown_steps) == (4096, 4096)
    moe = optimizer("looped-moe-256", 1000)
    assert (moe.cooldown, moe.cooldown_steps, moe.final) == ("sqrt", 100, 0.05)
    assert optimizer("isodepth-s10-r4", 4000).injection == "matrix"  # 000 gives every matrix to MuonH


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: optimizer("x", 10), "preset: 'x' is not known"),
        (lambda: optimizer("parcae-140m", 0), "steps: 0 train nothing, use at least 1"),
        (lambda: preset("parcae-140"), "preset: 'parcae-140' is not known, use one of parcae-140m"),
        (lambda: preset("parcae-140m", widht=3), "widht"),
        (lambda: instability_model("rdm"), "architectures: 'rdm' is not known"),
        (lambda: head_count(100, 16, "widths"), "widths: 100 is not a multiple of head_dim 16"),
    ],
)
def test_what_no_paper_has_is_refused(ask, says):
    with one_line(says):
        ask()
