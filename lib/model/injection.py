"""How the prelude's output e enters the loop: u = A-bar h + B-bar e, before the recurrent blocks R (001, Eq. 1).

``prepare(e)`` computes once per forward what does not change from loop to loop, ``inject(h, prepared, t)`` gives the
blocks' input u in loop t, ``merge(h, u, s, prepared, t)`` the next state from their output s; ``transition()`` is A-bar
and ``driving()`` B-bar, as a vector where they are diagonal, for their spectra. Hyper-connections keep K states, which
``spread`` makes and ``pool`` sums; theirs are the only weights that know their loop. t is an int, or a LongTensor [B,
S] where tokens are in different loops.

A new injection is a class here, its name in ``INJECTIONS`` and in ``ModelConfig.injection``, and nothing elsewhere:
what the rest of lib asks of it (``ROLES``, ``per_loop``, ``cost``, ``formula``) it inherits or says itself.
docs/recipes.md writes one.
"""

import functools
import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lib.base.errors import InputError, first_line
from lib.config import ModelConfig
from lib.model.layers import linear

#: 001's code: A-bar starts at sqrt(1/5), which keeps the variance of a state of size sqrt(2/(5d))
INITIAL_DECAY = math.sqrt(1 / 5)

#: what ``prepare`` returns
Prepared = tuple[Tensor, ...]


class Cost(NamedTuple):
    """Weights that a token is multiplied by ``once`` in a pass and in every ``loop``, and FLOPs in a loop that are no
    weight's."""

    once: int = 0
    loop: int = 0
    flops: int = 0


class Injection(nn.Module):
    """What every injection has, and what is true of one that does not say otherwise."""

    #: parameter -> its role, which decides its start, its rate and its optimiser (lib/model/parameterisation.py). One
    #: that is not named is its "own": it starts as __init__ makes it, and AdamW moves it at injection_lr, without decay
    ROLES: ClassVar[dict[str, str]] = {}
    #: whether each loop has parameters of its own, so that there are as many loops as in training
    per_loop: ClassVar[bool] = False
    #: in the picture of a model: its name where None, and nothing stands before the blocks where empty
    formula: str | None = None

    def __init__(self, cfg: ModelConfig):
        super().__init__()
        self.cfg = cfg

    def cost(self) -> Cost:
        """Every matrix meets every token in every loop."""
        return Cost(loop=sum(weight.numel() for weight in self.parameters() if weight.ndim == 2))

    def spread(self, h: Tensor) -> Tensor:
        return h

    def prepare(self, e: Tensor) -> Prepared:
        return (e,)

    def inject(self, h: Tensor, prepared: Prepared, t: int | Tensor) -> Tensor:
        return h

    def merge(self, h: Tensor, u: Tensor, s: Tensor, prepared: Prepared, t: int | Tensor) -> Tensor:
        return s

    def pool(self, h: Tensor) -> Tensor:
        return h

    def transition(self) -> Tensor:
        return torch.ones(1)

    def driving(self) -> Tensor:
        return torch.zeros(1)


class NoInjection(Injection):
    """u = h: the state starts from e and never sees it again."""

    formula = ""


class Add(Injection):
    """u = h + e. A-bar = I, marginally stable (001, Table 1)."""

    formula = "h + e"

    def inject(self, h: Tensor, prepared: Prepared, t: int | Tensor) -> Tensor:
        (e,) = prepared
        return h + e

    def driving(self) -> Tensor:
        return torch.ones(1)


class Concat(Injection):
    """u = W [e ; h] + b, W d x 2d, so that A-bar is W's right half: unconstrained (001, Table 1; 000, Eq. 7; b is
    LoopedLM-P2's).

    W e is the same in every loop and computed once.
    """

    ROLES: ClassVar = {"weight": "injection", "bias": "bias"}

    def __init__(self, cfg: ModelConfig):
        super().__init__(cfg)
        self.weight = nn.Parameter(torch.zeros(cfg.width, 2 * cfg.width))
        self.bias = nn.Parameter(torch.zeros(cfg.width)) if cfg.injection_bias else None
        self.formula = (
            "W [e ; h]"
            + " + b" * cfg.injection_bias
            + ",\ninitially W = [I | 0]" * (cfg.injection == "concat-identity")
        )

    def prepare(self, e: Tensor) -> Prepared:
        W_e = linear(e, self.driving())
        return (W_e if self.bias is None else W_e + self.bias.to(W_e.dtype),)

    def inject(self, h: Tensor, prepared: Prepared, t: int | Tensor) -> Tensor:
        (W_e,) = prepared
        return linear(h, self.transition()) + W_e

    def cost(self) -> Cost:
        return Cost(once=self.driving().numel(), loop=self.transition().numel())

    def transition(self) -> Tensor:
        return self.weight[:, self.cfg.width :]

    def driving(self) -> Tensor:
        return self.weight[:, : self.cfg.width]


