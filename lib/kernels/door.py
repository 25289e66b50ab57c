"""Where the C kernels take the place of plain PyTorch, and how.

At widths up to some hundreds a step is bound by the number of operations, not by its matrix products, and in C each of
these is one. The plain function of model or optimiser stands in its own place and says what is computed; the one here
computes the same, in another order of sums, or does not serve. None does where there is no C compiler, on a GPU, with
several threads, for a few rows, and inside what ``torch.compile`` compiles.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from lib.kernels import functions

FEW = 64  # rows below which a call costs more than it gains
MANY_OF_A_DECODER = 256  # tokens above which each one's attention by itself costs more than it gains

Plain = TypeVar("Plain", bound=Callable[..., Any])


def served_by(twin: Callable[..., Any]) -> Callable[[Plain], Plain]:
    """Has a plain function's work done by its ``twin`` where that serves: a function of what the plain one is given,
    whose result is NotImplemented where it does not."""

    def decorate(plain: Plain) -> Plain:
        @functools.wraps(plain)
        def either(*given: Any, **named: Any) -> Any:
            if torch.compiler.is_compiling():  # first, so that nothing below guards what is compiled
                return plain(*given, **named)
            found = twin(*given, **named)
            return plain(*given, **named) if found is NotImplemented else found

        return cast(Plain, either)

    return decorate


def serve(x: Tensor, *others: Tensor | None, few: int | None = None) -> bool:
    """Whether these tensors are computed with in C: many rows of fp32 or bf16 numbers, all of one dtype, in the main
    memory of a machine that can compile, by one thread."""
    return (
        x.dtype in functions.FORMATS
        and x.device.type == "cpu"
        and all(other is None or (other.dtype == x.dtype and other.device == x.device) for other in others)
        and x.numel() >= (few or FEW) * x.shape[-1]
        and torch.get_num_threads() == 1
        and functions.library(x.dtype) is not None
    )


# ---- of a model ------------------------------------------------------------------------------------------------------


def linear(x: Tensor, *weights: Tensor) -> Any:
    serves = x.dtype == torch.float32 and serve(x, *weights)
    return functions.Linear.apply(x, *weights) if serves else NotImplemented  # type: ignore[no-untyped-call]


def matmul(A: Tensor, B: Tensor) -> Any:
    if A.dtype != torch.float32 or not serve(A, B):
        return NotImplemented
    C = A.new_empty(len(A), B.shape[1])
    functions.product(A, B, C)
    return C


def norm(module: Any, x: Tensor, dtype: torch.dtype | None = None) -> Any:
    dtype = dtype or x.dtype
    serves = x.dtype == torch.float32 and serve(x, module.weight) and functions.library(dtype)
    return functions.Norm.apply(x, module.weight, module.eps, dtype) if serves else NotImplemented  # type: ignore[no-untyped-call]


def activation(name: str, *inputs: Tensor) -> Any:
    return functions.Activation.apply(name, *inputs) if serve(*inputs) else NotImplemented  # type: ignore[no-untyped-call]


def attention(module: Any, x: Tensor, angles: Tensor, values: Tensor | None) -> Any:
    if not (_is_known(module) and serve(x)):
        return NotImplemented
    qkv = module.qkv(x).unflatten(-1, (3 * module.heads, -1))
    return functions.Attention.apply(  # type: ignore[no-untyped-call]
        qkv, module.gated(x, values), angles[: x.shape[1]], *_how(module)
    )


def attention_to_choices(layout: Any, module: Any, x: Tensor, values: Tensor | None) -> Any:
    if not (_is_known(module) and serve(x, module.q.weight if x.dtype == torch.float32 else None)):
        return NotImplemented
    qkv, more = module.qkv(x), module.gated(x, values)
    heads = (*layout.shape, -1, qkv.shape[-1] // (3 * module.heads))
    return functions.attention_to_choices(
        qkv.view(heads),
        None if more is None else more.view(heads),
        layout.angles.view(*layout.shape, *layout.angles.shape[1:]),
        layout.positions,
        layout.own,
        layout.prefix,
        *_how(module),
    )


def attention_branch(
    block: Any, x: Tensor, angles: Tensor, dtype: torch.dtype, values: Tensor | None, attend: object
) -> Any:
    at, norm = block.attn, block.attn_norm
    if attend is not None or at.gate is not None or block.peri or not _is_known(at):
        return NotImplemented
    weights = (norm.weight, at.q.weight, at.k.weight, at.v.weight, at.out.weight)
    if not _is_one_operation(x, dtype, weights, norm, at):
        return NotImplemented
    given = (*weights, angles[: x.shape[1]], norm.eps, block.a, (at.heads, *_how(at)))
    return block.attn_post(functions.AttentionBranch.apply(x, *given))  # type: ignore[no-untyped-call]


def mlp_branch(block: Any, x: Tensor, dtype: torch.dtype) -> Any:
    mlp, norm = block.mlp, block.mlp_norm
    weights = (norm.weight, mlp.up.weight, None if mlp.gate is None else mlp.gate.weight, mlp.down.weight)
    if block.peri or not _is_one_operation(x, dtype, weights, norm, mlp):
        return NotImplemented
    a = block.a * (0.5 if mlp.kind == "half-relu2" else 1)
    return block.mlp_post(functions.MLPBranch.apply(x, *weights, norm.eps, a))  # type: ignore[no-untyped-call]


def attention_over_cache(decoder: Any, layer: int, module: Any, x: Tensor, values: Tensor | None) -> Any:
    cache, weights = decoder.cache[layer], (decoder.fused[layer], module.out.weight)
    usual = x.dtype == torch.float32 and x.shape[1] <= MANY_OF_A_DECODER and cache.shape[-1] % functions.MULTIPLE == 0
    if not (usual and serve(x, cache, *weights, values, few=1)):
        return NotImplemented
    if layer not in decoder.served:
        more = module.qk_bias, getattr(module.gate, "weight", None), decoder.model.angles
        decoder.served[layer] = functions.AttentionOverCache((*weights, *more, cache), _how(module))
    return decoder.served[layer](x, values, decoder.facing)


def losses_and_gradient(logits: Tensor, targets: Tensor, c: float, n: int | None) -> Any:
    if not serve(logits):
        return NotImplemented
    return functions.cross_entropies(logits, targets, c, n), None if n is None else logits


def _is_known(attention: Any) -> bool:
    """Whether ``kernels.c`` has this attention: a key head for each head, and no biases."""
    return attention.key_heads == attention.heads and attention.qk_bias is None


def _how(attention: Any) -> tuple[str, float | None, int | None]:
    return attention.rope, attention.qk_eps if attention.qk_norm else None, attention.window


def _is_one_operation(x: Tensor, dtype: torch.dtype, weights: Sequence[Tensor | None], *parts: nn.Module) -> bool:
    """Whether a branch with these weights and parts is computed as a whole: in fp32, and nobody listens inside."""
    heard = any(
        part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks
        for part in parts
    )
    return x.dtype == dtype == torch.float32 and not heard and serve(x, *weights, few=1)


# ---- of an optimiser -------------------------------------------------------------------------------------------------


def total_norm(gradients: Sequence[Tensor]) -> Any:
    return torch.tensor(functions.total_norm(gradients)) if serve(*gradients) else NotImplemented


def orthogonalize(x: Tensor, steps: Sequence[Sequence[float]], room: float) -> Any:
    return functions.orthogonalize(x, torch.tensor(steps), room) if serve(x) else NotImplemented


def muon(optimizer: Any, stack: Any, lr: Tensor, beta: float, decay: float) -> Any:
    if optimizer.ranks.size > 1 or not serve(stack.momentum, *stack.parameters):
        return NotImplemented
    steps, room = optimizer.quintic
    functions.muon(
        [parameter.grad for parameter in stack.parameters],
        stack.parameters,
        stack.momentum,
        stack.variance if optimizer.cfg.muon_variance_reduction else None,
        lr,
        stack.norm,
        beta=beta,
        beta2=optimizer.beta2,
        decay=decay,
        cautious=optimizer.cfg.muon_cautious,
        abc=torch.tensor(steps),
        room=room,
    )
    return None
