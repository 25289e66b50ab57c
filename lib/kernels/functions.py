"""``kernels.c``, compiled for this machine where that has not been done yet, and its functions for tensors: products,
norms, activations, attention, whole residual branches, the head's losses and Muon's update. Each is one operation for
autograd; ``door`` says when they serve."""

import ctypes
import functools
import hashlib
import os
import subprocess
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from lib.base import files
from lib.base.errors import InputError
from lib.base.machine import compiler

SOURCE = Path(__file__).with_name("kernels.c")
#: nothing here lets the compiler assume that there is no nan, or reorder sums that are not marked
FLAGS = [
    *("-O3", "-std=gnu11", "-shared", "-fPIC", "-w", "-fopenmp-simd"),
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
]
#: the machine's own instructions, or what every machine of its kind has
NATIVE: tuple[list[str], ...] = (["-march=native", "-mprefer-vector-width=512"], ["-mcpu=native"], [])
FORMATS = {torch.float32: [], torch.bfloat16: ["-DBF16"]}

_P, _N, _F, _I = ctypes.c_void_p, ctypes.c_long, ctypes.c_float, ctypes.c_int  # pointers, sizes, numbers, whether
ARGUMENTS = {
    "matmul": (_P, _N, _N, _P, _N, _N, _P, _N, _N, _N, _N, _I),
    "norm": (_P, _P, _P, _P, _N, _N, _F),
    "norm_backward": (_P, _P, _P, _P, _P, _P, _N, _N),
    "relu2": (_P, _P, _N),
    "relu2_backward": (_P, _P, _P, _N),
    "swiglu": (_P, _P, _P, _N),
    "swiglu_backward": (_P, _P, _P, _P, _P, _N),
    "cross_entropy": (_P, _P, _P, _N, _N, _F, _F, _I),
    "attention": (_P, _P, _P, _P, _P, _P),
    "attention_to_choices": (_P, _P, _P, _P, _P, _P, _P, _P),
    "attention_backward": (_P, _P, _P, _P, _P, _P, _P, _P),
}
#: and of those in fp32 alone
ARGUMENTS_FP32 = {
    "orthogonalize": (_P, _N, _N, _N, _P, _N, _F),
    "muon": (*(_P,) * 6, _N, _N, _N, _P),
    "total_norm": (_P, _P, _N, _P),
    "attention_branch": (*(_P,) * 12, _F, _F, _P),
    "attention_branch_backward": (*(_P,) * 18, _F, _P),
    "mlp_branch": (*(_P,) * 9, _N, _N, _N, _F, _F),
    "mlp_branch_backward": (*(_P,) * 14, _N, _N, _N, _F),
    "attention_over_cache": (*(_P,) * 4, _N, *(_P,) * 6, _N, _N, _P),
}
MULTIPLE = 16  # of which a head's channels are one, in ``AttentionOverCache``


@functools.cache
def library(dtype: torch.dtype) -> ctypes.CDLL | None:
    """The functions for activations of ``dtype``, compiled where this machine has not done so yet; None, and a warning,
    where it cannot."""
    if dtype not in FORMATS:
        return None
    problem = "there is none"
    for native in NATIVE if compiler() else ():
        try:
            found = _loaded([compiler(), *FLAGS, *native, *FORMATS[dtype]])
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or str(error).encode()
            problem = said.decode(errors="replace").strip().rpartition("\n")[2]
            continue
        for name, types in (ARGUMENTS | (ARGUMENTS_FP32 if dtype == torch.float32 else {})).items():
            function = getattr(found, name)
            function.argtypes, function.restype = types, None
        return found
    warnings.warn(
        f"no C compiler works here ({problem}): small models train at half the speed, install gcc", stacklevel=2
    )
    return None


