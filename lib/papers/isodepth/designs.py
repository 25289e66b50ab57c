"""The iso-depth grid of 000: which runs and which models, ours and the paper's.

Every model has ``once`` + ``looped`` effective layers. At r loops the looped part is looped / r unique layers. A run's
budget C buys D = C / F tokens, where F is the paper's training FLOPs per token.
"""

import functools
from typing import Any

import numpy as np
import pandas as pd

from lib.base.errors import InputError
from lib.config import Label, ModelConfig, OptimConfig, RunConfig
from lib.fit.isoflop import sizes
from lib.flops import count
from lib.model import injection
from lib.papers.isodepth.parameters import Extrapolation, IsodepthGrid, IsodepthRuns, PaperGrid
from lib.papers.shared import budgets
from lib.presets import head_count, preset
from lib.train.optimiser import placements

# ---- the models ------------------------------------------------------------------------------------------------------


def model(p: IsodepthRuns, r: int, width: int, **fields: Any) -> ModelConfig:
    """000's model at r loops: once / 2 layers, looped / r layers looped r times, once / 2 layers. ``fields`` change
    others of its fields.

    Raises InputError where the layers cannot be cut so.
    """
    if r < 1 or p.looped % r:
        raise InputError(
            f"recurrences: {p.looped} looped layers are not shared by {r} loops, use divisors of {p.looped}"
        )
    if p.once < 0 or p.once % 2:
        raise InputError(f"once: {p.once} layers are no prelude and coda of the same size, use an even number")
    stated = dict(
        vocab_size=p.vocab_size,
        width=width,
        heads=head_count(width, p.head_dim, "widths"),
        mlp_width=4 * width,
        context=p.context,
        prelude=p.once // 2,
        recur=p.looped // r,
        coda=p.once // 2,
        mean_loops=r,
    )
    return preset("isodepth-s10-r1" if r == 1 else "isodepth-s10-r4", **{**stated, **fields})


#: 000, App. C.2: the injections of its ablation, as changes to its model
INJECTIONS: dict[str, dict[str, Any]] = {
    "linear": {},
    "additive": {"injection": "add", "state_init": "zero"},
    "passthrough": {"injection": "none"},
    "hyper-connections": {"injection": "hyper-connections"},
    "hyper-connections, as printed": {"injection": "hyper-connections", "lanes_receive": "s"},
}
#: others by their own names, with h_0 = e: "lti", "concat", and what is added to lib/model/injection.py
INJECTIONS |= {name: {"injection": name} for name in injection.INJECTIONS if name not in ("none", "add", *INJECTIONS)}


