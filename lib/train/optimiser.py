"""AdamW, Muon and MuonH, which parameter goes to which at what rate, and the schedule.

The settings are those of 001, Tables "Optimizer parameter group assignment" and "Hyperparameter", and of its code;
MuonH those of 000.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from lib.base.distributed import ALONE, Ranks
from lib.base.errors import InputError
from lib.config import ModelConfig, OptimConfig
from lib.kernels import door
from lib.model.looped import LoopedLM
from lib.model.parameterisation import BLOCK_MATRICES, init, multipliers, of_muon, role

#: Polar Express: five quintic steps X <- aX + (bA + cA^2) X with A = X X^T (Amsel et al., in 001)
POLAR_EXPRESS = (
    (8.1566, -22.4833, 15.8788),
    (4.0429, -2.8089, 0.50002),
    (3.8917, -2.7725, 0.50606),
    (3.2858, -2.3681, 0.46449),
    (2.3465, -1.7098, 0.42324),
)
ROOM = 1.02  # the factor on the norm that a matrix is first divided by: they want a little below 1

EARLY_MOMENTUM = 0.85  # where Muon's momentum warms up from (001's code)


def schedule(cfg: OptimConfig, steps: int, step: int) -> float:
    """The factor on every learning rate in step 0 .. steps - 1: linear warm-up, constant, and a cool-down that is
    linear or falls like 1 - sqrt(t), t the share of it that is done (WSD of 004). It would come to cfg.final in the
    step after the last."""
    up = (step + 1) / cfg.warmup_steps if cfg.warmup_steps else 1.0
    left = min(1.0, (steps - step) / cfg.cooldown_steps) if cfg.cooldown_steps else 1.0
    down = left if cfg.cooldown == "linear" else 1 - math.sqrt(1 - left)
    return min(1.0, up, cfg.final + (1 - cfg.final) * down)


def settling(steps: int, step: int, grown: int) -> float:
    """The factor on every rate after a model has grown at step ``grown`` (0: it does not): from 0 in that step back to
    1 over a fortieth of the run (arXiv 2609.19107 takes 40 steps, of 1,488 in its smallest that grows)."""
    return min(1.0, (step - grown) / max(1, steps // 40)) if 0 < grown <= step else 1.0


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where one parameter goes, how it starts and how fast it learns: a row of the table that a notebook prints."""

    name: str
    role: str
    shape: tuple[int, ...]
    init: str
    std: float
    optimizer: str
    multiplier: float  # of the parameterisation on the rate
    lr: float
    weight_decay: float
    eps: float


Placed = dict[Placement, nn.Parameter]


# ---- the updates --------------------------------------------------------------------------------------------------


class AdamW:
    """torch's fused AdamW: m and v with bias correction, decoupled decay, p <- (1 - lr wd) p (coupled to the rate) or
    p <- (1 - wd) p (independent of it); both follow the schedule.

    With update clipping the rate of a tensor is divided by max(1, rms(g / sqrt(v-hat))) (Wortsman et al., in 001),
    and coupled decay with it.
    """

    def __init__(self, cfg: OptimConfig, parameters: Placed):
        self.cfg, self.parameters = cfg, parameters
        # update clipping needs a rate for each tensor, otherwise those of one rate, decay and eps share a group
        self.groups: dict[object, list[Placement]] = {}
        for p in parameters:
            self.groups.setdefault(p if cfg.update_clipping else (p.lr, p.weight_decay, p.eps), []).append(p)
        #: a parameter's number of steps, m and v, as torch names them
        self.moments = {
            parameter: {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter, requires_grad=False),
                "exp_avg_sq": torch.zeros_like(parameter, requires_grad=False),
            }
            for parameter in parameters.values()
        }

    @torch.no_grad()
    def step(self, rate: float) -> None:
        for group in self.groups.values():
            with_gradient = [self.parameters[p] for p in group if self.parameters[p].grad is not None]
            if not with_gradient:
                continue
            lr, decay = group[0].lr * rate, group[0].weight_decay
            if self.cfg.update_clipping:
                lr /= max(1.0, self._update_rms(with_gradient[0]))
            if self.cfg.decay == "independent":  # torch multiplies by lr: what p loses is decay * rate, clipped or not
                decay *= rate / lr if rate else 0.0
            self._update(with_gradient, lr, decay, group[0].eps)

    def _update(self, parameters: list[nn.Parameter], lr: float, decay: float, eps: float) -> None:
        steps, m, v = ([self.moments[p][name] for p in parameters] for name in ("step", "exp_avg", "exp_avg_sq"))
        gradients, (beta1, beta2) = [cast(Tensor, parameter.grad) for parameter in parameters], self.cfg.betas
        rates: dict[str, Any] = dict(lr=lr, beta1=beta1, beta2=beta2, weight_decay=decay, eps=eps)
        torch._foreach_add_(steps, 1)
        # what torch.optim.AdamW(fused=True) calls; the class itself imports torch's compiler, seconds of every start
        torch._fused_adamw_(list(parameters), gradients, m, v, [], steps, **rates, amsgrad=False, maximize=False)

    def _update_rms(self, parameter: nn.Parameter) -> float:
        """rms(g / sqrt(v-hat)) of the update that comes next."""
        beta2, own, squared = self.cfg.betas[1], self.moments[parameter], cast(Tensor, parameter.grad).square()
        v_hat = (beta2 * own["exp_avg_sq"] + (1 - beta2) * squared) / (1 - beta2 ** (int(own["step"]) + 1))
        return (squared / v_hat.clamp_min(max(self.cfg.eps**2, torch.finfo(v_hat.dtype).tiny))).mean().sqrt().item()

    def kept(self) -> dict[str, Tensor]:
        """What the next update depends on."""
        return {
            f"adamw.{name}.{placement.name}": value
            for placement, parameter in self.parameters.items()
            for name, value in self.moments[parameter].items()
        }


