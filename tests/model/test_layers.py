"""Norms, rotary positions, attention, MLPs, blocks and experts equal their equations written out."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from lib.config import ModelConfig
from lib.model import layers
from lib.model.layers import MLP, Attention, Block, MoE, attention, rope_angles, rotate
from tests import equations as eq


def small(**changes):
    return ModelConfig(**{"width": 32, "heads": 2, "mlp_width": 48, "context": 16, **changes})


@pytest.mark.parametrize("window", [None, 1, 5, 23, 24])
@pytest.mark.parametrize("key_heads", [1, 2, 6])
def test_every_attention_is_causal_softmax_attention(key_heads, window):
    q, k, v = torch.randn(2, 24, 6, 16), torch.randn(2, 24, key_heads, 16), torch.randn(2, 24, key_heads, 16)
    expected = eq.attention(q, k, v, window).unflatten(-1, (6, 16))
    torch.testing.assert_close(attention(q, k, v, window), expected, rtol=1e-4, atol=1e-5)
    if key_heads == 6:
        torch.testing.assert_close(layers._bmm_attention(q, k, v, window), expected, rtol=1e-4, atol=1e-5)
    half = attention(*(t.bfloat16() for t in (q, k, v)), window).float()
    torch.testing.assert_close(half, expected, rtol=0.05, atol=0.03)


def test_the_eps_of_the_qk_norm_is_a_choice():
    x, angles = 1e-3 * torch.randn(2, 16, 32), rope_angles(16, 16, 50_000.0)
    plain, lifted = (Attention(small(qk_norm_eps=eps)) for eps in (None, 1e-6))
    lifted.load_state_dict(plain.state_dict())
    (q, _, _), (q_lifted, _, _) = (attn.project(x, attn.fused(), angles) for attn in (plain, lifted))
    raw = rotate(F.linear(x, plain.q.weight).unflatten(-1, (2, 16)), angles, "interleaved")
    torch.testing.assert_close(q, F.rms_norm(raw, (16,)))
    torch.testing.assert_close(q_lifted, raw * torch.rsqrt(raw.square().mean(-1, keepdim=True) + 1e-6))
    assert q_lifted.norm() < 0.99 * q.norm()


@pytest.mark.parametrize("kind", ["relu2", "half-relu2", "swiglu"])
def test_mlps_are_their_equations(kind):
    mlp = MLP(small(mlp=kind))
    x = torch.randn(4, 32)
    up = x @ mlp.up.weight.T
    if kind == "swiglu":
        hidden = F.silu(x @ mlp.gate.weight.T) * up
    else:
        hidden = up.clamp_min(0) ** 2 * (0.5 if kind == "half-relu2" else 1)
    torch.testing.assert_close(mlp(x), hidden @ mlp.down.weight.T)


def normed(x):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)


def same(x):
    return x


#: what is normed: what goes into a branch, what comes out of it, and the stream with it
PLACES = {
    "pre-norm": (normed, same, same),
    "sandwich": (normed, same, normed),
    "post-norm": (same, same, normed),
    "peri-norm": (normed, normed, same),
}


@pytest.mark.parametrize("a", [1.0, 0.5])
@pytest.mark.parametrize("kind", PLACES)
def test_blocks_are_their_equations(kind, a):
    block = Block(small(block=kind, residual="1/N", mean_loops=4, residual_c=4 * a), layer=1)
    x, angles, (before, end, after) = torch.randn(2, 16, 32), rope_angles(16, 16, 50_000.0), PLACES[kind]
    middle = after(x + a * end(block.attn(before(x), angles)))
    expected = after(middle + a * end(block.mlp(before(middle))))
    torch.testing.assert_close(block(x, angles, torch.float32)[0], expected, rtol=1e-4, atol=1e-5)
    assert sum(p.ndim == 1 for p in block.parameters()) == 2 * [before, end, after].count(normed)


# ---- mixture of experts


def moe(E: int, k: int) -> MoE:
    torch.manual_seed(0)
    module = MoE(small(mlp="swiglu", experts=E, active_experts=k, mlp_width=48))
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return module


def dense_reference(module: MoE, x: torch.Tensor) -> torch.Tensor:
    """Every expert on every token, weighted by the softmax over the k largest logits and zero elsewhere (004)."""
    logits = x @ module.router.weight.T
    kept = torch.full_like(logits, -math.inf).scatter(-1, logits.topk(module.k).indices, 0) + logits
    p = kept.softmax(-1)
    y = torch.zeros_like(x)
    for i in range(len(module.up)):
        expert = F.silu(x @ module.gate[i].T) * (x @ module.up[i].T)
        y = y + p[..., i : i + 1] * (expert @ module.down[i].T)
    return y


@pytest.mark.parametrize(("E", "k"), [(6, 2), (6, 1), (4, 4), (8, 3)])
def test_experts_equal_the_dense_reference_forward_and_backward(E, k):
    module, x = moe(E, k), torch.randn(3, 7, 32)
    upstream = torch.randn(3, 7, 32)
    grads = {}
    for name, f in (("grouped", lambda x: module(x)[0]), ("dense", lambda x: dense_reference(module, x))):
        module.zero_grad()
        leaf = x.clone().requires_grad_()
        y = f(leaf)
        y.backward(upstream)
        grads[name] = [y.detach(), leaf.grad, *(p.grad.clone() for p in module.parameters())]
    for a, b in zip(grads["grouped"], grads["dense"], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_routers_report_what_they_did():
    module, x = moe(5, 2), torch.randn(4, 9, 32)
    routing = module(x)[1]
    logits = x @ module.router.weight.T
    assert torch.equal(routing.chosen, logits.topk(2).indices)
    f = torch.stack([(routing.chosen == i).any(-1).float().mean() for i in range(5)])
    torch.testing.assert_close(routing.balance, 5 * (f * logits.softmax(-1).mean((0, 1))).sum())
    torch.testing.assert_close(routing.z, logits.logsumexp(-1).square().mean())
    even = moe(4, 2)
    torch.nn.init.zeros_(even.router.weight)
    assert even(x)[1].balance.item() == pytest.approx(2)  # k, its value at equal probabilities
    assert even(x)[1].z.item() == pytest.approx(math.log(4) ** 2)


@pytest.mark.parametrize("x", [torch.ones(2, 9, 32), torch.randn(1, 1, 32)], ids=["all to the same", "one token"])
def test_experts_that_nobody_took_are_not_computed(x):
    module = moe(8, 2)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        y = module(x)[0]
    assert counter.get_total_flops() == x[..., 0].numel() * (2 * 3 * 32 * 48 + 2 * 32 * 8)
    torch.testing.assert_close(y, dense_reference(module, x), rtol=1e-4, atol=1e-5)
