"""004's runs: Base, Looped, MoE and Looped-MoE at any size, matched in what a token uses.

``p`` is everywhere the parameters of a notebook: depth, the effective layers, and loops, of the looped two; experts,
active_experts and head_dim; vocab_size, context; the text; batch, micro_batch and precision.
"""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from lib.base.errors import InputError
from lib.config import DataConfig, Label, ModelConfig, RunConfig, TrainConfig
from lib.fit import isoflop
from lib.flops import count
from lib.model.routing import KINDS
from lib.presets import head_count, optimizer, preset
from lib.store.runs import RunResult

#: the four, and the names of their colours and markers: Base is a plain Transformer
LOOK = {"base": "transformer", "looped": "looped", "moe": "moe", "looped-moe": "looped-moe"}
TITLES = {"base": "Base", "looped": "Looped", "moe": "MoE", "looped-moe": "Looped-MoE"}
WARMUP = 0.05  # of a run; ours, 004 does not state it
VALIDATIONS = 8  # of a run of ``studied``, each with a look at its routing


def model(p: dict[str, Any], architecture: str, width: int, loops: int | None = None) -> ModelConfig:
    """One of the four at a width d: ``depth`` effective layers, the looped ones as depth / loops layers (p's loops when
    None), SwiGLU of 8 d / 3 rounded up to a multiple of 64, below a width of 128 of 8, split among the active experts
    (004, Table 1 and 5).

    Raises InputError for another name, or sizes that do not divide."""
    if architecture not in LOOK:
        raise InputError(f"architectures: {architecture!r} is not known, use {', '.join(LOOK)}")
    depth, loops, head_dim = p["depth"], loops or p["loops"], p["head_dim"]
    if depth % loops:
        raise InputError(f"loops: {loops} loops do not divide the depth of {depth} layers, use a divisor")
    multiple = 64 if width >= 128 else 8
    looped, sparse = "looped" in architecture, "moe" in architecture
    stacks = {"recur": depth // loops, "mean_loops": loops} if looped else {"prelude": depth}
    experts = {"experts": p["experts"], "active_experts": p["active_experts"]} if sparse else {}
    return preset(
        f"{architecture}-128", width=width, heads=head_count(width, head_dim, "widths"),
        mlp_width=-(-8 * width // (3 * multiple)) * multiple,
        vocab_size=p["vocab_size"], context=p["context"], **stacks, **experts,
    )  # fmt: skip


def run(
    p: dict[str, Any], cfg: ModelConfig, lr: float, steps: int, seed: int, eval_every: int | None = None
) -> RunConfig:
    """A run of ``steps`` at base rate ``lr``, as 004 trains: muP, AdamW with independent decay, warm-up, stable, and a
    square-root cool-down over the last tenth."""
    warmup = int(WARMUP * steps)
    return RunConfig(
        model=cfg, data=DataConfig.of(p),
        optim=optimizer("base-128", steps, lr=lr, warmup_steps=warmup),
        train=TrainConfig(
            steps=steps, batch=p["batch"], micro_batch=p["micro_batch"] or None, precision=p["precision"], seed=seed,
            eval_every=eval_every,
        ),
    )  # fmt: skip


def grid(p: dict[str, Any]) -> dict[Label, RunConfig]:
    """(architecture, budget, width, seed) -> run of the iso-FLOP study (004, Sec. "IsoFLOP Scaling Study"): D = C / (6
    N_active) tokens at each of the ``widths`` of each budget.

    Raises InputError where a parabola would have fewer than three widths, or a run fewer than ten steps."""
    runs: dict[Label, RunConfig] = {}
    for architecture in p["architectures"]:
        for budget, widths in p["widths"].items():
            if len(set(widths)) < 3:
                raise InputError(f"widths: {widths} at {budget:g} FLOPs are too few for a parabola, list three")
            for width in widths:
                cfg = model(p, architecture, width)
                steps = round(budget / count(cfg).published["004"] / (p["batch"] * p["context"]))
                if steps < 10:
                    raise InputError(f"widths: {width} has {steps} steps at {budget:g} FLOPs, leave it out there")
                runs |= {(architecture, budget, width, seed): run(p, cfg, p["lr"], steps, seed) for seed in p["seeds"]}
    return runs


def frame(results: Iterable[RunResult], plan: dict[Label, RunConfig]) -> pd.DataFrame:
    """One row a finished run of ``grid``: its label, N active and ``stored`` parameters, F training FLOPs per token as
    004 counts them, D tokens and validation loss in nats per token."""
    rows = []
    for label, result in zip(plan, results, strict=True):
        counts = count(result.config.model)
        sizes = {"N": counts.n_active, "stored": counts.n_params, "F": counts.published["004"]}
        row = dict(zip(("architecture", "budget", "width", "seed"), label, strict=True)) | sizes
        if result.status == "finished":
            rows.append(row | {"D": result.config.tokens, "loss": result.summary["val_loss"]})
    return pd.DataFrame(rows)


def best_models(runs: pd.DataFrame) -> pd.DataFrame:
    """One row an architecture and budget: the compute-optimal model of ``isoflop.optima``, or where the parabola has no
    minimum among the sizes trained (``inside`` is False) the best of these; and the parameters that it stores, between
    the sizes by a power law."""
    best = isoflop.optima(runs, ["architecture", "budget"])
    for i in best.index:
        row = best.loc[i]
        own = runs[(runs["architecture"] == row["architecture"]) & (runs["budget"] == row["budget"])].sort_values("N")
        if not row["inside"]:
            columns = ["N", "D", "width", "loss"]
            best.loc[i, columns] = own.loc[own["loss"].idxmin(), columns].astype(float)
        best.loc[i, "stored"] = np.exp(np.interp(np.log(best.loc[i, "N"]), np.log(own["N"]), np.log(own["stored"])))
    return best


def gaps(best: pd.DataFrame, better: str, worse: str) -> pd.Series:
    """By budget, nats by which the loss of ``better`` lies below that of ``worse``, of their ``best_models``."""
    losses = best.pivot(index="budget", columns="architecture", values="loss")
    return losses[worse] - losses[better]


def table_of_sizes() -> pd.DataFrame:
    """004's table of configurations, from its presets: active parameters, of the four the least and the
    most, and stored ones, in millions."""
    rows = []
    for width in range(128, 1025, 128):
        counts = {name: count(preset(f"{name}-{width}")) for name in LOOK}
        active = [c.n_active / 1e6 for c in counts.values()]
        stored = {f"stored, {TITLES[name]}": counts[name].n_params / 1e6 for name in ("looped-moe", "moe")}
        rows.append({"d": width, "active, least": min(active), "active, most": max(active), **stored})
    return pd.DataFrame(rows).set_index("d")


def name(architecture: str, depth: int, loops: int) -> str:
    """As 004 writes it: Looped-MoE 4x2, unique layers by loops; the names of the others alone."""
    return TITLES[architecture] + f" {depth // loops}x{loops}" * ("looped" in architecture)


def studied(p: dict[str, Any], each: list[int], architectures: Iterable[str] = tuple(LOOK)) -> dict[Label, RunConfig]:
    """(name, seed) -> the runs of one size that routing, convergence and early exit are studied on: ``width``,
    ``steps``, the looped ones with ``each`` number of loops (004, Sec. "Does More Looping Improve Early-Exit
    Efficiency?"). Where routers loop, they are looked at on the way."""
    runs: dict[Label, RunConfig] = {}
    look = max(1, p["steps"] // VALIDATIONS)
    for architecture in architectures:
        for loops in each if "looped" in architecture else each[:1]:
            cfg = model(p, architecture, p["width"], loops)
            runs |= {
                (name(architecture, p["depth"], loops), seed): run(
                    p, cfg, p["lr"], p["steps"], seed, look if cfg.experts > 1 and cfg.recur else None
                )
                for seed in p["seeds"]
            }
    return runs


def routing_curves(plan: dict[Label, RunConfig], results: Iterable[RunResult]) -> pd.DataFrame:
    """One row a validation of each run of ``studied``: name, seed, step, and the shares of tokens of
    ``routing.divergence``, the mean of layers and pairs of loops."""
    rows = []
    for (name, seed), result in zip(plan, results, strict=True):
        metrics = pd.DataFrame(result.metrics)
        for kind in (*KINDS, *(f"{kind} by chance" for kind in KINDS)):
            pairs = [column for column in map(str, metrics) if re.fullmatch(rf"routing {kind} \d+-\d+", column)]
            metrics[kind] = metrics[pairs].mean(axis=1)
        rows.append(metrics.dropna(subset="none").assign(name=name, seed=seed))
    return pd.concat(rows)[["name", "seed", "step", *KINDS, *(f"{kind} by chance" for kind in KINDS)]]
