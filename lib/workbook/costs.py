"""What the notebooks' runs cost, counted from their plans; nothing is trained.

docs/scale.md shows it in tables.
"""

import functools

import pandas as pd

from lib.figures.style import short
from lib.flops import count, run_flops
from lib.sweep.cluster import memory_of
from lib.workbook import plans
from lib.workbook.markdown import table

PEAK, UTILISATION = 989e12, 0.4  # FLOP/s of an H200 (and an H100) in dense bf16, and the share that training is given

#: paper -> its notebooks, in the order in which papers are counted: what two ask for is counted with the first
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


@functools.cache
def asked(profile: str) -> pd.DataFrame:
    """A row for each run that a notebook asks for; what several ask for has a row with each. Takes half a minute."""
    rows = [
        {
            "paper": paper,
            "notebook": name,
            "key": cfg.key,
            "seed": cfg.train.seed,
            "parameters": count(cfg.model).n_params,
            "tokens": cfg.tokens,
            "flops": run_flops(cfg),
            "memory": memory_of(cfg),
        }
        for paper, names in NOTEBOOKS.items()
        for name in names
        for cfg in plans.plan(name, profile).runs
    ]
    return pd.DataFrame(rows)


def hours(flops: float) -> float:
    """On one GPU, with the assumed utilisation."""
    return flops / (PEAK * UTILISATION) / 3600


def parts() -> dict[str, str]:
    """The name of a part of docs/scale.md -> the part."""
    every = asked("paper")
    once = every.drop_duplicates("key")
    papers = [_row("paper", str(paper), its) for paper, its in once.groupby("paper", sort=False)]
    notebooks = [_row("notebook", f"`{name}`", its) for name, its in every.groupby("notebook", sort=False)]
    return {
        "cpu": distinct("cpu"),
        "desk": distinct("desk"),
        "papers": table([*papers, _row("paper", "all", once)]),
        "notebooks": table(notebooks),
    }


def distinct(profile: str) -> str:
    """What a profile trains, in a sentence."""
    runs = asked(profile).drop_duplicates("key")
    return f"{len(runs):,} distinct runs with {runs['seed'].nunique()} seeds, {runs['flops'].sum():.2g} FLOPs."


def _row(heading: str, name: str, runs: pd.DataFrame) -> dict[str, str]:
    """What they cost together, and the largest of them."""
    flops = runs["flops"]
    return {
        heading: name,
        "runs": f"{len(runs):,}",
        "tokens": short(runs["tokens"].sum()),
        "FLOPs": f"{flops.sum():.2g}",
        "GPU hours": f"{hours(flops.sum()):,.1f}",
        "longest run, hours": f"{hours(flops.max()):,.1f}",
        "largest model": short(runs["parameters"].max()),
        "memory": f"{runs['memory'].max() / 1e9:.3g} GB",
    }
