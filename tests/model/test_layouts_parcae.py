"""Official Parcae checkpoints give the logits and gradients of 001's equations, or are refused in one line."""

import json

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F

from lib.base.errors import InputError
from lib.model.looped import Draw, load_weights
from tests import equations as eq
from tests.lines import one_line
from tests.models import CONTEXT, HEADS, D, V, official_parcae


def parcae_by_its_equations(w: dict, tokens: torch.Tensor, loops: int, h: torch.Tensor, backprop: int, stacks):
    """Logits of 001's model, straight from facts of its paper and code, with its own tensor names."""

    def norm(x, name):
        return eq.rms(x, w[f"{name}.weight"], 1e-5)

    def qk(x):
        return eq.rms(eq.rope(x, 50_000.0, interleaved=True), 1, 0)

    def block(x, name, unique):
        y = norm(x, f"{name}.norm_1")
        q, k, v = (F.linear(y, w[f"{name}.attn.c_{n}.weight"]).unflatten(-1, (HEADS, -1)) for n in "qkv")
        if f"value_embeds.{unique}.weight" in w:
            gate = 2 * torch.sigmoid(F.linear(y[..., :32], w[f"{name}.attn.ve_gate.weight"]))
            v = v + gate[..., None] * w[f"value_embeds.{unique}.weight"][tokens].unflatten(-1, (HEADS, -1))
        x = x + F.linear(eq.attention(qk(q), qk(k), v), w[f"{name}.attn.c_proj.weight"])
        y = 0.5 * F.linear(norm(x, f"{name}.norm_2"), w[f"{name}.mlp.fc.weight"]).relu().square()
        return x + F.linear(y, w[f"{name}.mlp.proj.weight"])

    e = w["transformer.wte.weight"][tokens]
    for i in range(stacks[0]):
        e = block(e, f"transformer.prelude.{i}", i)
    e = norm(e, "transformer.ln_prelude")
    dt = F.softplus(w["transformer.adapter.dt_bias"])
    decay = torch.exp(-dt * w["transformer.adapter.A_log"].exp())
    for t in range(loops):
        if t == max(loops - backprop, 0) > 0:
            h = h.detach()
        h = decay * h + dt * (e @ w["transformer.adapter.B"].T)
        for i in range(stacks[1]):
            h = block(h, f"transformer.core_block.{i}", stacks[0] + i)
    x = F.linear(h, w["transformer.C.weight"])
    for i in range(stacks[2]):
        x = block(x, f"transformer.coda.{i}", stacks[0] + stacks[1] + i)
    return F.linear(norm(x, "transformer.ln_f"), w["transformer.wte.weight"])


@pytest.mark.parametrize("loops", [1, 2, 4])
@pytest.mark.parametrize("stacks", [(2, 3, 1), (1, 1, 1), (1, 2, 1)])
def test_official_parcae_checkpoints_give_their_logits_and_truncated_gradients(tmp_path, loops, stacks):
    tensors = official_parcae(stacks)
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"mean_recurrence": 4, "mean_backprop_depth": 2}))
    model = load_weights(tmp_path).train()
    x = torch.randint(V, (3, 16), generator=torch.Generator().manual_seed(1))
    w = {name: t.clone().requires_grad_() for name, t in tensors.items() if name != "freqs_cis"}
    draw = Draw(0, 0, range(3))
    h_0 = model.initial_state(torch.zeros(3, 16, D), draw)
    theirs = parcae_by_its_equations(w, x, loops, h_0, backprop=2, stacks=stacks)
    ours = model(x, loops, draw)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    upstream = torch.randn(theirs.shape, generator=torch.Generator().manual_seed(2)) / theirs.numel()
    ours.backward(upstream)
    theirs.backward(upstream)
    # the names are told apart by their values: the n-th tensor in the file is the one loaded from it
    ours_by_value = {p.detach().sum().item(): p.grad for p in model.parameters()}
    assert len(ours_by_value) == len(w)
    for tensor in w.values():
        grad = ours_by_value[tensor.detach().sum().item()]
        torch.testing.assert_close(grad, tensor.grad, rtol=1e-3, atol=1e-6)


def test_without_a_config_a_parcae_checkpoint_has_the_papers_loops(tmp_path):
    safetensors.torch.save_file(official_parcae(), tmp_path / "given.safetensors")
    cfg = load_weights(tmp_path / "given.safetensors").cfg
    assert (cfg.mean_loops, cfg.max_backprop_loops, cfg.rope_base, cfg.mlp) == (8, 4, 50_000, "half-relu2")
    assert cfg.rope == "interleaved" and cfg.tied and cfg.prelude_norm and cfg.readout and cfg.value_embeddings


@pytest.mark.parametrize("gated", [True, False])
def test_heads_and_context_come_from_rotary_angles_of_any_shape(tmp_path, gated):
    tensors = official_parcae()
    if not gated:
        tensors = {name: t for name, t in tensors.items() if "ve_gate" not in name and "value_embeds" not in name}
    angles = torch.zeros(CONTEXT, D // HEADS // 2, 2)
    complex_ones = torch.view_as_complex(angles)
    for freqs in (angles, angles[None, :, None].bfloat16(), complex_ones, complex_ones[None, :, None]):
        safetensors.torch.save_file(tensors | {"freqs_cis": freqs.contiguous()}, tmp_path / "model.safetensors")
        cfg = load_weights(tmp_path).cfg
        assert (cfg.heads, cfg.context, cfg.value_embeddings) == (HEADS, CONTEXT, gated)


def test_what_a_parcae_config_says_is_read_or_refused(tmp_path):
    safetensors.torch.save_file(official_parcae(), tmp_path / "model.safetensors")
    about = {"rope_settings": {"rope_base": 10_000}, "logit_softcap": 30.0, "state_init": "embed"}
    about |= {"recurrent_iteration_method": "per-batch", "num_attention_heads": 4, "norm_eps": 1e-6}
    (tmp_path / "config.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match=r"attn\.ve_gate\.weight has shape \(2, 32\) instead of \(4, 32\)"):
        load_weights(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(about | {"num_attention_heads": 2}))
    cfg = load_weights(tmp_path).cfg
    assert (cfg.rope_base, cfg.softcap, cfg.state_init, cfg.depth_per) == (10_000, 30.0, "prelude", "batch")
    for field, value in (("injection_type", "linear"), ("mlp_class_name", "GatedMLP"), ("clip_qkv", 1.0)):
        (tmp_path / "config.json").write_text(json.dumps({field: value}))
        with one_line("has no counterpart here, load one with", starts=f"{field}: "):
            load_weights(tmp_path)


def test_a_parcae_checkpoint_with_value_tables_elsewhere_is_refused(tmp_path):
    # the released code drops them in silence when the parities of layer indices disagree
    tensors = official_parcae()
    tensors["value_embeds.0.weight"] = tensors.pop("value_embeds.1.weight")
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"value_embeds\.1\.weight is missing; value_embeds\.0\.weight is unknown"):
        load_weights(tmp_path)
