"""How the prelude's output e enters the loop: h <- A-bar h + B-bar e, before the recurrent blocks (001, Eq. 1).

``prepare(e)`` computes once per forward what does not change from loop to loop; ``inject(h, prepared)`` is the step;
``transition()`` is A-bar, as a vector where it is diagonal, for the spectral radius.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lib.config import ModelConfig
from lib.layers import linear

#: 001's code: A-bar starts at sqrt(1/5), which keeps the variance of a state of size sqrt(2/(5d))
INITIAL_DECAY = math.sqrt(1 / 5)


class NoInjection(nn.Module):
    """h <- h: the state starts from e and never sees it again."""

    def prepare(self, e: Tensor) -> Tensor:
        return e

    def inject(self, h: Tensor, prepared: Tensor) -> Tensor:
        return h

    def transition(self) -> Tensor:
        return torch.ones(1)


class Add(NoInjection):
    """h <- h + e. A-bar = I, marginally stable (001, Table 1)."""

    def inject(self, h: Tensor, prepared: Tensor) -> Tensor:
        return h + prepared


class Concat(nn.Module):
    """h <- W [e ; h], W d x 2d, so that A-bar is W's right half: unconstrained (001, Table 1).

    W e is the same in every loop and computed once.
    """

    def __init__(self, cfg: ModelConfig):
        super().__init__()
        self.width = cfg.width
        self.weight = nn.Parameter(torch.zeros(cfg.width, 2 * cfg.width))

    def prepare(self, e: Tensor) -> Tensor:
        return linear(e, self.weight[:, : self.width])

    def inject(self, h: Tensor, prepared: Tensor) -> Tensor:
        return linear(h, self.transition()) + prepared

    def transition(self) -> Tensor:
        return self.weight[:, self.width :]


class LTI(nn.Module):
    """Parcae: A = -exp(A_log) diagonal, dt = softplus(dt_bias), and per loop

    h <- exp(dt A) h + dt (B e): zero-order hold for A, Euler for B (001, Sec. "Block Design").
    Since dt A < 0, the spectral radius of A-bar is below 1 whatever is learned.
    """

    def __init__(self, cfg: ModelConfig):
        super().__init__()
        dt = -math.log(INITIAL_DECAY)
        self.A_log = nn.Parameter(torch.zeros(cfg.width))
        self.dt_bias = nn.Parameter(torch.full((cfg.width,), math.log(math.expm1(dt))))
        self.B = nn.Parameter(torch.eye(cfg.width))

    def prepare(self, e: Tensor) -> tuple[Tensor, Tensor]:
        dt = F.softplus(self.dt_bias)
        return self.transition().to(e.dtype), dt.to(e.dtype) * linear(e, self.B)

    def inject(self, h: Tensor, prepared: tuple[Tensor, Tensor]) -> Tensor:
        decay, dt_B_e = prepared
        return torch.addcmul(dt_B_e, decay, h)

    def transition(self) -> Tensor:
        return torch.exp(-F.softplus(self.dt_bias) * torch.exp(self.A_log))


def make_injection(cfg: ModelConfig) -> nn.Module:
    if cfg.injection == "none":
        return NoInjection()
    if cfg.injection == "add":
        return Add()
    return LTI(cfg) if cfg.injection == "lti" else Concat(cfg)
