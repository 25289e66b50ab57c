"""What the notebooks' runs cost, counted from their plans; nothing is trained.

docs/scale.md shows it in tables.
"""

import collections
import dataclasses
import functools
from collections.abc import Sequence

from lib.config import RunConfig
from lib.figures.style import short
from lib.flops import count, run_flops
from lib.sweep.cluster import memory_of
from lib.workbook import plans
from lib.workbook.markdown import table

PEAK, UTILISATION = 989e12, 0.4  # FLOP/s of an H200 (and an H100) in dense bf16, and the share that training is given

STATED = {"000": "about 5,000", "004": "about 2,000"}  # GPU hours that the papers state

#: paper -> its notebooks, in the order in which runs are counted: what two ask for is counted with the first
NOTEBOOKS = {
    paper: names.split()
    for paper, names in {
        "000": "isodepth_isoflop recurrence_exponent phi_probes injection_ablation lr_transfer_hyperp extrapolation "
        "downstream_axes published_runs",
        "001": "instability stability_ablation depth_sampling backprop_depth end_to_end looping_isoflop "
        "test_time_saturation unified_law tokenizer_compression",
        "002": "residual_scaling_init loop_lr_transfer residual_scaling_trained residual_scaling_beyond",
        "003": "usage_weighted",
        "004": "mup_transfer moe_isoflop routing_divergence convergence early_exit early_exit_wallclock generate "
        "downstream_core",
        "beyond": "delta_phi_league depth_tasks other_groups published_models",
    }.items()
}


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a notebook asks for. Of its distinct ``runs`` no earlier notebook asks for its ``own``; ``shared`` says how
    many each earlier one asks for. The last two count what it measures without training."""

    notebook: str
    runs: list[RunConfig]
    own: list[RunConfig]
    shared: dict[str, int]
    measurements: int
    measured_flops: float

    @property
    def flops(self) -> float:
        return sum(map(run_flops, self.own)) + self.measured_flops


@functools.cache
def costs(profile: str) -> dict[str, Cost]:
    """Notebook -> its cost, in the order of NOTEBOOKS. Takes half a minute."""
    first: dict[str, str] = {}  # key -> the notebook that counts it
    found = {}
    for name in (name for names in NOTEBOOKS.values() for name in names):
        plan = plans.plan(name, profile)
        shared = collections.Counter(first[cfg.key] for cfg in plan.runs if cfg.key in first)
        own = [cfg for cfg in plan.runs if cfg.key not in first]
        first |= {cfg.key: name for cfg in own}
        cases = [flops for keys in plan.measurements.values() for flops in keys.values()]
        found[name] = Cost(name, plan.runs, own, dict(shared), len(cases), sum(cases))
    return found


def hours(flops: float) -> float:
    """On one GPU, with the assumed utilisation."""
    return flops / (PEAK * UTILISATION) / 3600


# ---- docs/scale.md ---------------------------------------------------------------------------------------------------


def parts() -> dict[str, str]:
    """The name of a part of docs/scale.md -> the part."""
    every = costs("paper")
    by_paper = {paper: [every[name] for name in names] for paper, names in NOTEBOOKS.items()}
    return {
        "cpu": distinct("cpu"),
        "desk": distinct("desk"),
        "papers": table([_paper(paper, its) for paper, its in (by_paper | {"all": [*every.values()]}).items()]),
        "notebooks": table([_notebook(cost) for cost in every.values()]),
    }


def distinct(profile: str) -> str:
    """What a profile trains, in a sentence."""
    own = [cfg for cost in costs(profile).values() for cfg in cost.own]
    seeds = {cfg.train.seed for cfg in own}
    return f"{len(own):,} distinct runs with {len(seeds)} seeds, {sum(map(run_flops, own)):.2g} FLOPs."


def _paper(paper: str, its: Sequence[Cost]) -> dict[str, str]:
    own = [cfg for cost in its for cfg in cost.own]
    flops = sum(cost.flops for cost in its)
    return {
        "paper": paper,
        "runs": f"{len(own):,}",
        "FLOPs": f"{flops:.2g}",
        "GPU hours": _whole(hours(flops)),
        "the paper states": STATED.get(paper, "" if paper == "all" else "nothing"),
        "longest run, hours": _whole(max(hours(run_flops(cfg)) for cfg in own)),
    }


def _notebook(cost: Cost) -> dict[str, str]:
    measured = f" + {cost.measurements:,} measured" if cost.measurements else ""
    return {
        "notebook": f"`{cost.notebook}`",
        "runs": f"{len(cost.own):,}{measured}",
        "besides, from": ", ".join(f"{n} `{name}`" for name, n in cost.shared.items()),
        "largest model": short(max((count(cfg.model).n_params for cfg in cost.runs), default=0)),
        "tokens": short(sum(cfg.tokens for cfg in cost.own)),
        "FLOPs": f"{cost.flops:.2g}",
        "GPU hours": _whole(hours(cost.flops)),
        "longest run, hours": _whole(max((hours(run_flops(cfg)) for cfg in cost.runs), default=0)),
        "memory": _gigabytes(max(map(memory_of, cost.runs), default=0)),
    }


def _whole(value: float) -> str:
    """Hours; nothing for none."""
    if not value:
        return ""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 0.1 else "below 0.1"


def _gigabytes(value: float) -> str:
    return f"{value / 1e9:.2g} GB" if value < 1e11 else f"{value / 1e9:.0f} GB"