def _loaded(command: list[str]) -> ctypes.CDLL:
    """What ``command`` makes of the source, kept in the user's cache under a name that says all that decides it; used
    and forgotten where that cannot be written."""
    # what the compiler says of itself and of the processor
    given = subprocess.run([*command, "-dM", "-E", "-x", "c", os.devnull], capture_output=True, check=True).stdout
    decides = [SOURCE.read_bytes(), given, *(word.encode() for word in command)]
    name = "kernels-" + hashlib.sha256(b"\0".join(decides)).hexdigest()[:16] + ".so"
    try:
        return ctypes.CDLL(str(_kept(Path.home() / ".cache" / "looped-lm" / name, command)))
    except (OSError, InputError, RuntimeError, subprocess.SubprocessError):  # no home, or one that is full or another's
        with tempfile.TemporaryDirectory(prefix="looped-lm-") as folder:
            return ctypes.CDLL(str(_kept(Path(folder) / name, command)))


def _kept(path: Path, command: list[str]) -> Path:
    """``path``, made by one process at a time where it is not there."""
    if not path.exists():
        files.need_folder(path.parent)
        with files.lock(path.with_suffix(".lock")):
            if not path.exists():
                with files.replacing(path) as draft:
                    subprocess.run([*command, str(SOURCE), "-o", str(draft), "-lm"], capture_output=True, check=True)
    return path


def call(dtype: torch.dtype, name: str, *arguments: Any) -> None:
    """A function of the library; tensors go as pointers, and must be contiguous."""
    getattr(library(dtype), name)(*(x.data_ptr() if isinstance(x, Tensor) else x for x in arguments))


# ---- for tensors -----------------------------------------------------------------------------------------------------


class Shape(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_long) for name in ("B", "S", "H", "D")),
        ("half_split", ctypes.c_int),
        ("qk_norm", ctypes.c_int),
        ("eps", ctypes.c_float),
        ("window", ctypes.c_long),
    )


def _shape(B: int, S: int, H: int, D: int, rope: str, eps: float | None, window: int | None) -> Shape:
    return Shape(B, S, H, D, rope == "half-split", eps is not None, eps or 0.0, min(window or S, S))


class How(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_float) for name in ("beta", "beta2", "decay")),
        ("cautious", ctypes.c_int),
        ("abc", ctypes.c_void_p),
        ("steps", ctypes.c_long),
        ("room", ctypes.c_float),
    )


_at = ctypes.byref


def _of(angles: Tensor, S: int, D: int) -> Tensor:
    assert angles.shape == (S, D // 2, 2), f"angles of {tuple(angles.shape)} for {S} positions of {D} channels"
    return angles.float().contiguous()


class Norm(Function):
    """x / rms(x), fp32 [..., d], times a gain [d] if there is one; the result in ``dtype``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor | None, eps: float, dtype: torch.dtype) -> Tensor:
        (x, gain), d = _contiguous(x, gain), x.shape[-1]
        rows = x.numel() // d
        y, r = torch.empty_like(x, dtype=dtype), x.new_empty(rows)
        call(dtype, "norm", x, gain, y, r, rows, d, eps)
        ctx.save_for_backward(x, gain, r)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, gain, r = ctx.saved_tensors
        gradients = _gradients(x, gain)
        call(grad.dtype, "norm_backward", grad.contiguous(), x, gain, r, *gradients, len(r), x.shape[-1])
        return *gradients, None, None


def product(A: Tensor, B: Tensor, C: Tensor, add: bool = False) -> None:
    """C [M, N] = A [M, K] B [K, N] in fp32, or that added to it; A and B may be transposed, and C some columns of a
    wider matrix."""
    assert 1 in B.stride() and C.stride(1) == 1
    call(torch.float32, "matmul", A, *A.stride(), B, *B.stride(), C, C.stride(0), *C.shape, A.shape[1], add)


def _rows(x: Tensor) -> Tensor:
    return x.view(-1, x.shape[-1])


class Linear(Function):
    """x W^T in fp32, for each W [m, d] of ``weights``, side by side: x [..., d] -> [..., the sum of m]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *weights: Tensor) -> Tensor:
        x, weights = x.contiguous(), tuple(W.contiguous() for W in weights)
        ctx.widths = [len(W) for W in weights]
        y = x.new_empty(*x.shape[:-1], sum(ctx.widths))
        for W, part in zip(weights, _rows(y).split(ctx.widths, -1), strict=True):
            product(_rows(x), W.T, part)
        ctx.save_for_backward(x, *weights)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        parts = _rows(grad.contiguous()).split(ctx.widths, -1)
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        dW = [torch.empty_like(W) for W in weights]
        for i, (W, part) in enumerate(zip(weights, parts, strict=True)):
            if dx is not None:
                product(part, W, _rows(dx), add=i > 0)
            product(part.T, _rows(x), dW[i])
        return dx, *dW


