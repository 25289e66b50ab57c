"""What the notebooks' runs cost, counted from their plans; nothing is trained.

docs/scale.md shows it in tables.
"""

import collections
import dataclasses
import functools
from collections.abc import Iterable, Sequence

from lib.config import RunConfig
from lib.flops import count, run_flops
from lib.sweep.cluster import memory_of
from lib.text import generated
from lib.workbook import plans
from lib.workbook.markdown import table

PEAK, UTILISATION = 989e12, 0.4  # FLOP/s of an H200 (and an H100) in dense bf16, and the share that training is given
SAMPLE, BYTES_PER_TOKEN = 10e9, 4.65  # GPT-2's tokens of FineWeb-Edu's sample-10BT; 001's compression at 32,768 entries
WEIGHT, MOMENTS = 4, 8  # bytes of a parameter in fp32, and of AdamW's two moments (Muon has one)

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
        "beyond": "delta_phi_league depth_tasks published_models",
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


def weights(cfg: RunConfig) -> int:
    """How many parameters a run's model has."""
    return count(cfg.model).n_params


def text_bytes(configs: Iterable[RunConfig]) -> float:
    """Bytes of the tokens that the distinct texts of these runs become, about: two a token, or four where ids need
    them."""
    return sum(
        {(cfg.data.source, cfg.data.max_bytes, cfg.data.tokenizer): _text_bytes(cfg) for cfg in configs}.values()
    )


def _text_bytes(cfg: RunConfig) -> float:
    if cfg.data.source.startswith(generated.PREFIX):  # of bytes
        some = [len(document) for document in generated.documents(cfg.data.source, 1000)]
        return 2 * generated.DOCUMENTS * sum(some) / len(some)
    characters = min(cfg.data.max_bytes or SAMPLE * BYTES_PER_TOKEN, SAMPLE * BYTES_PER_TOKEN)
    if cfg.data.tokenizer == "bytes":
        return 2 * characters
    entries = int(cfg.data.tokenizer.removeprefix("bpe-"))
    return characters / BYTES_PER_TOKEN * (2 if entries <= 2**16 else 4)


def cells(configs: Iterable[RunConfig]) -> dict[str, RunConfig]:
    """The first run of every cell of a grid: of those that differ in their seed alone."""
    first: dict[str, RunConfig] = {}
    for cfg in configs:
        first.setdefault(cfg.replace(train=cfg.train.replace(seed=0)).key, cfg)
    return first


# ---- docs/scale.md ---------------------------------------------------------------------------------------------------


def parts() -> dict[str, str]:
    """The name of a part of docs/scale.md -> the part."""
    return {
        "cpu": distinct("cpu"),
        "desk": distinct("desk"),
        "sum": in_short(),
        "papers": papers(),
        "notebooks": notebooks(),
    }


def distinct(profile: str) -> str:
    """What a profile trains, in a sentence."""
    own = [cfg for cost in costs(profile).values() for cfg in cost.own]
    seeds = {cfg.train.seed for cfg in own}
    return f"{len(own):,} distinct runs with {len(seeds)} seeds, {sum(map(run_flops, own)):.2g} FLOPs."


def in_short() -> str:
    """What to know first, in sentences."""
    every = costs("paper")
    own = [cfg for cost in every.values() for cfg in cost.own]
    flops = sum(cost.flops for cost in every.values())
    without_002 = flops - sum(every[name].flops for name in NOTEBOOKS["002"])
    first = cells(own).values()
    longest, widest = max(own, key=run_flops), max(own, key=memory_of)
    of = next(cost.notebook for cost in every.values() if longest in cost.own)
    all_hours, other_hours, first_hours, longest_hours = (
        _whole(hours(each)) for each in (flops, without_002, sum(map(run_flops, first)), run_flops(longest))
    )
    size, memory = _short(weights(widest)), _bytes(memory_of(widest))
    return f"""\
- Everything: {len(own):,} distinct runs, {flops:.2g} FLOPs, {all_hours} GPU hours; without 002, whose runs read 10
  billion tokens each, {other_hours}.
- One seed of everything, the first: {len(first):,} runs, {first_hours} GPU hours.
- The longest run, of `{of}`, takes {longest_hours} hours on one GPU, which is what a run is
  given, and the whole takes as long as its longest run.
- The largest run, of {size} parameters, needs about {memory} of a GPU's memory."""


def papers() -> str:
    """One row a paper, and their sum."""
    every = costs("paper")
    rows = [_paper(paper, [every[name] for name in names]) for paper, names in NOTEBOOKS.items()]
    return table([*rows, _paper("all", list(every.values()))])


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
        "text": _bytes(text_bytes(own)),
        "store": _bytes(WEIGHT * sum(map(weights, own))),
    }


def notebooks() -> str:
    """One row a notebook."""
    return table([_notebook(cost) for cost in costs("paper").values()])


def _notebook(cost: Cost) -> dict[str, str]:
    runs, sizes = cost.runs, [weights(cfg) for cfg in cost.runs]
    measured = f" + {cost.measurements:,} measured" if cost.measurements else ""
    return {
        "notebook": f"`{cost.notebook}`",
        "runs": f"{len(cost.own):,}{measured}",
        "besides, from": ", ".join(f"{n} `{name}`" for name, n in cost.shared.items()),
        "parameters": _range(sizes),
        "tokens": _short(sum(cfg.tokens for cfg in cost.own)),
        "FLOPs": f"{cost.flops:.2g}",
        "GPU hours": _whole(hours(cost.flops)),
        "longest run, hours": _whole(max((hours(run_flops(cfg)) for cfg in runs), default=0)),
        "text": _bytes(text_bytes(runs)),
        "store": _bytes(WEIGHT * sum(map(weights, cost.own))),
        "checkpoint": _bytes((WEIGHT + MOMENTS) * max(sizes, default=0)),
        "memory": _bytes(max(map(memory_of, runs), default=0)),
    }


# ---- numbers in a cell -----------------------------------------------------------------------------------------------


def _whole(value: float) -> str:
    """Hours; nothing for none."""
    if not value:
        return ""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 0.1 else "below 0.1"


def _range(values: Sequence[int]) -> str:
    """From the least to the most, where they differ."""
    low, high = (_short(least(values)) for least in (min, max)) if values else ("", "")
    return low if low == high else f"{low} to {high}"


def _short(value: float) -> str:
    """Three digits and a unit; nothing for 0."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}" if value else ""


def _bytes(value: float) -> str:
    """GB or TB; nothing for 0."""
    if not value:
        return ""
    unit, size = ("TB", 1e12) if value >= 1e12 else ("GB", 1e9)
    return f"{value / size:,.2g} {unit}" if value / size < 10 else f"{value / size:,.0f} {unit}"
