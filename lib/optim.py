"""AdamW and Muon, which parameter goes to which, and the schedule.

The settings are those of 001, Tables "Optimizer parameter group assignment" and "Hyperparameter", and of its code.
"""

import dataclasses
import math

import torch
from torch import Tensor, nn

from lib.config import OptimConfig

#: Polar Express: five quintic steps X <- aX + (bA + cA^2) X with A = X X^T (Amsel et al., in 001)
POLAR_EXPRESS = (
    (8.1566, -22.4833, 15.8788),
    (4.0429, -2.8089, 0.50002),
    (3.8917, -2.7725, 0.50606),
    (3.2858, -2.3681, 0.46449),
    (2.3465, -1.7098, 0.42324),
)


def schedule(cfg: OptimConfig, steps: int, step: int) -> float:
    """The factor on every learning rate in step 0 .. steps - 1: linear warm-up, constant, linear to 0 at the end."""
    up = (step + 1) / cfg.warmup_steps if cfg.warmup_steps else 1.0
    down = (steps - step) / cfg.cooldown_steps if cfg.cooldown_steps else 1.0
    return min(1.0, up, down)


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where one parameter goes."""

    name: str
    optimizer: str
    lr: float
    weight_decay: float


def placements(model: nn.Module, cfg: OptimConfig) -> list[Placement]:
    """Every parameter with its optimiser, rate and decay. Muon takes the matrices of the blocks; tables, the head,
    norms, value-embedding gates, the injection and the readout are AdamW's, without decay (001)."""
    rows = []
    for name, parameter in model.named_parameters():
        block_matrix = parameter.ndim == 2 and name.split(".")[0] in ("prelude", "recur", "coda")
        block_matrix = block_matrix and not name.endswith("attn.gate.weight")
        if cfg.name == "muon" and block_matrix:
            lr = cfg.muon_lr * math.sqrt(max(1, parameter.shape[0] / parameter.shape[1]))
            rows.append(Placement(name, "muon", lr, cfg.muon_weight_decay))
        else:
            rows.append(Placement(name, "adamw", cfg.lr, cfg.weight_decay if block_matrix else 0.0))
    return rows


class Optimizer:
    """All parameters of a model, each with the optimiser and rate that ``placements`` gives it."""

    def __init__(self, model: nn.Module, cfg: OptimConfig, steps: int):
        self.cfg, self.steps = cfg, steps
        parameters = dict(model.named_parameters())
        self.placements = placements(model, cfg)
        self.adamw = AdamW(cfg, {p: parameters[p.name] for p in self.placements if p.optimizer == "adamw"})
        self.muon = Muon(cfg, {p: parameters[p.name] for p in self.placements if p.optimizer == "muon"})

    def step(self, step: int) -> None:
        """One update with the gradients that are there; step counts from 0."""
        rate = schedule(self.cfg, self.steps, step)
        self.adamw.step(rate)
        self.muon.step(rate, decay=1 - step / self.steps)

    def state(self) -> dict[str, Tensor]:
        return self.adamw.state() | self.muon.state()

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        self.adamw.load_state(tensors)
        self.muon.load_state(tensors)


class AdamW:
    """torch's fused AdamW: m and v with bias correction, decoupled decay p <- p - lr wd p.

    With update clipping the rate of a tensor is divided by max(1, rms(g / sqrt(v-hat))) (Wortsman et al., in 001).
    """

    def __init__(self, cfg: OptimConfig, parameters: dict[Placement, nn.Parameter]):
        self.cfg, self.parameters, self.steps = cfg, parameters, 0
        # update clipping needs a rate for each tensor, otherwise those of one decay share a group
        grouped: dict[object, list[Placement]] = {}
        for placement in parameters:
            grouped.setdefault(placement if cfg.update_clipping else placement.weight_decay, []).append(placement)
        groups = [
            {"params": [parameters[p] for p in members], "weight_decay": members[0].weight_decay}
            for members in grouped.values()
        ]
        self.torch = torch.optim.AdamW(groups, lr=cfg.lr, betas=cfg.betas, eps=cfg.eps, fused=True) if groups else None

    def step(self, rate: float) -> None:
        if self.torch is None:
            return
        self.steps += 1
        for group in self.torch.param_groups:
            group["lr"] = self.cfg.lr * rate
            if self.cfg.update_clipping:
                group["lr"] /= max(1.0, self._update_rms(group["params"][0]))
        self.torch.step()

    def _update_rms(self, parameter: nn.Parameter) -> float:
        beta2 = self.cfg.betas[1]
        squared = parameter.grad.square()
        old = self.torch.state[parameter].get("exp_avg_sq", torch.zeros_like(squared))
        v_hat = (beta2 * old + (1 - beta2) * squared) / (1 - beta2**self.steps)
        return (squared / v_hat.clamp_min(self.cfg.eps**2)).mean().sqrt().item()

    def state(self) -> dict[str, Tensor]:
        tensors = {"adamw.steps": torch.tensor(self.steps)}
        for placement, parameter in self.parameters.items():
            for name, value in self.torch.state.get(parameter, {}).items():
                tensors[f"adamw.{name}.{placement.name}"] = value
        return tensors

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        self.steps = int(tensors["adamw.steps"])
        for placement, parameter in self.parameters.items():
            # a parameter that never had a gradient has no state
            names = {name: f"adamw.{name}.{placement.name}" for name in ("step", "exp_avg", "exp_avg_sq")}
            present = {name: tensors[long] for name, long in names.items() if long in tensors}
            if present:
                self.torch.state[parameter] = {name: value.to(parameter.device) for name, value in present.items()}