def intervention(name: str, r: int) -> dict[str, Any]:
    """The fields that one of 000's probes changes in its model at r loops (App. G.1); none at r = 1.

    truncated: only the last ceil(r / 2) loops carry gradient. hyper-connections: two lanes instead of the injection,
    which receive what the blocks add, or as printed their output.
    """
    changes: dict[str, dict[str, Any]] = {
        "baseline": {},
        "truncated": {"backprop_loops": -(-r // 2)},
        **{name: changes for name, changes in INJECTIONS.items() if name.startswith("hyper-connections")},
    }
    if name not in changes:
        raise InputError(f"probes: {name!r} is not known, use {', '.join(changes)}")
    return changes[name] if r > 1 else {}


def size(cfg: ModelConfig) -> dict[str, float]:
    """n_once and n_rec, the parameters outside and inside the loop without the tables; N, their sum; F, the paper's
    training FLOPs per token."""
    counts = count(cfg)
    return {
        "n_once": counts.n_once,
        "n_rec": counts.n_rec,
        "N": counts.n_once + counts.n_rec,
        "F": counts.published["000"],
    }


def families(p: IsodepthGrid, probe: str = "baseline", beyond: int = 1) -> dict[int, pd.DataFrame]:
    """r -> the sizes of its family at every width of the grid, down to a ``beyond``-th of the narrowest and up to as
    many times the widest, so that an optimum by a law is not cut off where the grid ends."""
    widths = {width for some in p.widths.values() for width in some}
    narrowest = max(1, min(widths) // beyond // p.head_dim) * p.head_dim
    widths |= {narrowest, beyond * max(widths)}
    return {r: sizes([model(p, r, width, **intervention(probe, r)) for width in sorted(widths)]) for r in p.recurrences}


# ---- the runs --------------------------------------------------------------------------------------------------------


def run(
    p: IsodepthRuns,
    cfg: ModelConfig,
    budget: float,
    seed: int,
    lanes_lr: float | None = None,
    grow_from: int | None = None,
) -> RunConfig:
    """A model trained for ``budget`` FLOPs as 000 trains it; ``lanes_lr`` is the base rate of hyper-connections, 000's
    own when empty, and of no account to a model without; ``grow_from`` the loops of a model that grows."""
    lanes = {"lanes_lr": lanes_lr} if lanes_lr and cfg.injection == "hyper-connections" else None
    return budgets.run(p, cfg, budget, seed, rates=lanes, grow_from=grow_from)


def grid(
    p: IsodepthRuns,
    recurrences: list[int],
    widths: dict[float, list[int]],
    seeds: list[int],
    probe: str = "baseline",
    lanes_lr: float | None = None,
) -> dict[Label, RunConfig]:
    """("r = ...", budget, r, width, seed) -> run, for every r, every budget of ``widths``, its widths, and every seed.
    Under a probe the label's first part is its name."""
    return {
        (f"r = {r}" if probe == "baseline" else probe, budget, r, width, seed): run(
            p, model(p, r, width, **intervention(probe, r)), budget, seed, lanes_lr
        )
        for r in recurrences
        for budget in widths
        for width in widths[budget]
        for seed in seeds
    }


def grid_with_noise(p: PaperGrid) -> dict[Label, RunConfig]:
    """The whole grid with its seeds; and with the noise_seeds its least and most recurrences at the lowest budget's
    second width."""
    whole = grid(p, p.recurrences, {budget: p.widths[budget] for budget in p.budgets}, p.seeds)
    ends, lowest = sorted({min(p.recurrences), max(p.recurrences)}), min(p.budgets)
    return whole | grid(p, ends, {lowest: p.widths[lowest][1:2]}, p.noise_seeds)


def matched_tokens(p: Extrapolation) -> dict[Label, RunConfig]:
    """("beyond the grid", budget, r, width, seed) -> run, all on the tokens that ``beyond_budget`` FLOPs buy the first
    of them, in batches of ``beyond_batch`` rows (000, App. I)."""
    p = p.replace(batch=p.beyond_batch or p.batch)
    models = {r: model(p, r, p.beyond_width) for r in p.beyond_recurrences}
    flops = {r: size(cfg)["F"] for r, cfg in models.items()}
    first = flops[p.beyond_recurrences[0]]
    return {
        ("beyond the grid", p.beyond_budget, r, p.beyond_width, seed): run(
            p, cfg, p.beyond_budget * flops[r] / first, seed
        )
        for r, cfg in models.items()
        for seed in p.beyond_seeds
    }


# ---- the league's: other optimisers than MuonH ----------------------------------------------------------------------


@functools.cache  # of all seeds
def moved_by(
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


# ---- the paper's own -------------------------------------------------------------------------------------------------

#: the joint law of 000 at full precision (its project page), which counts the injection once
PUBLISHED = dict(A=28.027, B=915.82, E=1.56773, alpha=0.19924, beta=0.36863, phi=0.459)
#: Table 6: budget -> s = d / 64 -> the tokens that it buys at r = 1, in billions
PUBLISHED_WIDTHS = {
    4.64e17: {6: 0.98, 8: 0.64, 10: 0.45, 12: 0.34},
    1e18: {6: 2.10, 8: 1.36, 10: 0.97, 12: 0.72, 14: 0.56},
    2.15e18: {8: 2.95, 10: 2.08, 12: 1.55, 14: 1.20, 16: 0.96},
    4.64e18: {10: 4.49, 12: 3.34, 14: 2.59, 16: 2.07, 18: 1.70, 20: 1.42},
    1e19: {12: 7.13, 16: 4.43, 18: 3.62, 20: 3.05, 24: 2.20},
    2.15e19: {18: 7.78, 24: 4.71, 28: 3.58, 34: 2.52},
}
PUBLISHED_RECURRENCES = (1, 2, 4, 8)
#: Table 6: s -> unique parameters outside the tables in millions, at each of these recurrences
PUBLISHED_SIZES = {
    6: (35.4, 21.5, 14.5, 10.9),
    8: (62.9, 38.3, 25.7, 19.4),
    10: (98.3, 59.8, 40.2, 30.3),
    12: (141.6, 86.1, 57.8, 43.7),
    14: (192.7, 117.2, 78.7, 59.4),
    16: (251.7, 153.1, 102.8, 77.6),
    18: (318.6, 193.8, 130.1, 98.2),
    20: (393.3, 239.2, 160.6, 121.3),
    24: (566.3, 344.5, 231.2, 174.6),
    28: (770.8, 468.9, 314.7, 237.7),
    34: (1136.5, 691.4, 464.1, 350.4),
}
#: phi on its lower four budgets, under its probes and without (Sec. 5)
PUBLISHED_PROBES = {"baseline": 0.45, "truncated": 0.38, "hyper-connections": 0.65}


def published_families(probe: str = "baseline") -> dict[int, pd.DataFrame]:
    """r -> the sizes of the paper's family, s = 6 to 34, as its fit has them: the injection is counted among the
    parameters that run once."""
    found = {}
    for r in PUBLISHED_RECURRENCES:
        models = [preset(f"isodepth-s{s}-r{r}", **intervention(probe, r)) for s in range(6, 36, 2)]
        own, moved = sizes(models), np.array([count(cfg).n_injection for cfg in models])
        found[r] = own.assign(n_once=own["n_once"] + moved, n_rec=own["n_rec"] - moved)
    return found


def published_token_gain(probe: str) -> float:
    """Median over the cells of the paper's lower four budgets of the tokens that a probe buys relative to full
    backpropagation through the linear injection (App. G.1)."""
    ratios = [
        size(preset(f"isodepth-s{s}-r{r}"))["F"] / size(preset(f"isodepth-s{s}-r{r}", **intervention(probe, r)))["F"]
        for budget in sorted(PUBLISHED_WIDTHS)[:4]
        for s in PUBLISHED_WIDTHS[budget]
        for r in PUBLISHED_RECURRENCES[1:]
    ]
    return float(np.median(ratios))