class LTI(Injection):
    """Parcae: A = -exp(A_log) diagonal, dt = softplus(dt_bias), and per loop

    u = exp(dt A) h + dt (B e): zero-order hold for A, Euler for B (001, Sec. "Block Design").
    Since dt A < 0, the spectral radius of A-bar is below 1 whatever is learned.
    """

    ROLES: ClassVar = {"A_log": "dynamics", "dt_bias": "dynamics", "B": "B"}
    formula = r"$\bar A$ h + $\bar B$ e, diagonal $\bar A$"

    def __init__(self, cfg: ModelConfig):
        super().__init__(cfg)
        dt = -math.log(INITIAL_DECAY)
        self.A_log = nn.Parameter(torch.zeros(cfg.width))
        self.dt_bias = nn.Parameter(torch.full((cfg.width,), math.log(math.expm1(dt))))
        self.B = nn.Parameter(torch.zeros(cfg.width, cfg.width).fill_diagonal_(1))

    def prepare(self, e: Tensor) -> Prepared:
        dt = F.softplus(self.dt_bias)
        return self.transition().to(e.dtype), dt.to(e.dtype) * linear(e, self.B)

    def inject(self, h: Tensor, prepared: Prepared, t: int | Tensor) -> Tensor:
        decay, dt_B_e = prepared
        return torch.addcmul(dt_B_e, decay, h)

    def cost(self) -> Cost:
        return Cost(once=self.B.numel())

    def transition(self) -> Tensor:
        return torch.exp(-F.softplus(self.dt_bias) * torch.exp(self.A_log))

    def driving(self) -> Tensor:
        return F.softplus(self.dt_bias)[:, None] * self.B


class Orthogonal(LTI):
    """Parcae's, whose decayed state r = exp(dt A) h first loses its component along what is injected, j = dt (B e):

    u = r - j <r, j> / (<j, j> + eps) + j, token by token (LoopedLM-P2, "OrthoInj").
    A projection lengthens nothing, so that what is left of h shrinks as Parcae's does, whatever is learned: its A-bar,
    which ``transition`` gives here too, is a bound.
    """

    EPS = 1e-6
    formula = r"$\bar A$ h without its part along $\bar B$ e, + $\bar B$ e"

    def inject(self, h: Tensor, prepared: Prepared, t: int | Tensor) -> Tensor:
        decay, j = prepared
        r, to = (decay * h).float(), j.float()
        along = (r * to).sum(-1, keepdim=True) / (to.square().sum(-1, keepdim=True) + self.EPS)
        return (r - along * to).to(h.dtype) + j


class Boundary(NoInjection):
    """h <- N(h) + alpha e where a pass ends, N an RMSNorm without gain and alpha a constant (arXiv 2609.19107). The
    loop starts at e itself; the operator stands between passes, and between the last one and the coda. alpha is that of
    its tied loops."""

    ALPHA = 2**-0.5

    def merge(self, h: Tensor, u: Tensor, s: Tensor, prepared: Prepared, t: int | Tensor) -> Tensor:
        (e,) = prepared
        return F.rms_norm(s, s.shape[-1:], eps=self.cfg.norm_eps) + self.ALPHA * e

    def driving(self) -> Tensor:
        return torch.full((1,), self.ALPHA)


