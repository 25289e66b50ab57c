"""Every intervention of the five papers, and two newer ones, on one grid: what it does to the loss at matched compute,
and to phi.

All are changes to one model, 000's at its effective depth. Most touch the loop alone, so that the plain model (r = 1)
stays what it was. Those of the block or of the optimiser change it too, and have a plain model of their own.
"""

import dataclasses
import functools
from typing import Any

from lib.base.errors import InputError
from lib.config import Label, ModelConfig, OptimConfig, RunConfig
from lib.papers.isodepth import designs
from lib.papers.league.parameters import DeltaPhiLeague
from lib.train.optimiser import placements

BASELINE = "linear"


@dataclasses.dataclass(frozen=True)
class Intervention:
    """One change. loop: fields of the model that change where it loops. block: fields that change at every r. matrices:
    the optimiser of the matrices, MuonH where empty. dynamics: whether it brings parameters that are neither matrix,
    table nor norm, which need a rate of their own. grows: whether it trains with half of its loops until three quarters
    of the steps are made."""

    paper: str
    loop: dict[str, Any] = dataclasses.field(default_factory=dict)
    block: dict[str, Any] = dataclasses.field(default_factory=dict)
    matrices: str = ""
    dynamics: bool = False
    grows: bool = False


POISSON = {"depth": "poisson", "depth_per": "sequence"}
DIAGONAL = {"injection": "lti", "state_init": "like-init"}
PARCAE = {**DIAGONAL, **POISSON, "prelude_norm": True, "backprop_loops": "half", "loop_norm": "none", "readout": True}
SWIGLU = {"mlp": "swiglu"}

INTERVENTIONS = {
    BASELINE: Intervention("000"),
    "additive": Intervention("000", loop=designs.INJECTIONS["additive"]),
    "passthrough": Intervention("000", loop=designs.INJECTIONS["passthrough"]),
    "hyper-connections": Intervention("000", loop=designs.INJECTIONS["hyper-connections"]),
    "truncated": Intervention("000", loop={"backprop_loops": "half"}),
    "diagonal": Intervention("001", loop=DIAGONAL, dynamics=True),
    "prelude norm": Intervention("001", loop={"prelude_norm": True}),
    "depth per batch": Intervention("001", loop={**POISSON, "depth_per": "batch"}),
    "depth per sequence": Intervention("001", loop=POISSON),
    "Parcae": Intervention("001", loop=PARCAE, dynamics=True),
    "1/N residuals": Intervention("002", loop={"residual": "1/N"}),
    "sandwich norm": Intervention("003", block={"block": "sandwich"}),
    "SwiGLU": Intervention("004", block=SWIGLU),
    "MoE": Intervention("004", block={**SWIGLU, "experts": 8, "active_experts": 2}, dynamics=True),
    "Muon": Intervention("001", matrices="muon"),
    "AdamW": Intervention("002", matrices="adamw"),
    # the boundary of a tied loop, and a tied model that grows from r / 2 loops to r (from 2 to 4 there; from the plain
    # model where r is 2). What of these is theirs, and what is left out, is in LOG.md
    "boundary operator": Intervention("2609.19107", loop={"injection": "boundary", "loop_norm": "none"}),
    "growth": Intervention("2609.19107", grows=True),
}


def changes(name: str, r: int, width: int) -> dict[str, Any]:
    """The fields of 000's model at r loops and a width that an intervention changes."""
    intervention = INTERVENTIONS[name]
    fields = {**(intervention.loop if r > 1 else {}), **intervention.block}
    if fields.get("backprop_loops") == "half":
        fields["backprop_loops"] = -(-r // 2)  # half, rounded up, as 000's probe says it, so that it is the same run
    if fields.get("mlp") == "swiglu":
        fields["mlp_width"] = 2 * round(4 * width / 3)  # three matrices as large as relu2's two of 4d
    return fields


def run(p: DeltaPhiLeague, name: str, r: int, width: int, budget: float, seed: int) -> RunConfig:
    """The run of one cell: ``budget`` FLOPs as 000 counts them."""
    intervention, fields = INTERVENTIONS[name], changes(name, r, width)
    grow_from = r // 2 if intervention.grows and r > 1 else None
    made = designs.run(p, designs.model(p, r, width, **fields), budget, seed, p.lanes_lr, grow_from)
    if fields and intervention.dynamics:
        return made.replace(optim=made.optim.replace(lr=p.dynamics_lr))
    if intervention.matrices in ("muon", "adamw"):
        base_rate = p.muon_rate if intervention.matrices == "muon" else p.adamw_rate
        long = made.train.steps, made.tokens_per_step
        return made.replace(optim=_moved_by(intervention.matrices, made.model, made.optim, *long, base_rate))
    return made


@functools.cache  # of all seeds
def _moved_by(
    rule: str, model: ModelConfig, optim: OptimConfig, steps: int, tokens_per_step: int, base_rate: float
) -> OptimConfig:
    """A run's optimiser, but the matrices are moved by Muon or AdamW, neither with decay, at ``base_rate`` under the
    corrections that MuonH's rate gets. What AdamW moved before, it moves at the same rates as before."""
    by_role = {x.role: x for x in placements(model, optim, steps, tokens_per_step)}
    roles = {"embedding_lr": "embedding", "head_lr": "head", "norm_lr": "norm"}
    others: dict[str, Any] = {field: _rounded(by_role[role].lr) for field, role in roles.items()}
    others |= {field: getattr(optim, field) for field in ("betas", "eps", "cooldown_steps", "final")}
    lr = _rounded(base_rate * by_role["matrix"].multiplier)
    if rule == "adamw":
        return OptimConfig(name="adamw", lr=lr, **others)
    return OptimConfig(
        name="muon", muon_lr=lr, muon_weight_decay=0.0, muon_cautious=False, muon_variance_reduction=False, **others
    )


def _rounded(rate: float) -> float:
    """To four digits: the last ones of a power differ between machines, and a run is known by its rates."""
    return float(f"{rate:.4g}")


def grid(p: DeltaPhiLeague) -> dict[Label, RunConfig]:
    """(intervention, budget, r, width, seed) -> run: every intervention in every cell, with every seed. Where one
    leaves the plain model alone, its plain runs are the baseline's."""
    for name in p.interventions:
        if name not in INTERVENTIONS:
            raise InputError(f"interventions: {name!r} is not known, use {', '.join(INTERVENTIONS)}")
    if BASELINE not in p.interventions:
        raise InputError(f"interventions: {BASELINE!r} is missing, which all others are compared with; add it")
    return {
        (name, budget, r, width, seed): run(p, name, r, width, budget, seed)
        for name in p.interventions
        for budget, widths in p.widths.items()
        for r in p.recurrences
        for width in widths
        for seed in p.seeds
    }
