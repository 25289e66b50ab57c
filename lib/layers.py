"""The parts of a block: norms, rotary positions, attention, MLPs.

Weights are kept in fp32; a matmul happens in the dtype of its input. Shapes: B batch, S sequence, d width, H heads,
D head_dim.
"""

import functools
import importlib.util
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lib.config import ModelConfig

GATE_CHANNELS = 32  # of the normed input that a value-embedding gate reads (001)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x W^T in the dtype of x. Casting at every use keeps the gradient's sum over loops in fp32."""
    return F.linear(x, weight.to(x.dtype))


class RMSNorm(nn.Module):
    """x / rms(x), times a learnable gain if wanted; the result in ``dtype``."""

    def __init__(self, width: int, gain: bool, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width)) if gain else None

    def forward(self, x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        weight = None if self.weight is None else self.weight.to(x.dtype)
        return F.rms_norm(x, x.shape[-1:], weight, self.eps).to(dtype or x.dtype)


# ---- rotary positions ------------------------------------------------------------------------------------------------


def rope_angles(length: int, head_dim: int, base: float) -> Tensor:
    """e^(i t theta_j) [S, D/2], theta_j = base^(-2j/D)."""
    theta = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = torch.outer(torch.arange(length, dtype=torch.float64), theta)
    return torch.polar(torch.ones_like(angles), angles).to(torch.complex64)


def rotate(x: Tensor, angles: Tensor, layout: str) -> Tensor:
    """Rotary positions on x [B, S, H, D], in fp32. A pair is (2j, 2j+1) interleaved, (j, j + D/2) half-split."""
    angles = angles[: x.shape[1], None]
    if layout == "interleaved":
        pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * angles).flatten(-2)
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * angles.real - b * angles.imag, a * angles.imag + b * angles.real), dim=-1)


# ---- attention -------------------------------------------------------------------------------------------------------


@functools.cache
def _has_flash() -> bool:
    return importlib.util.find_spec("flash_attn") is not None


def attention_kind(device: torch.device, dtype: torch.dtype, length: int) -> str:
    """Which causal attention runs here: 'flash' (CUDA, half precision, installed), 'bmm' or 'sdpa'.

    On a CPU in bf16 two batched matmuls around a softmax beat SDPA's kernel 2-4 times up to a few hundred tokens.
    """
    half = dtype in (torch.bfloat16, torch.float16)
    if device.type == "cuda" and half and _has_flash():
        return "flash"
    if device.type == "cpu" and half and length <= 512:
        return "bmm"
    return "sdpa"


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal softmax attention on [B, S, H, D]."""
    kind = attention_kind(q.device, q.dtype, q.shape[1])
    if kind == "flash":
        from flash_attn import flash_attn_func

        return flash_attn_func(q, k, v, causal=True)
    if kind == "bmm":
        return _bmm_attention(q, k, v)
    out = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
    return out.transpose(1, 2)


def _bmm_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    B, S, H, D = q.shape
    q, k, v = (t.transpose(1, 2).reshape(B * H, S, D) for t in (q, k, v))
    mask = torch.full((S, S), -math.inf, dtype=q.dtype, device=q.device).triu(1)
    scores = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=1 / math.sqrt(D))
    return torch.bmm(scores.softmax(-1), v).view(B, H, S, D).transpose(1, 2)


class Attention(nn.Module):
    """Multi-head causal attention with RoPE, optional QK-norm (after RoPE, as 001's code) and value embeddings."""

    def __init__(self, cfg: ModelConfig, value_embeddings: bool):
        super().__init__()
        d = cfg.width
        self.heads, self.rope, self.qk_norm, self.eps = cfg.heads, cfg.rope, cfg.qk_norm, cfg.norm_eps
        self.q, self.k, self.v, self.out = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.gate = nn.Linear(GATE_CHANNELS, cfg.heads, bias=False) if value_embeddings else None

    def forward(self, x: Tensor, angles: Tensor, values: Tensor | None = None) -> Tensor:
        q, k, v = (linear(x, m.weight).unflatten(-1, (self.heads, -1)) for m in (self.q, self.k, self.v))
        if self.gate is not None:
            # v += 2 sigmoid(W x[:32]) * value embedding, one gate a head (001's code)
            gate = 2 * torch.sigmoid(linear(x[..., :GATE_CHANNELS], self.gate.weight))
            v = v + gate[..., None] * values.to(v.dtype).unflatten(-1, (self.heads, -1))
        q, k = rotate(q, angles, self.rope), rotate(k, angles, self.rope)
        if self.qk_norm:
            q, k = (F.rms_norm(t, t.shape[-1:], eps=self.eps) for t in (q, k))
        return linear(attention(q.to(v.dtype), k.to(v.dtype), v).flatten(-2), self.out.weight)


class MLP(nn.Module):
    """SwiGLU, relu(x)^2, or half of the latter (001's code)."""

    def __init__(self, cfg: ModelConfig):
        super().__init__()
        self.kind = cfg.mlp
        self.up = nn.Linear(cfg.width, cfg.mlp_width, bias=False)
        self.gate = nn.Linear(cfg.width, cfg.mlp_width, bias=False) if cfg.mlp == "swiglu" else None
        self.down = nn.Linear(cfg.mlp_width, cfg.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = linear(x, self.up.weight)
        if self.kind == "swiglu":
            hidden = F.silu(linear(x, self.gate.weight)) * hidden
        else:
            hidden = F.relu(hidden).square()
            if self.kind == "half-relu2":
                hidden = 0.5 * hidden
        return linear(hidden, self.down.weight)


class Block(nn.Module):
    """Attention and MLP around a residual stream x [B, S, d].

    pre-norm:  x = x + f(n(x)).
    sandwich:  x = n'(x + f(n(x))), which normalises the stream itself (001's "residual norm", after Huginn).
    """

    def __init__(self, cfg: ModelConfig, value_embeddings: bool = False):
        super().__init__()

        def norm():
            return RMSNorm(cfg.width, cfg.norm_gain, cfg.norm_eps)

        sandwich = cfg.block == "sandwich"
        self.attn_norm, self.attn = norm(), Attention(cfg, value_embeddings)
        self.attn_post = norm() if sandwich else None
        self.mlp_norm, self.mlp = norm(), MLP(cfg)
        self.mlp_post = norm() if sandwich else None

    def forward(self, x: Tensor, angles: Tensor, dtype: torch.dtype, values: Tensor | None = None) -> Tensor:
        x = x + self.attn(self.attn_norm(x, dtype), angles, values)
        if self.attn_post is not None:
            x = self.attn_post(x)
        x = x + self.mlp(self.mlp_norm(x, dtype))
        if self.mlp_post is not None:
            x = self.mlp_post(x)
        return x