class HyperConnections(Injection):
    """K lanes l [B, S, K, d], all e at first, mixed with scalars of each loop's own (000, Eq. 9):

    u = alpha_t . l;  s = R(u);  l <- M_t l + beta_t (x) (s - u); the coda reads the sum of the lanes.

    So what the lanes receive is what R adds to u, the branch without its skip, as in Zhu et al.; and at the cyclic init
    (alpha_t one-hot at t mod K, M = I, beta = 1) every lane runs the plain loop, as 000 says, and the coda reads K
    times its state. As Eq. 9 is printed they receive s itself, and start from h + R(h). Both are the same family:
    M_t - beta_t alpha_t^T takes the place of M_t.
    """

    ROLES: ClassVar = {"alpha": "lanes", "M": "lanes", "beta": "lanes"}
    per_loop = True
    formula = r"$\alpha_t \cdot$ lanes in, $M_t$, $\beta_t$ out"

    def __init__(self, cfg: ModelConfig):
        super().__init__(cfg)
        r, K = cfg.mean_loops, cfg.lanes
        self.alpha = nn.Parameter(torch.eye(K)[torch.arange(r) % K])
        self.M = nn.Parameter(torch.eye(K).repeat(r, 1, 1))
        self.beta = nn.Parameter(torch.ones(r, K))

    def cost(self) -> Cost:
        d, K = self.cfg.width, self.cfg.lanes
        return Cost(flops=2 * d * (K**2 + K))  # alpha . l and M l

    def spread(self, h: Tensor) -> Tensor:
        return h[..., None, :].expand(*h.shape[:-1], self.cfg.lanes, h.shape[-1])

    def inject(self, h: Tensor, prepared: Prepared, t: int | Tensor) -> Tensor:
        return torch.einsum("...k,...kd->...d", self.alpha[t].to(h.dtype), h)

    def merge(self, h: Tensor, u: Tensor, s: Tensor, prepared: Prepared, t: int | Tensor) -> Tensor:
        mixed = torch.einsum("...jk,...kd->...jd", self.M[t].to(h.dtype), h)
        received = s if self.cfg.lanes_receive == "s" else s - u
        return mixed + self.beta[t].to(h.dtype)[..., None] * received[..., None, :]

    def pool(self, h: Tensor) -> Tensor:
        return h.sum(-2)

    def transition(self) -> Tensor:
        return self.M


def per_token(f: Callable[..., Tensor], *prepared: Prepared) -> Prepared:
    """What an injection prepared, once or several times, with ``f`` of what it has for each token; what it made of its
    parameters alone stays."""
    # of tokens is what has [B, S, d]; a parameter has one dimension or two
    return tuple(f(*parts) if parts[0].ndim == 3 else parts[0] for parts in zip(*prepared, strict=True))


INJECTIONS: dict[str, type[Injection]] = {
    "none": NoInjection,
    "add": Add,
    "concat": Concat,
    "concat-identity": Concat,
    "lti": LTI,
    "orthogonal": Orthogonal,
    "boundary": Boundary,
    "hyper-connections": HyperConnections,
}


def kind(cfg: ModelConfig) -> type[Injection]:
    """The class of a model's injection. Raises InputError where there is none, or the model asks too much of it."""
    if cfg.injection not in INJECTIONS:
        raise InputError(f"injection: {cfg.injection!r} has no class, name it in INJECTIONS of lib/model/injection.py")
    found = INJECTIONS[cfg.injection]
    if found.per_loop and (cfg.depth != "fixed" or cfg.truncates):
        raise InputError(f"injection: {cfg.injection} is per loop, use depth='fixed', backprop_loops='all'")
    return found


def weightless(cfg: ModelConfig) -> Injection:
    """A model's injection, whose parameters have shapes and no numbers. It has been tried on a state that is narrow:
    raises InputError where it does not give states back."""
    _try(cfg.model_copy(update={"width": min(cfg.width, 64)}))
    with torch.device("meta"):
        return kind(cfg)(cfg)


@functools.lru_cache
def _try(cfg: ModelConfig) -> None:
    made, shape = kind(cfg), (1, 2, cfg.width)
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():  # not on meta, which imports torch's compiler
            injection, e = made(cfg), torch.zeros(shape)
            h, prepared = injection.spread(e), injection.prepare(e)
            u = injection.inject(h, prepared, 0)
            end = injection.pool(injection.merge(h, u, e, prepared, 0))
    except Exception as error:  # whatever a new class raises
        raise InputError(f"injection: {made.__name__} of {cfg.injection} fails, {first_line(error)}") from error
    if not u.shape == end.shape == shape:
        raise InputError(
            f"injection: {made.__name__}.inject and pool give {list(u.shape)} and {list(end.shape)} of a state "
            f"{list(shape)}, return its shape"
        )
