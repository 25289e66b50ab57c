"""From the head's input to logits and losses, without all logits at once. N tokens, d width, V vocabulary."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lib.kernels import door

HEAD_CHUNK = 4096  # tokens whose logits exist at once
#: (logits, targets, c, n) -> (losses, gradient), as ``losses_and_gradient``
LossesAndGradient = Callable[[Tensor, Tensor, float, int | None], tuple[Tensor, Tensor | None]]


def softcap(logits: Tensor, c: float) -> Tensor:
    """c tanh(z / c); the logits themselves where c is 0."""
    return c * torch.tanh(logits / c) if c else logits


@door.served_by(door.matmul)
def matmul(A: Tensor, B: Tensor) -> Tensor:
    """A B, where no gradient is asked for."""
    return A @ B


class HeadLoss(torch.autograd.Function):
    """Mean cross-entropy of softcap(x W^T) against targets, with the gradients computed chunk by chunk in the forward
    pass.

    x [N, d], W [V, d], targets [N], c the softcap; of_chunk makes losses and gradient of a chunk's logits. No more than
    HEAD_CHUNK x V logits ever exist.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, targets: Tensor, c: float, of_chunk: LossesAndGradient) -> Tensor:
        w = weight.to(x.dtype)
        needs_grad = x.requires_grad or weight.requires_grad
        grad_x = torch.empty_like(x if needs_grad else x[:0])
        grad_w = torch.zeros_like(weight if needs_grad else weight[:0])
        total = x.new_zeros((), dtype=torch.float32)
        for start in range(0, len(x), HEAD_CHUNK):
            part, target = x[start : start + HEAD_CHUNK], targets[start : start + HEAD_CHUNK]
            losses, g = of_chunk(matmul(part, w.T), target, c, len(x) if needs_grad else None)
            total += losses.sum()
            if g is not None:
                grad_x[start : start + HEAD_CHUNK] = matmul(g, w)
                grad_w += matmul(g.T, part)
        ctx.save_for_backward(grad_x, grad_w)
        return total / len(x)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        grad_x, grad_w = ctx.saved_tensors
        return grad_x * grad_output, grad_w * grad_output, None, None, None


@door.served_by(door.losses_and_gradient)
def losses_and_gradient(logits: Tensor, targets: Tensor, c: float, n: int | None) -> tuple[Tensor, Tensor | None]:
    """Cross-entropies [N] of softcap(logits [N, V]), and unless ``n`` is None their gradient over n; logits are used
    up."""
    z, target = softcap(logits.float(), c), targets[:, None]
    log_p = torch.log_softmax(z, dim=-1)
    losses = -log_p.gather(1, target)[:, 0]
    if n is None:
        return losses, None
    # d loss / d logits = (p - onehot) / n, through the cap times 1 - tanh^2
    g = log_p.exp_()
    g.scatter_add_(1, target, torch.full_like(target, -1, dtype=g.dtype))
    if c:
        g *= z.div_(c).square_().neg_().add_(1)
    return losses, g.div_(n).to(logits.dtype)


def fused(logits: Tensor, targets: Tensor, c: float, n: int | None) -> tuple[Tensor, Tensor | None]:
    """``losses_and_gradient`` as torch's compiler likes it: nothing in place, so that all of it is one pass or two."""
    z, target = softcap(logits.float(), c), targets[:, None]
    log_sum = z.logsumexp(-1, keepdim=True)
    losses = (log_sum - z.gather(1, target))[:, 0]
    if n is None:
        return losses, None
    right = torch.arange(z.shape[1], device=z.device) == target
    g = ((z - log_sum).exp() - right.float()) / n
    return losses, (g * (1 - (z / c).square()) if c else g).to(logits.dtype)


@torch.no_grad()
def cross_entropies(x: Tensor, weight: Tensor, targets: Tensor, c: float) -> Tensor:
    """Cross-entropy of every target in nats [N], of x [N, d] and W [V, d] under softcap c."""
    w = weight.to(x.dtype)
    parts = zip(x.split(HEAD_CHUNK), targets.split(HEAD_CHUNK), strict=True)
    return torch.cat([losses_and_gradient(matmul(part, w.T), target, c, None)[0] for part, target in parts])
