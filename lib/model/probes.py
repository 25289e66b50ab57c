"""What happens inside a looped model while it trains."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from lib.model.layers import linear
from lib.model.looped import LoopedLM, LoopEnd
from lib.model.routing import numbered


@torch.no_grad()
def state_metrics(end: LoopEnd) -> dict[str, float]:
    """state_norm |h_T| and residual |h_T - h_{T-1}| (001, App. "Common Metrics"): 2-norms of a token's state, averaged
    over the batch; and state_rms, the root mean square of all entries of h_T, which does not grow with the width."""
    h, previous = end.state.float(), end.previous.float()
    return {
        "state_norm": h.norm(dim=-1).mean().item(),
        "residual": (h - previous).norm(dim=-1).mean().item(),
        "state_rms": h.square().mean().sqrt().item(),
    }


def spectral_radius(transition: Tensor) -> float:
    """rho(A-bar), the largest modulus of an eigenvalue; of a vector, the diagonal's; of [r, K, K], the largest
    loop's."""
    values = transition if transition.ndim == 1 else torch.linalg.eigvals(transition.float().cpu())
    return values.abs().max().item()


def spectral_norm(transition: Tensor) -> float:
    """The largest singular value of A-bar, never below the radius."""
    values = transition.abs() if transition.ndim == 1 else torch.linalg.matrix_norm(transition.float().cpu(), ord=2)
    return values.max().item()


@torch.no_grad()
def spectra(model: LoopedLM) -> dict[str, float]:
    """The spectral radius rho of A-bar, and the spectral norms of A-bar, B-bar and the readout C (001, App. "Ablation
    of Prelude Normalization"); nan where weights are no longer finite, or for a C that there is not."""
    A, B = model.injection.transition(), model.injection.driving()
    C = A.new_full((1,), math.nan) if model.readout is None else model.readout.weight
    measured = {
        "rho": (spectral_radius, A),
        "a_norm": (spectral_norm, A),
        "b_norm": (spectral_norm, B),
        "c_norm": (spectral_norm, C),
    }
    return {
        name: measure(matrix) if torch.isfinite(matrix).all() else math.nan
        for name, (measure, matrix) in measured.items()
    }


@contextlib.contextmanager
def listening(modules: Sequence[nn.Module], hear: Callable[[int, Tensor, Tensor], None]) -> Iterator[None]:
    """Meanwhile ``hear(i, x, y)`` is told of each use of the i-th of ``modules``, which made y of x."""

    def hook(i: int) -> Callable[[nn.Module, tuple[Tensor, ...], Any], None]:
        return lambda _, given, made: hear(i, given[0], made[0] if isinstance(made, tuple) else made)

    with contextlib.ExitStack() as hooks:
        for i, module in enumerate(modules):
            hooks.enter_context(module.register_forward_hook(hook(i)))
        yield


@torch.no_grad()
def state_trace(model: LoopedLM, tokens: Tensor, loops: int) -> dict[str, float]:
    """Where a token's state grows: 2-norms averaged over tokens [B, S] (001, App. "Ablation of Prelude Normalization").

    ``prelude 1``, ... after each block of the prelude and ``e`` at its end; ``injection`` and ``recur 1``, ... in the
    first loop; ``loop 1``, ... after each of ``loops`` loops; and ``expansion``, |C h| / |h| of the readout at the
    last. In eval mode.
    """
    norms: dict[str, float] = {}
    parts: dict[str, nn.Module] = {f"prelude {i}": block for i, block in enumerate(model.prelude, start=1)}
    if model.prelude or model.cfg.prelude_norm:
        parts["e"] = model.prelude_norm
    parts |= {f"recur {i}": block for i, block in enumerate(model.recur, start=1)}
    names = [*parts]

    def note(name: str, x: Tensor) -> None:  # the first loop's, of a block that loops
        norms.setdefault(name, x.float().norm(dim=-1).mean().item())

    def hear(i: int, x: Tensor, y: Tensor) -> None:
        if names[i] == "recur 1":
            note("injection", x)
        note(names[i], y)

    with model.evaluating(), listening([*parts.values()], hear):
        for T, state, _ in model.states_at(tokens, range(1, loops + 1)):
            note(f"loop {T}", state)
    if model.readout is not None:
        out = linear(state, model.readout.weight).float()
        norms["expansion"] = (out.norm(dim=-1) / state.float().norm(dim=-1)).mean().item()
    return norms


def _uses(
    model: LoopedLM, modules: Sequence[nn.Module], tokens: Tensor, loops: int | None = None
) -> list[tuple[int, Tensor, Tensor]]:
    """(which of the modules, what it was given, what it made of that) for each of their uses in a pass, in order. In
    eval mode."""
    uses: list[tuple[int, Tensor, Tensor]] = []
    with model.evaluating(), listening(modules, lambda *use: uses.append(use)):
        model.hidden(tokens, loops)
    return uses


@torch.no_grad()
def hidden_states(model: LoopedLM, tokens: Tensor, loops: int | None = None) -> dict[tuple[int, int], Tensor]:
    """(unique layer, loop) -> what the layer makes of the stream there [B, S, d], in the order in which they are
    computed; layers outside the loop have loop 0, those in it 1 to ``loops``, mean_loops when None. In eval mode."""
    uses = _uses(model, model.blocks, tokens, loops)
    return {
        (layer, i + 1 if layer in model.looped_layers else 0): state
        for (layer, i), (_, _, state) in zip(numbered([layer for layer, _, _ in uses]), uses, strict=True)
    }


@torch.no_grad()
def stream(model: LoopedLM, tokens: Tensor, every: int | None = None) -> Tensor:
    """The residual stream [n + 1, B, S, d] of a model without injection: at the entry of the looped stack and after
    every ``every`` uses of one of its layers, which is every loop when None (002, Eq. 1 and 2); before a ``loop_norm``,
    if there is one. In eval mode."""
    uses, every = _uses(model, [*model.recur], tokens), every or len(model.recur)
    return torch.stack([uses[0][1].float(), *(after.float() for _, _, after in uses[every - 1 :: every])])


def increment_cosines(states: Tensor) -> Tensor:
    """Cosines [n, n] between the increments of a stream [n + 1, B, S, d], of each token, averaged over tokens (002,
    Fig. 3 and 6)."""
    increments = torch.nn.functional.normalize(states.diff(dim=0).flatten(1, 2), dim=-1)
    return torch.einsum("itd,jtd->ij", increments, increments) / increments.shape[1]


def mean_cosines(cosines: ArrayLike) -> tuple[float, float]:
    """(mean over the pairs of early and middle increments, mean over the pairs with the last one) of cosines [n, n];
    nan where there is no such pair."""
    cosines = torch.as_tensor(cosines)
    n = len(cosines)
    early = cosines[:-1, :-1][~torch.eye(n - 1, dtype=torch.bool, device=cosines.device)]
    return early.mean().item(), cosines[:-1, -1].mean().item()


@torch.no_grad()
def looped_choices(model: LoopedLM, tokens: Tensor) -> dict[tuple[int, int], Tensor]:
    """(unique layer that loops, loop) -> the experts [B, S, k] that each token took there, the likeliest first (004,
    Fig. "Expert assignment overlap"). In eval mode."""
    with model.evaluating():
        _, end = model.hidden(tokens)
    uses = [use for use in end.routing if use.layer in model.looped_layers]
    return dict(zip(numbered([use.layer for use in uses]), (use.routing.chosen for use in uses), strict=True))
