"""What happens inside a looped model while it trains."""

import torch
from torch import Tensor

from lib.model import LoopedLM, LoopEnd


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
    if transition.ndim == 1:
        return transition.abs().max().item()
    return torch.linalg.eigvals(transition.float().cpu()).abs().max().item()


def spectral_norm(transition: Tensor) -> float:
    """The largest singular value of A-bar, never below the radius."""
    if transition.ndim == 1:
        return transition.abs().max().item()
    return torch.linalg.matrix_norm(transition.float().cpu(), ord=2).max().item()


@torch.no_grad()
def transition_metrics(model: LoopedLM) -> dict[str, float]:
    """rho and norm of the injection's A-bar, nan where weights are no longer finite."""
    transition = model.injection.transition().detach()
    if not torch.isfinite(transition).all():
        return {"rho": float("nan"), "a_norm": float("nan")}
    return {"rho": spectral_radius(transition), "a_norm": spectral_norm(transition)}


@torch.no_grad()
def expert_choices(model: LoopedLM, tokens: Tensor, loops: int | None = None) -> dict[tuple[int, int], Tensor]:
    """(unique layer, loop) -> the experts [B, S, k] that each token took there, the likeliest first (004, Fig. "Expert
    assignment overlap"); layers outside the loop have loop 0. In eval mode at ``loops``, mean_loops when None."""
    was_training = model.training
    model.eval()
    _, end = model.hidden(tokens, loops)
    model.train(was_training)
    return {(use.layer, use.loop): use.routing.chosen for use in end.routing}
