"""Parameterisations: how each parameter starts, and how its rate, decay and eps depend on the model and the data.

Everything is a function of a parameter's role, so that a parameterisation is a table, which
``lib.train.optimiser.placements`` prints for a model. w = d / 128 (muP), L the unique layers of the looped stack and
L_0 those at which the rate was tuned, B tokens a step, D tokens a run.

Inits (standard deviations; u is sqrt(2/(5d)), l the effective layers, fan the input width, s is cfg.init_std):

| role                    | scaled        | parcae         | uniform        | normal | mup         |
|-------------------------|---------------|----------------|----------------|--------|-------------|
| embedding               | u             | truncated u    | 1              | s      | s           |
| head                    | u             | truncated u    | .001           | s      | s / sqrt(w) |
| matrix, router          | u             | truncated u    | U: 1/sqrt(fan) | s      | s / sqrt(w) |
| value gate              | u             | U: 1/sqrt(3fan)| U: 1/sqrt(fan) | s      | s           |
| branch output           | u / sqrt(2 l) | 0              | U: 1/sqrt(fan) | s      | s / sqrt(w) |
| concatenating injection | u             | cut normal u   | U: 1/sqrt(fan) | s      | s / sqrt(w) |

The readout's orthogonal matrix comes from normal entries, "truncated" ones are orthogonal and come from entries cut at
2 sigma; "cut normal" are entries cut at 3 sigma themselves. ``uniform-zero`` is uniform with branch outputs of 0.

A value table starts at N(0, 1), the readout C orthogonal at u, [I, 0] as its name says, and norms, dynamics, lanes, B
and what is an injection's own as they are made: one, 001's decay, the plain loop, the identity, as its class says.
``scaled`` is Takase et al.'s; ``parcae`` that of 001's code in its details, with value gates as torch makes a linear
layer; ``uniform`` is 000's App. C.1, ``uniform-zero`` nanochat's (003); ``mup`` 004's Table 2, ``normal`` 002's; s =
.02 is ours, neither states it.

Multipliers:

| scaling    | rate                                                                       | decay      | eps         |
|------------|----------------------------------------------------------------------------|------------|-------------|
| mup        | 1 / w on head, matrices, branch outputs, router, injection, B, readout     | 1          | 1           |
| depth-loop | (L/L_0)^-1/2 in the looped stack; L_0 = 12 in 002                          | (L/L_0)^.5 | (L/L_0)^-.5 |
| nanochat   | (d/768)^-1/2 on what AdamW has; nanochat's, which 003 keeps                | 1          | 1           |
| hyperp     | matrices (B/2^18)^.558 (D/D_ref)^-.32, others (B/2^18)^.558 (d/640)^-1/2   | 1          | 1           |
"""

import dataclasses
import math

import torch
from torch import Tensor

from lib.base.errors import InputError
from lib.config import ModelConfig, OptimConfig
from lib.model.injection import INJECTIONS

MUP_WIDTH = 128  # 004, Sec. "Maximal Update Parameterization"
HYPERP_WIDTH, HYPERP_BATCH = 640, 2**18  # 000, App. D
NANOCHAT_WIDTH = 768
#: D_ref of 000: ten tokens per usage-weighted parameter of its s = 10 model, 20 layers and 4 injections or none
HYPERP_TOKENS = {
    looped: 10 * (20 * (12 * HYPERP_WIDTH**2 + 2 * HYPERP_WIDTH) + looped * 4 * 2 * HYPERP_WIDTH**2)
    for looped in (True, False)
}

#: the matrices of the blocks, which Muon and MuonH take; the router, value gates, B and C are AdamW's, as tables, norms
#: and an untied head are (001; the router ours)
BLOCK_MATRICES = ("matrix", "branch output")
#: what some roles are made as, before any init
MADE = {
    "norm": "ones",
    "bias": "zeros",
    "dynamics": "001's decay",
    "lanes": "plain loop",
    "B": "identity as made",
    "own": "as made",  # of an injection that names no role
}
HIDDEN = ("matrix", "branch output", "router", "injection", "B", "readout")  # the roles whose input is of the width


#: the parameters of a block, by the last part of their names; all else in it is a matrix
OF_BLOCK = {
    "attn_norm": "norm",
    "attn_post": "norm",
    "mlp_norm": "norm",
    "mlp_post": "norm",
    "qk_bias": "bias",
    "router": "router",
    "out": "branch output",
    "down": "branch output",
}
#: what stands outside of blocks, by the first part; all else there is a norm
OF_ENDS = {
    "embed": "embedding",
    "value_embeds": "value table",
    "head": "head",
    "readout": "readout",
    "exit_gate": "exit gate",
}


def role(cfg: ModelConfig, name: str) -> str:
    """What a parameter of ``LoopedLM`` is."""
    top, leaf = name.split(".")[0], name.removesuffix(".weight").split(".")[-1]
    if top == "injection":
        return INJECTIONS[cfg.injection].ROLES.get(name.removeprefix("injection."), "own")
    if top in ("prelude", "recur", "coda"):
        # the gate of an MLP is a matrix
        return "value gate" if name.endswith("attn.gate.weight") else OF_BLOCK.get(leaf, "matrix")
    return OF_ENDS.get(top, "norm")


def of_muon(what: str, optim: OptimConfig) -> bool:
    """Whether Muon or MuonH takes a parameter of this role. A concatenating injection is a matrix to 000, while 001
    leaves all parameters of an injection to AdamW."""
    takes = what in BLOCK_MATRICES or (what == "injection" and optim.injection == "matrix")
    return takes and optim.name != "adamw"


# ---- how a parameter starts ------------------------------------------------------------------------------------------


