import pytest
import torch

from lib.config import OptimConfig
from lib.errors import InputError
from lib.model import Draw, LoopedLM
from lib.optim import Optimizer, clip_gradients
from lib.presets import INSTABILITY, PRESETS, instability_model, preset


def reduced(name: str):
    """The preset with its structure at a width of 64; stacks of more than eight layers are cut."""
    cfg = preset(name, vocab_size=97, width=64, heads=2, mlp_width=96, context=32)
    return cfg.replace(prelude=min(cfg.prelude, 8), recur=min(cfg.recur, 8))


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_trains_three_steps_at_reduced_size(name):
    cfg = reduced(name)
    generator = torch.Generator().manual_seed(0)
    model, x = LoopedLM(cfg).train(), torch.randint(97, (4, 33), generator=generator)
    optimizer = Optimizer(model, OptimConfig(lr=3e-3, clip=1.0), steps=3)
    losses = []
    for step in range(4):
        # at fixed depth, so that the losses can be compared
        loss, _ = model.loss(x[:, :-1], x[:, 1:], cfg.mean_loops, Draw(0, 0, range(4)))
        losses.append(loss.item())
        loss.backward()
        assert all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters())
        clip_gradients(model, 1.0)
        optimizer.step(min(step, 2))
        model.zero_grad()
    assert losses[-1] < losses[0]


def test_the_names_are_those_of_the_design():
    names = {f"{family}-{size}" for family in ("parcae", "gpt") for size in ("140m", "370m", "770m", "1.3b")}
    names |= {f"{family}-{size}" for family in ("rdm", "parcae-rdm") for size in ("100m", "350m")}
    names |= {f"isodepth-s{size}-r{loops}" for size in range(6, 36, 2) for loops in (1, 2, 4, 8)}
    names |= {f"looped-nanochat-s{size}" for size in range(8, 22, 2)}
    names |= {f"residual-L{layers}-N{loops}" for layers in (12, 24, 48) for loops in (1, 2, 4, 8, 16)}
    for family in ("base", "looped", "moe", "looped-moe"):
        names |= {f"{family}-{width}" for width in (128, 256, 384, 512, 640, 704, 768, 896, 1024)}
    assert names <= PRESETS.keys()


def test_a_change_overrides_the_preset():
    assert preset("parcae-140m", vocab_size=512).vocab_size == 512
    with pytest.raises(InputError, match="preset: 'parcae-140' is not known, use one of parcae-140m"):
        preset("parcae-140")
    with pytest.raises(InputError, match=r"preset: 'x' is not known, use one of .*isodepth-s.*looped-moe-"):
        preset("x")
    with pytest.raises(InputError, match="widht"):
        preset("parcae-140m", widht=3)


def test_the_architectures_of_the_instability_figures():
    models = {name: instability_model(name, width=64, heads=2) for name in INSTABILITY}
    base, residual, parcae = models["base"], models["residual-norm"], models["parcae"]
    assert (base.block, base.injection, base.loop_norm) == ("pre-norm", "concat", "none")
    assert (residual.block, residual.injection) == ("sandwich", "concat")
    assert (parcae.block, parcae.injection, parcae.prelude_norm, parcae.readout) == ("pre-norm", "lti", True, True)
    assert (base.depth_per, parcae.depth_per) == ("batch", "sequence")
    with pytest.raises(InputError, match="architectures: 'rdm' is not known"):
        instability_model("rdm")
