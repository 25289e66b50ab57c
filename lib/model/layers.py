"""The parts of a block: norms, rotary positions, attention, MLPs, mixture of experts.

Weights are kept in fp32; a matmul happens in the dtype of its input. Shapes: B batch, S sequence, d width, H heads,
D head_dim; E experts, of which a token takes k.
"""

import functools
import importlib.util
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lib.config import ModelConfig
from lib.kernels import door
from lib.model.routing import Routing

GATE_CHANNELS = 32  # of the normed input that a value-embedding gate reads (001)


@door.served_by(door.linear)
def linear(x: Tensor, *weights: Tensor) -> Tensor:
    """x W^T in the dtype of x, for several W side by side. Casting at every use keeps the gradient's sum over loops in
    fp32."""
    return F.linear(x, (weights[0] if len(weights) == 1 else torch.cat(weights)).to(x.dtype))


class RMSNorm(nn.Module):
    """x / rms(x), times a learnable gain if wanted; x itself where ``eps`` is None. The result in ``dtype``."""

    def __init__(self, width: int, gain: bool, eps: float | None):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width)) if gain and eps is not None else None

    def forward(self, x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        return x.to(dtype or x.dtype) if self.eps is None else self._normed(x, dtype)

    @door.served_by(door.norm)
    def _normed(self, x: Tensor, dtype: torch.dtype | None) -> Tensor:
        weight = None if self.weight is None else self.weight.to(x.dtype)
        return F.rms_norm(x, x.shape[-1:], weight, self.eps).to(dtype or x.dtype)


def norm(cfg: ModelConfig, present: bool = True) -> RMSNorm:
    """One of the norms of a model, where the config asks for it."""
    return RMSNorm(cfg.width, cfg.norm_gain, cfg.norm_eps if present else None)


# ---- rotary positions ------------------------------------------------------------------------------------------------


def rope_angles(length: int, head_dim: int, base: float) -> Tensor:
    """cos and sin of t theta_j [S, D/2, 2], theta_j = base^(-2j/D)."""
    if torch.get_default_device().type == "meta":  # where to compute takes a second, since it imports a compiler
        return torch.empty(length, head_dim // 2, 2)
    theta = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = torch.outer(torch.arange(length, dtype=torch.float64), theta)
    return torch.stack((angles.cos(), angles.sin()), dim=-1).float()


def rotate(x: Tensor, angles: Tensor, layout: str) -> Tensor:
    """Rotary positions on x [B, S, H, D], in fp32. A pair is (2j, 2j+1) interleaved, (j, j + D/2) half-split."""
    angles = angles[: x.shape[1], None]
    if layout == "interleaved":
        pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * torch.view_as_complex(angles)).flatten(-2)
    # (a cos - b sin, b cos + a sin): with the halves changed over, two products in all
    cos, sin = angles.unbind(-1)
    cos, sin = torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
    x = x.float()
    return x * cos + x.roll(x.shape[-1] // 2, -1) * sin


# ---- attention -------------------------------------------------------------------------------------------------------


_HAS_FLASH = importlib.util.find_spec("flash_attn") is not None


def attention_kind(device: torch.device, dtype: torch.dtype, length: int) -> str:
    """Which causal attention runs here: 'flash' (CUDA, half precision, installed), 'bmm' or 'sdpa'.

    On a CPU in bf16 two batched matmuls around a softmax beat SDPA's kernel 2-4 times up to a few hundred tokens.
    """
    half = dtype in (torch.bfloat16, torch.float16)
    if device.type == "cuda" and half and _HAS_FLASH:
        return "flash"
    return "bmm" if device.type == "cpu" and half and length <= 512 else "sdpa"


def attention(q: Tensor, k: Tensor, v: Tensor, window: int | None = None) -> Tensor:
    """Causal softmax attention of q [B, S, H, D] over k and v [B, S, KV, D], where H / KV query heads in a row share a
    key head; with a window a position sees itself and the window - 1 before it."""
    S = q.shape[1]
    window = None if window is None or window >= S else window
    kind = attention_kind(q.device, q.dtype, S)
    if kind == "flash":
        from flash_attn import flash_attn_func

        return flash_attn_func(q, k, v, causal=True, window_size=(-1 if window is None else window - 1, 0))
    if kind == "bmm":
        if q.shape[2] != k.shape[2]:
            k, v = (t.repeat_interleave(q.shape[2] // t.shape[2], 2) for t in (k, v))
        return _bmm_attention(q, k, v, window)
    at = torch.arange(S, device=q.device)
    mask = None if window is None else sees(at, at, window)
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return sdpa(q, k, v, mask, is_causal=mask is None).transpose(1, 2)


def sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool = False) -> Tensor:
    """Torch's attention of q [B, H, Q, D] over k and v [B, KV, K, D]."""
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=is_causal, enable_gqa=q.shape[1] != k.shape[1]
    )


def sees(queries: Tensor, keys: Tensor, window: int | None) -> Tensor:
    """Whether a token at one of the positions ``queries`` [..., Q] sees one at ``keys`` [..., K]: itself and those
    before it, with a window the last few alone [..., Q, K]."""
    back = queries[..., :, None] - keys[..., None, :]
    return back >= 0 if window is None else (back >= 0) & (back < window)


def _bmm_attention(q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Tensor:
    B, S, H, D = q.shape
    q, k, v = (t.transpose(1, 2).reshape(B * H, S, D) for t in (q, k, v))
    at = torch.arange(S, device=q.device)
    mask = q.new_zeros(S, S).masked_fill(~sees(at, at, window), -math.inf)
    scores = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=1 / math.sqrt(D))
    return torch.bmm(scores.softmax(-1), v).view(B, H, S, D).transpose(1, 2)


class Attention(nn.Module):
    """Multi-head causal attention with RoPE, optional grouped queries (H heads of queries, KV of keys and values),
    biases on q and k before RoPE, QK-norm (parameter-free, after RoPE), window, value embeddings."""

    def __init__(self, cfg: ModelConfig, value_embeddings: bool = False, window: int | None = None):
        super().__init__()
        d, kv = cfg.width, cfg.key_heads * cfg.head_dim
        self.heads, self.key_heads, self.rope, self.window = cfg.heads, cfg.key_heads, cfg.rope, window
        self.qk_norm, self.qk_eps = cfg.qk_norm, cfg.qk_norm_eps or torch.finfo(torch.float32).eps
        self.q, self.k, self.v, self.out = (nn.Linear(d, rows, bias=False) for rows in (d, kv, kv, d))
        self.qk_bias = nn.Parameter(torch.zeros(cfg.heads + cfg.key_heads, cfg.head_dim)) if cfg.qk_bias else None
        self.gate = nn.Linear(GATE_CHANNELS, cfg.heads, bias=False) if value_embeddings else None

    def forward(self, x: Tensor, angles: Tensor, values: Tensor | None = None) -> Tensor:
        return linear(self._attended(x, angles, values).flatten(-2), self.out.weight)

    @door.served_by(door.attention)
    def _attended(self, x: Tensor, angles: Tensor, values: Tensor | None) -> Tensor:
        """What each head has found [B, S, H, D]."""
        return attention(*self.project(x, self.fused(), angles, values), self.window)

    def qkv(self, x: Tensor) -> Tensor:
        """The three projections side by side [B, S, (H + 2 KV) D]."""
        return linear(x, self.q.weight, self.k.weight, self.v.weight)

    def fused(self) -> Tensor:
        """The three projections as one matrix [(H + 2 KV) D, d]."""
        return torch.cat((self.q.weight, self.k.weight, self.v.weight))

    def project(
        self, x: Tensor, fused: Tensor, angles: Tensor, values: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """q [B, S, H, D], k and v [B, S, KV, D] of x [B, S, d], whose positions have ``angles`` [S, D/2, 2] or
        more."""
        # one matmul, one rotation and one norm for all: small models are bound by the number of operations
        H, KV = self.heads, self.key_heads
        qk, v = linear(x, fused).unflatten(-1, (H + 2 * KV, -1)).split((H + KV, KV), dim=-2)
        more = self.gated(x, values)
        v = v if more is None else v + more
        if self.qk_bias is not None:
            qk = qk + self.qk_bias.to(qk.dtype)
        qk = rotate(qk, angles, self.rope)
        if self.qk_norm:
            qk = F.rms_norm(qk, qk.shape[-1:], eps=self.qk_eps)
        return *qk.to(v.dtype).split((H, KV), dim=-2), v

    def gated(self, x: Tensor, values: Tensor | None) -> Tensor | None:
        """What value embeddings [B, S, d] add to v [B, S, H, D]: 2 sigmoid(W x[:32]) of them, one gate a head (001's
        code)."""
        if self.gate is None:
            return None
        assert values is not None
        gate = 2 * torch.sigmoid(linear(x[..., :GATE_CHANNELS], self.gate.weight))
        return gate[..., None] * values.to(gate.dtype).unflatten(-1, (self.heads, -1))


#: (attention layer, its input [B, S, d], value embeddings) -> its branch [B, S, d]
Attend = Callable[[Attention, Tensor, Tensor | None], Tensor]


class MLP(nn.Module):
    """SwiGLU, relu(x)^2, or half of the latter (001's code)."""

    def __init__(self, cfg: ModelConfig):
        super().__init__()
        self.kind = cfg.mlp
        self.up = nn.Linear(cfg.width, cfg.mlp_width, bias=False)
        self.gate = nn.Linear(cfg.width, cfg.mlp_width, bias=False) if cfg.mlp == "swiglu" else None
        self.down = nn.Linear(cfg.mlp_width, cfg.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        up = linear(x, self.up.weight)
        hidden = relu2(up) if self.gate is None else swiglu(linear(x, self.gate.weight), up)
        out = linear(hidden, self.down.weight)
        return 0.5 * out if self.kind == "half-relu2" else out


class MoE(nn.Module):
    """Token-choice mixture of experts: y = sum over the k likeliest i of p_i(x) FFN_i(x), p the softmax over those k,
    and FFN_i a SwiGLU of width mlp_width / k (004, Sec. "Sparse Mixture-of-Experts").

    Tokens are grouped by expert, so that the matmuls grow with k and not with E.
    """

    def __init__(self, cfg: ModelConfig):
        super().__init__()
        E, F_expert, d = cfg.experts, cfg.mlp_width // cfg.active_experts, cfg.width
        self.k = cfg.active_experts
        self.router = nn.Linear(d, E, bias=False)
        self.gate, self.up = (nn.Parameter(torch.empty(E, F_expert, d)) for _ in range(2))
        self.down = nn.Parameter(torch.empty(E, d, F_expert))

    def forward(self, x: Tensor) -> tuple[Tensor, Routing]:
        E, k = len(self.up), self.k
        logits = F.linear(x.float(), self.router.weight)  # [B, S, E], the choice in fp32
        top, chosen = logits.topk(k, dim=-1)
        taken = F.one_hot(chosen.flatten(), E)  # [T k, E], of each of the k copies of a token
        y = self._experts(x.flatten(0, 1).repeat_interleave(k, 0), chosen.flatten(), taken.cumsum(0))
        y = (top.softmax(-1).to(y.dtype)[..., None] * y.view(*chosen.shape, -1)).sum(-2)
        share = taken.sum(0).to(logits.dtype) / (len(taken) / k)
        return y, Routing(chosen, share, logits.softmax(-1).mean((0, 1)), logits.logsumexp(-1).square().mean())

    def _experts(self, x: Tensor, taken: Tensor, so_far: Tensor) -> Tensor:
        """FFN_i of each row of x [n, d], i = ``taken`` [n]; ``so_far`` [n, E] counts who took which, up to this row."""
        n, E = so_far.shape
        rank = so_far.gather(1, taken[:, None])[:, 0] - 1  # among the rows of the same expert
        counts = so_far[-1].tolist()
        weights = [w.to(x.dtype) for w in (self.gate, self.up, self.down)]
        C = max(counts)
        if 2 * n >= E * C:  # one product for all, padded to the fullest expert: few large calls beat many small ones
            slots = taken * C + rank
            y = expert(x.new_zeros(E * C, x.shape[1]).index_copy(0, slots, x).view(E, C, -1), *weights).flatten(0, 1)
        else:  # a few rows, or a router that has collapsed: nothing is computed, nor a weight read, for nobody
            slots = (so_far[-1].cumsum(0) - so_far[-1])[taken] + rank
            runs = torch.empty_like(x).index_copy(0, slots, x).split(counts)
            y = torch.cat(list(map(expert, runs, *(w.unbind() for w in weights))))
        return Pick.apply(y, slots)  # type: ignore[no-untyped-call]


def expert(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """SwiGLU of x [..., d]."""
    return swiglu(x @ gate.mT, x @ up.mT) @ down.mT


class Pick(torch.autograd.Function):
    """x[rows], no row twice; the gradient is put back instead of added up row by row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.length = len(x)
        return x.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        return grad.new_zeros(ctx.length, grad.shape[1]).index_copy_(0, rows, grad), None


@door.served_by(functools.partial(door.activation, "relu2"))
def relu2(x: Tensor) -> Tensor:
    return F.relu(x).square()


@door.served_by(functools.partial(door.activation, "swiglu"))
def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


class Block(nn.Module):
    """Attention and MLP (or MoE) around a residual stream x [B, S, d], a the residual multiplier.

    pre-norm:  x = x + a f(n(x)).
    sandwich:  x = n'(x + a f(n(x))), which normalises the stream itself (001's "residual norm", after Huginn).
    post-norm: x = n'(x + a f(x)), which 002 leaves open.
    peri-norm: x = x + a n'(f(n(x))), which normalises the branch at both ends (Ouro's sandwich).
    """

    def __init__(self, cfg: ModelConfig, layer: int = 0):
        """layer: which of the unique layers it is, for its window and its value table."""
        super().__init__()
        before = cfg.block in ("pre-norm", "sandwich", "peri-norm")
        after = cfg.block in ("sandwich", "post-norm", "peri-norm")
        looped = cfg.recur == 0 or cfg.prelude <= layer < cfg.prelude + cfg.recur
        self.a = cfg.residual_multiplier if looped else 1.0
        self.peri = cfg.block == "peri-norm"
        self.attn_norm, self.attn = norm(cfg, before), Attention(cfg, cfg.has_values(layer), cfg.window(layer))
        self.attn_post = norm(cfg, after)
        self.mlp_norm, self.mlp = norm(cfg, before), MLP(cfg) if cfg.experts == 1 else MoE(cfg)
        self.mlp_post = norm(cfg, after)

    def forward(
        self, x: Tensor, angles: Tensor, dtype: torch.dtype, values: Tensor | None = None, attend: Attend | None = None
    ) -> tuple[Tensor, Routing | None]:
        """``attend``, if given, takes the place of causal attention over x itself: a decoder's, over its cache."""
        x = self._attend(x, angles, dtype, values, attend)
        if isinstance(self.mlp, MoE):
            y, routing = self.mlp(self.mlp_norm(x, dtype))
            return self._add(x, y, self.mlp_post), routing
        return self._feed_forward(x, dtype), None

    @door.served_by(door.attention_branch)
    def _attend(
        self, x: Tensor, angles: Tensor, dtype: torch.dtype, values: Tensor | None, attend: Attend | None
    ) -> Tensor:
        normed = self.attn_norm(x, dtype)
        branch = self.attn(normed, angles, values) if attend is None else attend(self.attn, normed, values)
        return self._add(x, branch, self.attn_post)

    @door.served_by(door.mlp_branch)
    def _feed_forward(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return self._add(x, self.mlp(self.mlp_norm(x, dtype)), self.mlp_post)

    def _add(self, x: Tensor, branch: Tensor, post: RMSNorm) -> Tensor:
        if self.peri:
            branch = post(branch, x.dtype)
        x = x + branch if self.a == 1 else x + self.a * branch
        return x if self.peri else post(x)