class Muon:
    """Nesterov momentum, orthogonalised by Polar Express, with factored variance reduction and cautious decay.

    Matrices of one shape [R, C] are stacked and updated together.
    """

    beta2 = 0.95  # of the variance reduction; there is no bias correction

    def __init__(self, cfg: OptimConfig, parameters: dict[Placement, nn.Parameter]):
        self.cfg = cfg
        self.stacks: dict[tuple[int, int], list[tuple[Placement, nn.Parameter]]] = {}
        for placement, parameter in parameters.items():
            self.stacks.setdefault(tuple(parameter.shape), []).append((placement, parameter))
        self.momentum: dict[tuple[int, int], Tensor] = {}
        self.variance: dict[tuple[int, int], Tensor] = {}
        for (rows, columns), members in self.stacks.items():
            device = members[0][1].device
            self.momentum[rows, columns] = torch.zeros(len(members), rows, columns, device=device)
            # one second moment per row of a tall matrix, per column of a wide one
            factored = (rows, 1) if rows >= columns else (1, columns)
            self.variance[rows, columns] = torch.zeros(len(members), *factored, device=device)

    @torch.no_grad()
    def step(self, rate: float, decay: float) -> None:
        """rate scales the learning rates, decay the weight decay."""
        for shape, members in self.stacks.items():
            gradient = torch.stack([parameter.grad for _, parameter in members])
            momentum = self.momentum[shape].lerp_(gradient, 1 - self.cfg.muon_momentum)
            update = orthogonalize(gradient.lerp_(momentum, self.cfg.muon_momentum))
            update = self._reduce_variance(update, self.variance[shape])
            for (placement, parameter), u in zip(members, update, strict=True):
                lr = placement.lr * rate
                agrees = (u * parameter) >= 0  # cautious: decay only what the update shrinks as well
                parameter.mul_(1 - lr * placement.weight_decay * decay * agrees).add_(u, alpha=-lr)

    def _reduce_variance(self, update: Tensor, variance: Tensor) -> Tensor:
        """Divide by the running rms of each row or column, keeping the Frobenius norm of the update."""
        along = -1 if variance.shape[-1] == 1 else -2
        variance.lerp_(update.square().mean(along, keepdim=True), 1 - self.beta2)
        reduced = update * variance.clamp_min(1e-10).rsqrt()
        norm = update.norm(dim=(-2, -1), keepdim=True)
        return reduced * (norm / reduced.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-10))

    def state(self) -> dict[str, Tensor]:
        kinds = (("momentum", self.momentum), ("variance", self.variance))
        return {f"muon.{kind}.{r}x{c}": value for kind, values in kinds for (r, c), value in values.items()}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        for kind, values in (("momentum", self.momentum), ("variance", self.variance)):
            for rows, columns in values:
                values[rows, columns].copy_(tensors[f"muon.{kind}.{rows}x{columns}"])


def orthogonalize(matrices: Tensor) -> Tensor:
    """The nearest matrices [..., R, C] with singular values near 1, by Polar Express in bf16; fp32 out."""
    x = matrices.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (1.02 * x.norm(dim=(-2, -1), keepdim=True) + 1e-6)
    for a, b, c in POLAR_EXPRESS:
        A = x @ x.mT
        x = a * x + (b * A + c * (A @ A)) @ x
    return (x.mT if tall else x).float()


def clip_gradients(model: nn.Module, largest: float) -> float:
    """Scales all gradients to a norm of at most ``largest``; returns the norm they had."""
    return float(nn.utils.clip_grad_norm_(model.parameters(), largest))