#: the sigmas beyond which no normal entry lies; infinitely many of a deviation of 0 are nan, which nothing is beyond
CUT = {"normal": math.inf, "truncated normal": 3.0, "orthogonal": math.inf, "truncated orthogonal": 2.0}


@dataclasses.dataclass(frozen=True)
class Init:
    """kind: normal, truncated normal (at 3 sigma), uniform, orthogonal, truncated orthogonal (made from normals cut at
    2 sigma, so that a table's largest entry is half as large) or identity; any other names what the parameter is made
    as, and is left."""

    kind: str
    std: float = math.nan

    @torch.no_grad()
    def apply(self, weight: Tensor, generator: torch.Generator) -> None:
        if self.kind == "uniform":
            weight.uniform_(-math.sqrt(3) * self.std, math.sqrt(3) * self.std, generator=generator)
        elif self.kind == "identity":
            weight.copy_(torch.eye(*weight.shape))
        elif self.kind.endswith("normal"):
            _cut_normal(weight, self.std, CUT[self.kind], generator)
        elif self.kind.endswith("orthogonal"):
            for matrix in weight.view(-1, *weight.shape[-2:]):
                gain = self.std * math.sqrt(max(matrix.shape))
                matrix.copy_(gain * _orthogonalized(_cut_normal(matrix, 1.0, CUT[self.kind], generator)))


def _cut_normal(weight: Tensor, std: float, sigmas: float, generator: torch.Generator) -> Tensor:
    """Fills with normal entries, drawn anew until none is beyond so many sigma: to the last bit what torch 2.13's
    ``trunc_normal_`` draws. Torch has changed that before, and a run's start must not depend on its version."""
    limit = weight.new_tensor(sigmas * std).item()
    weight.normal_(std=std, generator=generator)
    while (beyond := weight.abs() > limit).any():
        weight.copy_(torch.where(beyond, torch.empty_like(weight).normal_(std=std, generator=generator), weight))
    return weight


def _orthogonalized(matrix: Tensor) -> Tensor:
    """Orthonormal rows or columns, whichever are fewer, that span what those of ``matrix`` do."""
    wide = matrix.shape[0] < matrix.shape[1]
    q, r = torch.linalg.qr(matrix.mT if wide else matrix)
    q = q * r.diagonal().sign()
    return q.mT if wide else q


def init(cfg: ModelConfig, name: str, shape: torch.Size) -> Init:
    """The start of one parameter, by the first table above."""
    what, fan, unit, s = role(cfg, name), shape[-1], math.sqrt(2 / (5 * cfg.width)), cfg.init_std
    always = {role: Init(kind) for role, kind in MADE.items()} | {
        "value table": Init("normal", 1.0),
        "exit gate": Init("normal", 0.0),
        "readout": Init("orthogonal", unit),
    }
    if cfg.injection == "concat-identity":
        always["injection"] = Init("identity")
    effective = cfg.prelude + cfg.mean_loops * cfg.recur + cfg.coda
    of_parcae = {
        "value gate": Init("uniform", (3 * fan) ** -0.5),  # torch's linear layer, U(+- 1/sqrt(fan))
        "branch output": Init("normal", 0.0),
        "injection": Init("truncated normal", unit),
    }
    of_uniform = {"embedding": Init("normal", 1.0), "head": Init("normal", 1e-3)}
    narrow = Init("normal", s / math.sqrt(cfg.width / MUP_WIDTH))
    inits = {  # of some roles, and of all others
        "scaled": ({"branch output": Init("normal", unit / math.sqrt(2 * effective))}, Init("normal", unit)),
        "parcae": (of_parcae, Init("truncated orthogonal", unit)),
        "uniform": (of_uniform, Init("uniform", fan**-0.5)),
        "uniform-zero": (of_uniform | {"branch output": Init("normal", 0.0)}, Init("uniform", fan**-0.5)),
        "normal": ({}, Init("normal", s)),
        "mup": (dict.fromkeys(("head", *HIDDEN), narrow), Init("normal", s)),
    }
    own, others = inits[cfg.init]
    return (own | always).get(what, others)


# ---- how its rate depends on the model and the data ------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Multipliers:
    lr: float = 1.0
    weight_decay: float = 1.0
    eps: float = 1.0


def multipliers(
    cfg: ModelConfig, optim: OptimConfig, name: str, steps: int | None = None, tokens_per_step: int | None = None
) -> Multipliers:
    """On the rate, decay and eps of one parameter, by the second table above.

    Raises InputError where HyperP is not told the steps and their tokens.
    """
    what = role(cfg, name)
    if optim.scaling == "mup" and what in ("head", *HIDDEN):
        return Multipliers(lr=MUP_WIDTH / cfg.width)
    if optim.scaling == "depth-loop" and name.startswith("recur." if cfg.recur else ("prelude.", "coda.")):
        depth = (cfg.recur or cfg.layers) / optim.reference_depth
        decay = depth**0.5 if optim.decay == "coupled" else 1.0  # lr x decay does not depend on the depth
        return Multipliers(lr=depth**-0.5, weight_decay=decay, eps=depth**-0.5)
    if optim.scaling == "nanochat" and not of_muon(what, optim):
        return Multipliers(lr=(cfg.width / NANOCHAT_WIDTH) ** -0.5)
    if optim.scaling == "hyperp":
        if steps is None or tokens_per_step is None:
            raise InputError("tokens_per_step: HyperP's rates depend on it and on steps, state both")
        batch = (tokens_per_step / HYPERP_BATCH) ** 0.558
        if of_muon(what, optim):
            reference = HYPERP_TOKENS[cfg.recur > 0 and cfg.mean_loops > 1]
            return Multipliers(lr=batch * (steps * tokens_per_step / reference) ** -0.32)
        return Multipliers(lr=batch * (cfg.width / HYPERP_WIDTH) ** -0.5)
    return Multipliers()
