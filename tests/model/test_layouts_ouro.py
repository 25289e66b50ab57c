"""Ouro's checkpoints give the logits and the exits of its equations, its published size, or are refused in one line."""

import functools
import math

import pytest
import torch
import torch.nn.functional as F

from lib.decode.exits import GATE, measure_exits
from lib.decode.generation import Exit, score
from lib.flops import count
from lib.model.layouts import OURO
from lib.model.looped import load_weights
from tests import equations as eq
from tests.checkpoints import OURO_1_4B, ouro, ouro_about, ouro_shapes, saved
from tests.lines import one_line
from tests.models import CONTEXT, V

config = functools.partial(OURO.config, tensors={})


def by_its_equations(w, about, tokens, loops):
    """(logits, the gate's lambda) after each loop, of the published code, with its own tensor names."""
    D, eps = about["head_dim"], about["rms_norm_eps"]

    def norm(x, name):
        return eq.rms(x, w[f"{name}.weight"], eps)

    def layer(x, name):
        y = norm(x, f"{name}.input_layernorm")
        q, k, v = (F.linear(y, w[f"{name}.self_attn.{part}_proj.weight"]).unflatten(-1, (-1, D)) for part in "qkv")
        q, k = (eq.rope(part, about["rope_theta"], interleaved=False) for part in (q, k))
        y = F.linear(eq.attention(q, k, v), w[f"{name}.self_attn.o_proj.weight"])
        x = x + norm(y, f"{name}.input_layernorm_2")
        mlp = (w[f"{name}.mlp.{part}_proj.weight"] for part in ("gate", "up", "down"))
        y = eq.swiglu(norm(x, f"{name}.post_attention_layernorm"), *mlp)
        return x + norm(y, f"{name}.post_attention_layernorm_2")

    h, found = w["model.embed_tokens.weight"][tokens], []
    for _ in range(loops):
        for i in range(about["num_hidden_layers"]):
            h = layer(h, f"model.layers.{i}")
        h = norm(h, "model.norm")
        gate = F.linear(h, w["model.early_exit_gate.weight"], w["model.early_exit_gate.bias"])
        found.append((F.linear(h, w["lm_head.weight"]), torch.sigmoid(gate[..., 0])))
    return found


def exits(chances, q):
    """The loop that each token leaves after: the first whose sum of p reaches q. chances: lambda of every loop."""
    stays, p = torch.ones_like(chances[0]), []
    for chance in chances[:-1]:
        p.append(chance * stays)
        stays = stays * (1 - chance)
    reached = torch.stack([*p, stays]).cumsum(0) >= q  # the last loop takes what is left
    reached[-1] = True
    return reached.int().argmax(0) + 1


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    about, tensors = ouro()
    model = load_weights(saved(tmp_path_factory.mktemp("ouro"), about, tensors))
    x = torch.randint(V, (3, CONTEXT), generator=torch.Generator().manual_seed(1))
    return model, x, by_its_equations(tensors, about, x, 5)


def test_its_logits_are_those_of_its_equations(given):
    model, x, theirs = given
    assert (model.cfg.mean_loops, model.cfg.key_heads, model.cfg.heads) == (4, 2, 4)
    with torch.no_grad():
        for loops, (logits, _) in enumerate(theirs, start=1):
            torch.testing.assert_close(model(x, loops), logits, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(model(x), theirs[3][0], rtol=1e-4, atol=1e-4)  # trained at four


@pytest.mark.parametrize("q", [0.2, 0.5, 0.9])
def test_its_exit_step_is_the_gates_at_one_minus_q(given, q):
    model, x, theirs = given
    expected = exits([chance for _, chance in theirs[:4]], q)
    stays = torch.from_numpy(measure_exits(model, x, x).scores[GATE])
    stays[-1] = 0  # nobody stays beyond the last loop
    found = (stays < 1 - q).int().argmax(0) + 1
    assert torch.equal(found, expected.flatten()) and len({*found.tolist()}) > 1
    # first tokens, which see no keys but their own, leave there in decoding as well
    decoded = score(model, x[:, :1], x[:, 1:2], Exit(1 - q, GATE))
    assert decoded.loops[:, 0].tolist() == expected[:, 0].tolist()


def test_the_published_model_has_its_published_size():
    """Ouro-1.4B by the shapes of its 269 tensors; heads are not grouped."""
    shapes = ouro_shapes(OURO_1_4B)
    assert len(shapes) == 269
    assert count(config(OURO_1_4B)).n_params == sum(map(math.prod, shapes.values()))
    assert count(config(OURO_1_4B)).n_params == pytest.approx(1.4e9, rel=0.05)


def test_a_window_that_is_not_used_is_no_window():
    about = ouro_about() | {"sliding_window": 4096, "use_sliding_window": False}
    assert config(about) == config(ouro_about())
    with one_line("has no counterpart here", starts="sliding_window: "):
        config({name: value for name, value in about.items() if name != "use_sliding_window"})