class Activation(Function):
    """An activation by its name: relu2 of x, or swiglu of gate and up."""

    @staticmethod
    def forward(ctx: Any, name: str, *inputs: Tensor) -> Tensor:
        inputs, ctx.name = tuple(x.contiguous() for x in inputs), name
        y = torch.empty_like(inputs[-1])
        call(y.dtype, name, *inputs, y, y.numel())
        ctx.save_for_backward(*inputs)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors
        gradients = [torch.empty_like(x) for x in inputs]
        call(grad.dtype, f"{ctx.name}_backward", grad.contiguous(), *inputs, *gradients, grad.numel())
        return None, *gradients


class Attention(Function):
    """Causal attention [B, S, H, D] of qkv [B, S, 3 H, D]: q and k rotated by ``angles`` [S, D/2, 2] and normed where
    ``eps`` is given, and ``more`` [B, S, H, D] added to v where there is some."""

    @staticmethod
    def forward(
        ctx: Any, qkv: Tensor, more: Tensor | None, angles: Tensor, rope: str, eps: float | None, window: int | None
    ) -> Tensor:
        B, S, H, D = *qkv.shape[:2], qkv.shape[2] // 3, qkv.shape[3]
        (qkv, more), angles = _contiguous(qkv, more), _of(angles, S, D)
        ctx.shape = _shape(B, S, H, D, rope, eps, window)
        out, sums = qkv.new_empty(B, S, H, D), torch.empty(B, H, S, dtype=torch.float32)
        call(qkv.dtype, "attention", qkv, more, angles, out, sums, _at(ctx.shape))
        ctx.save_for_backward(qkv, more, angles, out, sums)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None, None, None]:
        qkv, more, angles, out, sums = ctx.saved_tensors
        dqkv, shape = torch.empty_like(qkv), _at(ctx.shape)
        call(grad.dtype, "attention_backward", grad.contiguous(), qkv, more, angles, out, sums, dqkv, shape)
        return dqkv, None if more is None else dqkv[:, :, -out.shape[2] :], None, None, None, None


