"""What the notebooks' runs cost, counted from their plans; nothing is trained.

README.md and docs/scale.md show it in tables (lib/workbook/tables.py).
"""

import collections
import dataclasses
import functools
from collections.abc import Iterable, Sequence

from lib.config import RunConfig
from lib.flops import count, run_flops
from lib.text import generated
from lib.workbook import plans

PEAK, UTILISATION = 989e12, 0.4  # FLOP/s of an H200 (and an H100) in dense bf16, and the share that training is given
SAMPLE, BYTES_PER_TOKEN = 10e9, 4.65  # GPT-2's tokens of FineWeb-Edu's sample-10BT; 001's compression at 32,768 entries
WEIGHT, MOMENTS = 4, 8  # bytes of a parameter in fp32, and of AdamW's two moments (Muon has one)

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


def by_budget(configs: Sequence[RunConfig], budgets: list[float]) -> dict[float, list[RunConfig]]:
    """The runs at each budget: those that meet it, as their paper counts FLOPs, to within a tenth."""
    found: dict[float, list[RunConfig]] = {budget: [] for budget in budgets}
    for cfg in configs:
        spent = cfg.tokens * count(cfg.model, cfg.data.context).flops_per_token_published
        nearest = min(budgets, key=lambda budget: abs(spent / budget - 1))
        if abs(spent / nearest - 1) < 0.1:
            found[nearest].append(cfg)
    return found