class Stack:
    """All n matrices of one shape [R, C], which are updated together; a parameter [E, R, C] is E of them. Each process
    updates m of them, and keeps momentum, variance and norm for these alone."""

    def __init__(self, members: Placed, ranks: Ranks):
        self.parameters = [*members.values()]
        self.counts = [math.prod(p.shape[:-2]) for p in self.parameters]  # how many matrices each is
        self.lr = torch.tensor([p.lr for p in members]).repeat_interleave(torch.tensor(self.counts))  # [n]
        self.own = ranks.share(sum(self.counts))  # the m of them that are this process's
        (R, C), device = self.parameters[0].shape[-2:], self.parameters[0].device
        zeros = functools.partial(torch.zeros, self.own.stop - self.own.start, device=device)
        self.momentum = zeros(R, C)  # [m, R, C]
        self.variance = zeros(R, 1) if R >= C else zeros(1, C)  # [m, R, 1] of tall matrices, [m, 1, C] of wide ones
        self.norm: Tensor | None = None  # [m, 1, 1], that MuonH keeps

    def matrices(self, tensors: Sequence[Tensor]) -> Tensor:
        """This process's matrices [m, R, C] of the parameters, or of tensors of their shapes."""
        return torch.cat([x.detach().reshape(-1, *self.momentum.shape[1:]) for x in tensors])[self.own]


