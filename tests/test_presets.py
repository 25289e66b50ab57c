import pytest
import torch

from lib.errors import InputError
from lib.model import LoopedLM
from lib.presets import INSTABILITY, PRESETS, instability_model, preset


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_trains_at_reduced_size(name):
    cfg = preset(name, vocab_size=97, width=64, heads=2, mlp_width=96, context=32)
    cfg = cfg.replace(prelude=min(cfg.prelude, 2), coda=min(cfg.coda, 1))
    model, x = LoopedLM(cfg).train(), torch.randint(97, (4, 33))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(6):
        loss, _ = model.loss(x[:, :-1], x[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_a_change_overrides_the_preset():
    assert preset("parcae-140m", vocab_size=512).vocab_size == 512
    with pytest.raises(InputError, match="preset: 'parcae' is not known, use one of"):
        preset("parcae")
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
