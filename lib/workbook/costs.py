"""What the paper profile costs, counted from the runs that its notebooks plan: the tables of docs/scale.md.

The prose of that file is written by hand, the tables between <!-- NAME --> and <!-- /NAME --> are put in by
``python -c 'from lib.workbook.costs import write; write()'``, and a test sees that they are what the plans say.
"""

import collections
import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from lib.config import RunConfig
from lib.flops import count
from lib.sweep.cluster import memory_of
from lib.sweep.cost import run_flops
from lib.workbook import plans
from lib.workbook.notebook import ROOT, read_parameters

DOCUMENT = ROOT / "docs" / "scale.md"
PEAK, UTILISATION = 989e12, 0.4  # FLOP/s of an H200 (and an H100) in dense bf16, and the share that training is given
SAMPLE, BYTES_PER_TOKEN = 10e9, 4.65  # GPT-2's tokens of FineWeb-Edu's sample-10BT; 001's compression at 32,768 entries
WEIGHT, MOMENTS = 4, 8  # bytes of a parameter in fp32, and of AdamW's two moments (Muon has one)

#: paper -> its notebooks in the order in which runs are counted: what two share is the first one's
NOTEBOOKS = {
    "000": ["isodepth_isoflop", "recurrence_exponent", "phi_probes", "injection_ablation", "lr_transfer_hyperp",
            "extrapolation", "downstream_axes"],
    "001": ["instability", "stability_ablation", "depth_sampling", "backprop_depth", "end_to_end", "looping_isoflop",
            "test_time_saturation", "unified_law", "tokenizer_compression"],
    "002": ["residual_scaling_init", "loop_lr_transfer", "residual_scaling_trained", "residual_scaling_beyond"],
    "003": ["usage_weighted"],
    "004": ["mup_transfer", "moe_isoflop", "routing_divergence", "convergence", "early_exit", "early_exit_wallclock",
            "generate", "downstream_core"],
    "beyond": ["delta_phi_league"],
}  # fmt: skip
#: GPU hours that the papers state
STATED = {"000": "about 5,000", "004": "about 2,000"}
#: grids with FLOP budgets, and the parameter that lists what is compared at each
GRIDS = {"isodepth_isoflop": "recurrences", "phi_probes": "", "looping_isoflop": "loops", "usage_weighted": "",
         "moe_isoflop": "architectures"}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Cost:
    """A notebook's distinct runs, those that no earlier notebook has, earlier notebook -> how many it lends, and the
    number and the FLOPs of what it measures without training."""

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
    """Of every notebook, in the order of NOTEBOOKS; half a minute, nothing is trained."""
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


def text_bytes(cfg: RunConfig) -> float:
    """Of the tokens that a run's text becomes, about: two bytes each, or four where ids need them."""
    characters = min(cfg.data.max_bytes or SAMPLE * BYTES_PER_TOKEN, SAMPLE * BYTES_PER_TOKEN)
    return characters / BYTES_PER_TOKEN * (2 if _entries(cfg) <= 2**16 else 4)


def _entries(cfg: RunConfig) -> int:
    return int(cfg.data.tokenizer.removeprefix("bpe-"))


def _texts_bytes(configs: Iterable[RunConfig]) -> float:
    """Of distinct texts."""
    return sum({(cfg.data.source, cfg.data.max_bytes, cfg.data.tokenizer): text_bytes(cfg) for cfg in configs}.values())


def _parameters(cfg: RunConfig) -> int:
    return count(cfg.model).n_params


# ---- tables ----------------------------------------------------------------------------------------------------------


def tables(profile: str = "paper") -> dict[str, str]:
    """Name -> table, in Markdown."""
    return {
        "sum": in_short(profile), "papers": papers(profile), "notebooks": notebooks(profile), "growth": growth(profile),
    }  # fmt: skip


def in_short(profile: str = "paper") -> str:
    """What to know first, in sentences."""
    every = costs(profile)
    own = [cfg for cost in every.values() for cfg in cost.own]
    total, without_002 = (
        sum(hours(every[name].flops) for paper, names in NOTEBOOKS.items() if paper != left_out for name in names)
        for left_out in ("", "002")
    )
    first = {cell: cfg for cfg in reversed(own) for cell in _cells([cfg])}.values()
    longest = max(own, key=run_flops)
    of = next(cost.notebook for cost in every.values() if longest in cost.own)
    widest = max(own, key=memory_of)
    flops, first_hours = sum(cost.flops for cost in every.values()), hours(sum(map(run_flops, first)))
    last, memory = whole(hours(run_flops(longest))), _bytes(memory_of(widest))
    return f"""\
- Everything: {len(own):,} distinct runs, {flops:.2g} FLOPs, {whole(total)} GPU hours; without 002, whose runs read 10
  billion tokens each, {whole(without_002)}.
- One seed of everything, the first: {len(first):,} runs, {whole(first_hours)} GPU hours.
- The longest run, of `{of}`, takes {last} hours on one GPU: a run is given one unless
  `RUN_GPUS` says more, and the whole takes as long as its longest run.
- The largest run, of {_short(_parameters(widest))} parameters, needs about {memory} of a GPU's memory."""


