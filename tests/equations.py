"""Parts of Transformers as their papers write them, for references that share nothing with the library."""

import math

import torch
import torch.nn.functional as F


def rms(x, gain, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * gain


def rope(x, base, interleaved):
    """Rotary positions on x [B, S, H, D]; a pair is (2j, 2j + 1), or (j, j + D/2)."""
    D = x.shape[-1]
    angles = torch.outer(torch.arange(x.shape[1]), base ** (-torch.arange(0, D, 2) / D))[None, :, None]
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    turned = a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()
    return torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)


def attention(q, k, v, window=None):
    """Causal, of q [B, S, H, D] over k, v [B, S, G, D]: head i reads the keys of i // (H / G), with a window those of
    so many positions, its own among them. [B, S, H D]."""
    S, H, G, D = q.shape[1], q.shape[2], k.shape[2], q.shape[3]
    hidden = ~torch.ones(S, S).tril().triu(1 - (window or S)).bool()
    heads = []
    for i in range(H):
        g = i // (H // G)
        scores = (q[:, :, i] @ k[:, :, g].mT / math.sqrt(D)).masked_fill(hidden, -math.inf)
        heads.append(scores.softmax(-1) @ v[:, :, g])
    return torch.cat(heads, -1)


def swiglu(x, gate, up, down):
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)