class Muon:
    """Nesterov momentum, orthogonalised, on a GPU in ``dtype``; factored variance reduction and cautious decay where
    the config asks for them. A placement's rate has the factor sqrt(max(1, R / C)); decay falls to 0 over the run."""

    beta2 = 0.95  # of the variance reduction; there is no bias correction
    quintic = POLAR_EXPRESS, ROOM

    def __init__(self, cfg: OptimConfig, parameters: Placed, dtype: torch.dtype = torch.float32, ranks: Ranks = ALONE):
        self.cfg, self.dtype, self.ranks = cfg, dtype, ranks
        by_shape: dict[str, Placed] = {}
        for placement, parameter in parameters.items():
            by_shape.setdefault("{}x{}".format(*parameter.shape[-2:]), {})[placement] = parameter
        self.stacks = {shape: Stack(members, ranks) for shape, members in by_shape.items()}

    @torch.no_grad()
    def step(self, rate: float, step: int, decay_factor: float) -> None:
        """The factors scale the learning rates and the weight decay; step counts from 0."""
        beta = self.cfg.muon_momentum
        if step + 1 < self.cfg.muon_momentum_warmup:
            early = min(EARLY_MOMENTUM, beta)
            beta = early + (beta - early) * (step + 1) / self.cfg.muon_momentum_warmup
        for stack in self.stacks.values():
            self._update(stack, rate * stack.lr, beta, self.cfg.muon_weight_decay * decay_factor)

    @door.served_by(door.muon)
    def _update(self, stack: Stack, lr: Tensor, beta: float, decay: float) -> None:
        """M <- beta M + (1 - beta) G, U the orthogonalised (1 - beta) G + beta M, and P <- P - lr (U + decay P).

        On one thread of a CPU lib/kernels/kernels.c does all of this, ``_moved`` included, but for small stacks: an
        equation is changed in both."""
        # a step has a gradient for every matrix, whatever it loops
        G = stack.matrices([cast(Tensor, p.grad) for p in stack.parameters])
        M = stack.momentum.lerp_(G, 1 - beta)
        U = orthogonalize(G.lerp_(M, beta), self.dtype)
        if self.cfg.muon_variance_reduction:
            U = self._reduce_variance(U, stack.variance)
        rates = lr[stack.own].view(-1, 1, 1).to(U)
        moved = self._moved(stack.matrices(stack.parameters), U, rates, decay, stack.norm)
        parts = self.ranks.gather(moved, sum(stack.counts)).split(stack.counts)
        new = [part.view(p.shape) for part, p in zip(parts, stack.parameters, strict=True)]
        torch._foreach_copy_(tuple(stack.parameters), new)

    def _moved(self, P: Tensor, U: Tensor, lr: Tensor, decay: float, norm: Tensor | None) -> Tensor:
        """Cautious decay leaves out the entries that the update itself does not shrink."""
        if decay:
            shrink = lr * decay
            P = P * (1 - shrink * ((U * P) >= 0) if self.cfg.muon_cautious else 1 - shrink)
        return P - lr * U

    def _reduce_variance(self, U: Tensor, variance: Tensor) -> Tensor:
        """Divide by the running rms of each row or column, keeping the Frobenius norm of the update."""
        variance.lerp_(U.square().mean(-1 if variance.shape[-1] == 1 else -2, keepdim=True), 1 - self.beta2)
        reduced = U * variance.clamp_min(1e-10).rsqrt()
        return reduced * (_norm(U) / _norm(reduced).clamp_min(1e-10))

    def kept(self) -> dict[str, tuple[Stack, Tensor]]:
        """What the next update depends on, of this process's matrices."""
        return {
            f"muon.{name}.{shape}": (stack, own)
            for shape, stack in self.stacks.items()
            for name, own in (("momentum", stack.momentum), ("variance", stack.variance), ("norm", stack.norm))
            if own is not None
        }


class MuonH(Muon):
    """Muon on the sphere of each matrix's own norm: the update is scaled to |W_0|_F, a step is taken, and the result is
    put back to |W_0|_F, so that a small lr is about an angle (Wen et al. 2025, in 000)."""

    def __init__(self, cfg: OptimConfig, parameters: Placed, dtype: torch.dtype = torch.float32, ranks: Ranks = ALONE):
        super().__init__(cfg, parameters, dtype, ranks)
        for placement, parameter in parameters.items():
            if not _norm(parameter.detach()).all():
                raise InputError(
                    f"optim.name: muonh keeps norms, but {placement.name} starts at norm 0, use another model.init"
                )
        for stack in self.stacks.values():
            stack.norm = _norm(stack.matrices(stack.parameters))

    def _moved(self, P: Tensor, U: Tensor, lr: Tensor, decay: float, norm: Any) -> Tensor:
        P = P - U * (lr * norm / _norm(U).clamp_min(1e-10))
        return P * (norm / _norm(P))


