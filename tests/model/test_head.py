"""The chunked head gives the loss and the gradients of cross-entropy over all logits at once."""

import pytest
import torch
import torch.nn.functional as F

from lib.model.head import HeadLoss, cross_entropies, fused, losses_and_gradient, softcap


def compiled(*arguments):
    return torch.compile(fused, backend="aot_eager")(*arguments)


@pytest.mark.parametrize("of_chunk", [losses_and_gradient, fused, pytest.param(compiled, marks=pytest.mark.long)])
@pytest.mark.parametrize("c", [0.0, 2.5])
def test_chunked_head_equals_cross_entropy(monkeypatch, c, of_chunk):
    monkeypatch.setattr("lib.model.head.HEAD_CHUNK", 10)
    x = torch.randn(33, 16, dtype=torch.float64, requires_grad=True)
    w = torch.randn(50, 16, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(50, (33,))
    ours = HeadLoss.apply(x, w, targets, c, of_chunk)
    expected = F.cross_entropy(softcap(x @ w.T, c), targets)
    torch.testing.assert_close(ours.double(), expected, rtol=1e-6, atol=1e-6)
    each = F.cross_entropy(softcap(x @ w.T, c), targets, reduction="none")
    torch.testing.assert_close(cross_entropies(x, w, targets, c).double(), each, rtol=1e-6, atol=1e-6)
    grads = torch.autograd.grad(3 * ours, (x, w))
    for ours_, theirs in zip(grads, torch.autograd.grad(3 * expected, (x, w)), strict=True):
        torch.testing.assert_close(ours_, theirs, rtol=1e-5, atol=1e-6)


def test_no_gradient_is_made_where_none_is_asked_for():
    logits, targets = torch.randn(5, 7), torch.randint(7, (5,))
    for of_chunk in (losses_and_gradient, fused):
        losses, gradient = of_chunk(logits.clone(), targets, 0.0, None)
        torch.testing.assert_close(losses, F.cross_entropy(logits, targets, reduction="none"))
        assert gradient is None