def notebooks(profile: str = "paper") -> str:
    """One row a notebook."""
    rows = []
    for cost in costs(profile).values():
        runs, sizes = cost.runs, [_parameters(cfg) for cfg in cost.runs]
        measured = f" + {cost.measurements:,} measured" if cost.measurements else ""
        rows.append([
            f"`{cost.notebook}`", f"{len(cost.own):,}{measured}",
            ", ".join(f"{n} `{name}`" for name, n in cost.shared.items()),
            _range(sizes, _short), _short(sum(cfg.tokens for cfg in cost.own)), f"{cost.flops:.2g}",
            whole(hours(cost.flops)), whole(max((hours(run_flops(cfg)) for cfg in runs), default=0)),
            _bytes(_texts_bytes(runs)), _bytes(WEIGHT * sum(map(_parameters, cost.own))),
            _bytes((WEIGHT + MOMENTS) * max(sizes, default=0)), _bytes(max(map(memory_of, runs), default=0)),
        ])  # fmt: skip
    head = ["notebook", "runs", "besides, from", "parameters", "tokens", "FLOPs", "GPU hours", "longest run, hours",
            "text", "store", "checkpoint", "memory"]  # fmt: skip
    return table(head, rows)


def papers(profile: str = "paper") -> str:
    """One row a paper, and their sum."""
    every = costs(profile)
    rows = [_paper_row(paper, [every[name] for name in names]) for paper, names in NOTEBOOKS.items()]
    rows.append(_paper_row("all", list(every.values())))
    head = ["paper", "runs", "FLOPs", "GPU hours", "the paper states", "longest run, hours", "text", "store"]
    return table(head, rows)


def _paper_row(paper: str, parts: Sequence[Cost]) -> list[str]:
    own = [cfg for cost in parts for cfg in cost.own]
    flops = sum(cost.flops for cost in parts)
    return [
        paper, f"{len(own):,}", f"{flops:.2g}", whole(hours(flops)),
        STATED.get(paper, "" if paper == "all" else "nothing"),
        whole(max(hours(run_flops(cfg)) for cfg in own)), _bytes(_texts_bytes(own)),
        _bytes(WEIGHT * sum(map(_parameters, own))),
    ]  # fmt: skip


def growth(profile: str = "paper") -> str:
    """One row a grid with FLOP budgets: the runs and the cost at each budget, and what one more of something costs."""
    rows = []
    for name, compared in GRIDS.items():
        parameters = read_parameters(profile, name)
        at = by_budget(costs(profile)[name].runs, sorted(map(float, parameters.get("budgets") or parameters["widths"])))
        total = sum(len(runs) * budget for budget, runs in at.items())
        top = max(at)
        once = sum(len(_cells(runs)) * budget for budget, runs in at.items())
        several = len(parameters[compared]) if compared else 0
        rows.append([
            f"`{name}`", ", ".join(f"{len(runs)} x {budget:.3g}" for budget, runs in at.items()),
            f"{total:.2g}", f"{len(at[top]) * top / total:.0%}", f"{10 * len(at[top]) * top:.2g}",
            f"{once:.2g}", f"{once / several:.2g}" if several else "",
        ])  # fmt: skip
    head = ["grid", "runs x budget", "FLOPs", "share of the largest budget", "one more budget, 10 times the largest",
            "one more seed of every cell", "one more recurrence or architecture"]  # fmt: skip
    return table(head, rows)


def by_budget(configs: Sequence[RunConfig], budgets: list[float]) -> dict[float, list[RunConfig]]:
    """The runs at each budget, which they meet as their paper counts FLOPs to within a tenth; others are left out."""
    found: dict[float, list[RunConfig]] = {budget: [] for budget in budgets}
    for cfg in configs:
        spent = cfg.tokens * count(cfg.model, cfg.data.context).flops_per_token_published
        nearest = min(budgets, key=lambda budget: abs(spent / budget - 1))
        if abs(spent / nearest - 1) < 0.1:
            found[nearest].append(cfg)
    return found


def _cells(configs: Sequence[RunConfig]) -> set[str]:
    """Runs, whatever their seed."""
    return {cfg.replace(train=cfg.train.replace(seed=0)).key for cfg in configs}


# ---- the document ----------------------------------------------------------------------------------------------------


def write(path: Path = DOCUMENT) -> None:
    """Puts the tables into the document."""
    path.write_text(filled(path.read_text(), tables()))


def filled(text: str, tables: dict[str, str]) -> str:
    """The document's text with its tables replaced."""
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        block = f"{begin}\n{table}\n{end}".replace("\\", r"\\")  # to be taken as it is
        text = re.sub(f"{begin}.*?{end}", block, text, flags=re.DOTALL)
    return text


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows])


def _range(values: Sequence[float], spell: Callable[[float], str]) -> str:
    low, high = (spell(f(values)) for f in (min, max)) if values else ("", "")
    return low if low == high else f"{low} to {high}"


def _short(value: float) -> str:
    """Two or three digits and a unit."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}" if value else ""


def _bytes(value: float) -> str:
    if not value:
        return ""
    unit, size = ("TB", 1e12) if value >= 1e12 else ("GB", 1e9)
    return f"{value / size:,.2g} {unit}" if value / size < 10 else f"{value / size:,.0f} {unit}"


def whole(value: float) -> str:
    if not value:
        return ""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 0.1 else "below 0.1"