def orthogonalize(matrices: Tensor, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """About U V^T of each matrix U S V^T [..., R, C], by five quintic steps: in ``dtype`` on a GPU, and on a CPU in
    fp32, where bf16 is no faster. fp32 out."""
    return _orthogonalized(matrices.to(torch.float32 if matrices.device.type == "cpu" else dtype), POLAR_EXPRESS, ROOM)


@door.served_by(door.orthogonalize)
def _orthogonalized(x: Tensor, steps: Sequence[tuple[float, float, float]], room: float) -> Tensor:
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (room * _norm(x) + 1e-6)
    for a, b, c in steps:
        A = x @ x.mT
        x = a * x + (b * A + c * (A @ A)) @ x
    return (x.mT if tall else x).float()


def _norm(matrices: Tensor) -> Tensor:
    """Frobenius norm of each matrix [..., R, C] -> [..., 1, 1]."""
    return matrices.norm(dim=(-2, -1), keepdim=True)


# ---- a whole model ------------------------------------------------------------------------------------------------


def placements(
    model: LoopedLM | ModelConfig, cfg: OptimConfig, steps: int | None = None, tokens_per_step: int | None = None
) -> list[Placement]:
    """Every parameter with its init, optimiser, rate, decay and eps. Muon and MuonH take the matrices of the blocks,
    and a concatenating injection where ``cfg.injection`` says so; all else, or everything where the optimiser is AdamW,
    is AdamW's, with decay for the blocks' matrices alone (001).

    A config is enough: no weights are made of it. Raises InputError where the rates need steps and tokens_per_step
    (HyperP).
    """
    if isinstance(model, ModelConfig):
        with torch.device("meta"):
            model = LoopedLM(model, seed=None)
    rows = []
    for name, parameter in model.named_parameters():
        what = role(model.cfg, name)
        by = multipliers(model.cfg, cfg, name, steps, tokens_per_step)
        start = init(model.cfg, name, parameter.shape)
        if of_muon(what, cfg):
            R, C = parameter.shape[-2:]
            lr = cfg.muon_lr * by.lr * (math.sqrt(max(1, R / C)) if cfg.name == "muon" else 1.0)
            optimizer, decay, eps = str(cfg.name), cfg.muon_weight_decay, math.nan
        else:
            of_role = {
                "embedding": cfg.embedding_lr,
                "value table": cfg.embedding_lr,
                "head": cfg.head_lr,
                "norm": cfg.norm_lr,
                "lanes": cfg.lanes_lr,
                "injection": cfg.injection_lr,
                "B": cfg.injection_lr,
                "dynamics": cfg.injection_lr,
                "own": cfg.injection_lr,
            }
            optimizer, lr = "adamw", (of_role.get(what) or cfg.lr) * by.lr
            decay = cfg.weight_decay * by.weight_decay if what in BLOCK_MATRICES else 0.0
            eps = cfg.eps * by.eps
        rows.append(
            Placement(name, what, tuple(parameter.shape), start.kind, start.std, optimizer, by.lr, lr, decay, eps)
        )
    return rows


class Optimizer:
    """All parameters of a model, each with the optimiser and rate that ``placements`` gives it."""

    def __init__(
        self,
        model: LoopedLM,
        cfg: OptimConfig,
        steps: int,
        tokens_per_step: int | None = None,
        ranks: Ranks = ALONE,
        grown: int = 0,
    ):
        """ranks: the processes that train the same model, among which Muon's matrices are shared out. grown: the step
        at which the model makes more loops than before."""
        self.cfg, self.steps, self.ranks, self.grown = cfg, steps, ranks, grown
        parameters = dict(model.named_parameters())
        self.parameters = list(parameters.values())  # to walk through a model's parts takes longer than its norm
        self.placements = placements(model, cfg, steps, tokens_per_step)
        self.adamw = AdamW(cfg, {p: parameters[p.name] for p in self.placements if p.optimizer == "adamw"})
        matrices = {p: parameters[p.name] for p in self.placements if p.optimizer != "adamw"}
        self.muon = (MuonH if cfg.name == "muonh" else Muon)(cfg, matrices, model.compute_dtype, ranks)

    def step(self, step: int) -> None:
        """One update with the gradients that are there; step counts from 0."""
        rate = schedule(self.cfg, self.steps, step) * settling(self.steps, step, self.grown)
        self.adamw.step(rate)
        self.muon.step(rate, step, decay_factor=1 - step / self.steps)

    def clip_gradients(self) -> float:
        """Scales all gradients to a norm of at most ``cfg.clip``; returns the norm they had."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm = total_norm(gradients) if self.ranks.size == 1 else nn.utils.get_total_norm(gradients)
        had = float(norm)
        if not had <= self.cfg.clip:  # a nan goes on
            nn.utils.clip_grads_with_norm_(self.parameters, self.cfg.clip, norm)
        return had

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def state(self) -> dict[str, Tensor]:
        """Everything an update depends on; of several processes all have to call."""
        return self.adamw.kept() | {
            name: self.ranks.gather(own, sum(stack.counts)) for name, (stack, own) in self.muon.kept().items()
        }

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        for name, value in self.adamw.kept().items():
            value.copy_(tensors[name])
        for name, (stack, own) in self.muon.kept().items():
            own.copy_(tensors[name][stack.own])


@door.served_by(door.total_norm)
def total_norm(tensors: Sequence[Tensor]) -> Tensor:
    """The norm of all ``tensors`` as one vector."""
    return nn.utils.get_total_norm(tensors)