def attention_to_choices(
    qkv: Tensor,
    more: Tensor | None,
    angles: Tensor,
    position: Tensor,
    own: Tensor,
    prefix: Tensor,
    rope: str,
    eps: float | None,
    window: int | None,
) -> Tensor:
    """``Attention`` without gradients, in rows of a prefix and several choices of how it goes on: a token sees what
    stands before it in the prefix [B], whose length is given, and in its own choice, which begins at ``own`` [B, S]. A
    token's ``angles`` [B, S, D/2, 2] and its distance in a window are those of its ``position`` [B, S]."""
    B, S, H, D = *qkv.shape[:2], qkv.shape[2] // 3, qkv.shape[3]
    assert angles.shape == (B, S, D // 2, 2) and position.shape == own.shape == (B, S) and prefix.shape == (B,)
    out, shape = qkv.new_empty(B, S, H, D), _shape(B, S, H, D, rope, eps, window)
    given = _contiguous(qkv, more, angles.float(), position.int(), own.int(), prefix.long())
    call(qkv.dtype, "attention_to_choices", *given, out, _at(shape))
    return out


class AttentionBranch(Function):
    """x + a f(n(x)) in fp32, x [B, S, d], f causal attention as in ``Attention`` between its projections; n is a norm
    of ``norm_eps`` with its gain, if there is one, or nothing."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gain: Tensor | None,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        out: Tensor,
        angles: Tensor,
        norm_eps: float | None,
        a: float,
        how: tuple[int, str, float | None, int | None],
    ) -> Tensor:
        x, (B, S, d), (heads, rope, eps, window) = x.contiguous(), x.shape, how
        gain, q, k, v, out = _contiguous(gain, q, k, v, out)
        angles = _of(angles, S, d // heads)
        ctx.a, ctx.shape = a, _shape(B, S, heads, d // heads, rope, eps, window)
        r = None if norm_eps is None else x.new_empty(B, S)  # 1 / rms(x)
        qkv, o, y, lse = x.new_empty(B, S, 3 * d), torch.empty_like(x), torch.empty_like(x), x.new_empty(B, heads, S)
        kept = (r, qkv, o, lse)
        call(x.dtype, "attention_branch", x, gain, q, k, v, out, angles, *kept, y, norm_eps or 0, a, _at(ctx.shape))
        ctx.save_for_backward(x, gain, q, k, v, out, angles, *kept)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        kept = ctx.saved_tensors
        gradients = _gradients(*kept[:6])
        call(grad.dtype, "attention_branch_backward", grad.contiguous(), *kept, *gradients, ctx.a, _at(ctx.shape))
        return *gradients, None, None, None, None


class AttentionOverCache:
    """Attention of a decoder's tokens between its projections, in fp32 and without gradients. What stays the same is
    ``given``: W [(H + 2 KV) D, d] of q, k and v, that of the output, the bias of q and k and the gate, if there are
    some, the angles of all positions, and one layer's cache [slots, B, P, 2, KV, D]."""

    def __init__(self, given: Sequence[Tensor | None], how: tuple[str, float | None, int | None]):
        W, out, bias, gate, angles, cache = cast(Any, given)
        (_, B, P, _, KV, D), (d, inner) = cache.shape, out.shape
        kept = _panels(W), _panels(out), *_contiguous(bias, gate, angles.float()), cache
        self.given = *kept, d, KV, _at(_shape(B, P, inner // D, D, *how))

    def __call__(self, x: Tensor, values: Tensor | None, at: Any) -> Tensor:
        """Of x [1, n, d], tokens at rows, positions and slots of the cache, int64 [3, n], with value embeddings
        [1, n, d] if there are some."""
        x, values = _contiguous(x, values)
        y = torch.empty_like(x)
        call(torch.float32, "attention_over_cache", x, values, at.ctypes.data, y, x.shape[1], *self.given)
        return y


def _panels(W: Tensor) -> Tensor:
    """W [m, d] as panels of 32 rows, turned, the last one filled up with zeros."""
    return torch.nn.functional.pad(W, (0, 0, 0, -len(W) % 32)).view(-1, 32, W.shape[1]).mT.contiguous()


class MLPBranch(Function):
    """x + a f(n(x)) in fp32, x [B, S, d]: f down(relu(up x)^2), or with a gate down(silu(gate x) up x); n as in
    ``AttentionBranch``."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gain: Tensor | None,
        up: Tensor,
        gate: Tensor | None,
        down: Tensor,
        norm_eps: float | None,
        a: float,
    ) -> Tensor:
        x, (F, d), ctx.a = x.contiguous(), up.shape, a
        gain, up, gate, down = _contiguous(gain, up, gate, down)
        rows = x.numel() // d
        r = None if norm_eps is None else x.new_empty(rows)
        u, z = x.new_empty(rows, F), None if gate is None else x.new_empty(rows, F)
        y, kept = torch.empty_like(x), (r, u, z)
        call(x.dtype, "mlp_branch", x, gain, up, gate, down, *kept, y, rows, d, F, norm_eps or 0, a)
        ctx.save_for_backward(x, gain, up, gate, down, *kept)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        kept = ctx.saved_tensors
        (F, d), gradients = kept[2].shape, _gradients(*kept[:5])
        given = (grad.contiguous(), *kept, *gradients)
        call(grad.dtype, "mlp_branch_backward", *given, grad.numel() // d, d, F, ctx.a)
        return *gradients, None, None


def _contiguous(*tensors: Tensor | None) -> list[Any]:
    return [x if x is None else x.contiguous() for x in tensors]


def _gradients(x: Tensor, gain: Tensor | None, *weights: Tensor | None) -> list[Tensor | None]:
    """Places for those of x, of a gain, to which rows are added, and of weights."""
    places = [W if W is None else torch.empty_like(W) for W in (x, *weights)]
    return [places[0], None if gain is None else torch.zeros_like(gain), *places[1:]]


def orthogonalize(matrices: Tensor, coefficients: Tensor, room: float) -> Tensor:
    """Each matrix X [..., R, C] / (room |X|_F) after the quintic steps (a, b, c) of ``coefficients`` [steps, 3], in
    fp32."""
    X = matrices.detach().clone(memory_format=torch.contiguous_format)
    R, C = X.shape[-2:]
    call(X.dtype, "orthogonalize", X, X.numel() // (R * C), R, C, coefficients, len(coefficients), room)
    return X


def muon(
    gradients: Sequence[Tensor],
    parameters: Sequence[Tensor],
    momentum: Tensor,
    variance: Tensor | None,
    lr: Tensor,
    radii: Tensor | None,
    **how: Any,
) -> None:
    """One update of all ``parameters`` [..., R, C], n matrices together, in place: ``momentum`` [n, R, C], the
    ``variance`` [n, R, 1] or [n, 1, C] where it is reduced, rates ``lr`` [n], and ``radii`` [n] where the matrices stay
    on spheres. ``how``: beta, beta2, decay, cautious, the orthogonalisation's coefficients abc [steps, 3] and room."""
    n, R, C = momentum.shape
    abc = how.pop("abc")
    given = How(abc=abc.data_ptr(), steps=len(abc), **how)
    gradients = [g.contiguous() for g in gradients]
    assert len(lr) == n and all(p.is_contiguous() for p in parameters)
    at = _pointers(gradients, R * C), _pointers(parameters, R * C)
    call(torch.float32, "muon", *at, momentum, variance, lr.contiguous(), radii, n, R, C, _at(given))


def total_norm(tensors: Sequence[Tensor]) -> float:
    """The norm of all ``tensors`` as one vector."""
    tensors = [x.contiguous() for x in tensors]
    sizes, norm = (ctypes.c_long * len(tensors))(*(x.numel() for x in tensors)), ctypes.c_double()
    call(
        torch.float32,
        "total_norm",
        (ctypes.c_void_p * len(tensors))(*(x.data_ptr() for x in tensors)),
        sizes,
        len(tensors),
        _at(norm),
    )
    return norm.value


def _pointers(tensors: Sequence[Tensor], size: int) -> Any:
    """Where each matrix of ``size`` numbers begins, in every one of the tensors."""
    places = [x.data_ptr() + 4 * start for x in tensors for start in range(0, x.numel(), size)]
    return (ctypes.c_void_p * len(places))(*places)


def cross_entropies(logits: Tensor, targets: Tensor, c: float, n: int | None) -> Tensor:
    """Cross-entropy of each target [N] in nats, of logits [N, V] under softcap c. Unless ``n`` is None the logits
    become the gradient of the sum over n."""
    N, V = logits.shape
    if N and not (targets.min() >= 0 and targets.max() < V):
        raise IndexError(f"targets from {targets.min()} to {targets.max()} are not all among {V} logits")
    losses = torch.empty(N, dtype=torch.float32)
    call(
        logits.dtype, "cross_entropy", logits, targets.long().contiguous(), losses, N, V, c, 1 / (n or 1), n is not None
    )
    return losses
