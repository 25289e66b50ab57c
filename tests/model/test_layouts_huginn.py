"""Huginn's checkpoints give the logits of its equations, its published size, or are refused in one line."""

import math

import pytest
import torch
import torch.nn.functional as F

from lib.flops import count
from lib.model.layouts import HUGINN
from lib.model.looped import Draw, load_weights
from tests import equations as eq
from tests.checkpoints import HUGINN_0125, huginn, huginn_shapes, saved
from tests.lines import one_line
from tests.models import CONTEXT, D, V


def by_its_equations(w, about, tokens, loops, h):
    """Logits of the published code, with its own tensor names, from the initial state h."""
    d, eps = about["n_embd"], about["norm_eps"]

    def norm(x, name):
        return eq.rms(x, w[f"{name}.weight"], eps)

    def block(x, name):
        q, k, v = F.linear(norm(x, f"{name}.norm_1"), w[f"{name}.attn.Wqkv.weight"]).split(d, -1)
        q, k, v = (part.unflatten(-1, (about["n_heads"], -1)) for part in (q, k, v))
        q, k = q + w[f"{name}.attn.qk_bias"][0], k + w[f"{name}.attn.qk_bias"][1]
        q, k = (eq.rope(part, about["rope_base"], interleaved=True) for part in (q, k))
        x = norm(x + F.linear(eq.attention(q, k, v), w[f"{name}.attn.proj.weight"]), f"{name}.norm_2")
        gate, up = w[f"{name}.mlp.fc.weight"].chunk(2)
        y = eq.swiglu(norm(x, f"{name}.norm_3"), gate, up, w[f"{name}.mlp.proj.weight"])
        return norm(x + y, f"{name}.norm_4")

    e = math.sqrt(d) * w["transformer.wte.weight"][tokens]
    for i in range(about["n_layers_in_prelude"]):
        e = block(e, f"transformer.prelude.{i}")
    for _ in range(loops):
        h = F.linear(torch.cat((h, e), -1), w["transformer.adapter.weight"])
        for i in range(about["n_layers_in_recurrent_block"]):
            h = block(h, f"transformer.core_block.{i}")
    x = norm(h, "transformer.ln_f")
    for i in range(about["n_layers_in_coda"]):
        x = block(x, f"transformer.coda.{i}")
    return F.linear(norm(x, "transformer.ln_f"), w["lm_head.weight"])


@pytest.mark.parametrize("loops", [1, 2, 5])
@pytest.mark.parametrize("stacks", [(2, 3, 1), (1, 1, 2)])
def test_its_logits_are_those_of_its_equations(tmp_path, loops, stacks):
    about, tensors = huginn(stacks=stacks)
    model = load_weights(saved(tmp_path, about, tensors)).train()
    x = torch.randint(V, (3, CONTEXT), generator=torch.Generator().manual_seed(1))
    draw = Draw(0, 0, range(3))
    h = model.initial_state(torch.zeros(3, CONTEXT, D), draw)
    with torch.no_grad():
        theirs = by_its_equations(tensors, about, x, loops, h)
        torch.testing.assert_close(model(x, loops, draw), theirs, rtol=1e-4, atol=1e-4)


def test_the_published_model_has_its_published_size():
    """Of what is stored, the table counts once and rotary angles do not."""
    shapes = huginn_shapes(HUGINN_0125)
    stored = sum(math.prod(shape) for name, shape in shapes.items() if name != "freqs_cis")
    cfg = HUGINN.config(HUGINN_0125, {})
    assert count(cfg).n_params == stored == 3_564_976_800
    assert (cfg.mean_loops, cfg.max_backprop_loops, cfg.depth, cfg.depth_per) == (32, 8, "lognormal-poisson", "batch")
    assert cfg.context == 4096


def test_a_tied_head_does_not_differ_from_the_table(tmp_path):
    about, tensors = huginn()
    tensors["lm_head.weight"] += 1
    with one_line("lm_head.weight: it is not transformer.wte.weight", "restore either"):
        load_weights(saved(tmp_path, about, tensors))
    untied = load_weights(saved(tmp_path, about | {"tie_embeddings": False}, tensors))
    assert torch.equal(untied.head_weight, tensors["lm_head.weight"]) and not untied.cfg.tied


def test_it_may_have_no_bias_on_queries_and_keys(tmp_path):
    about, tensors = huginn()
    without = {name: tensor for name, tensor in tensors.items() if not name.endswith("qk_bias")}
    plain = load_weights(saved(tmp_path, about | {"qk_bias": False}, without))
    for name in tensors.keys() - without.keys():
        tensors[name] = torch.zeros_like(tensors[name])
    x = torch.randint(V, (2, 8), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(plain(x, 2), load_weights(saved(tmp_path, about, tensors))(x, 2))
