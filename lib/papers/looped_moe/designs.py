"""004's runs: Base, Looped, MoE and Looped-MoE at any size, matched in what a token uses. What is read off them, and
measured on them: where predictions settle, what leaving early costs, which experts loops take."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import torch

from lib.base.errors import InputError
from lib.base.parameters import Training
from lib.config import Label, ModelConfig, RunConfig
from lib.decode import exits, pace
from lib.flops import count
from lib.model.looped import LoopedLM
from lib.model.probes import looped_choices
from lib.model.routing import divergence
from lib.papers.looped_moe.parameters import FourModels, MoeIsoflop, Studied
from lib.papers.shared.budgets import steps_for
from lib.papers.shared.frames import finished
from lib.papers.shared.parameters import text_of, training_of
from lib.presets import head_count, optimizer, preset
from lib.store.result import RunResult
from lib.store.runs import RunStore
from lib.sweep.finished import OfRun, trained_model, validation_flops
from lib.sweep.measurements import named

#: the four, and the architectures whose colours and markers they have: Base is a plain Transformer
LOOK = {"base": "transformer", "looped": "looped", "moe": "moe", "looped-moe": "looped-moe"}
TITLES = {"base": "Base", "looped": "Looped", "moe": "MoE", "looped-moe": "Looped-MoE"}


def model(p: FourModels, architecture: str, width: int, loops: int) -> ModelConfig:
    """One of the four at a width d. All have ``depth`` effective layers, the looped ones as depth / loops layers looped
    ``loops`` times, and a SwiGLU of 8 d / 3 hidden units, rounded up to a multiple of 64, or of 8 below a width of 128,
    which the active experts share out among them (004, Table 1 and 5).

    Raises InputError for another name, or sizes that do not divide."""
    if architecture not in LOOK:
        raise InputError(f"architectures: {architecture!r} is not known, use {', '.join(LOOK)}")
    if p.depth % loops:
        raise InputError(f"loops: {loops} loops do not divide the depth of {p.depth} layers, use a divisor")
    multiple = 64 if width >= 128 else 8
    looped, sparse = "looped" in architecture, "moe" in architecture
    stacks = {"recur": p.depth // loops, "mean_loops": loops} if looped else {"prelude": p.depth}
    experts = {"experts": p.experts, "active_experts": p.active_experts} if sparse else {}
    return preset(
        f"{architecture}-128",
        width=width,
        heads=head_count(width, p.head_dim, "widths"),
        mlp_width=-(-8 * width // (3 * multiple)) * multiple,
        vocab_size=p.vocab_size,
        context=p.context,
        **stacks,
        **experts,
    )


def run(p: Training, cfg: ModelConfig, lr: float, steps: int, seed: int, eval_every: int | None = None) -> RunConfig:
    """A run of ``steps`` at base rate ``lr``, as 004 trains: muP, AdamW with independent decay, and a rate that warms
    up, over a twentieth (ours, 004 does not state it), stays, and falls over the last tenth like a square root."""
    return RunConfig(
        model=cfg,
        data=text_of(p),
        optim=optimizer("base-128", steps, lr=lr, warmup_steps=int(0.05 * steps)),
        train=training_of(p, steps=steps, seed=seed, eval_every=eval_every),
    )


def grid(p: MoeIsoflop) -> dict[Label, RunConfig]:
    """(architecture, budget, width, seed) -> run of the iso-FLOP study (004, Sec. "IsoFLOP Scaling Study"). Each budget
    C is spent at each of its ``widths``, on D = C / (6 N_active) tokens. Raises InputError where a run would have fewer
    than ten steps."""
    plan: dict[Label, RunConfig] = {}
    for architecture in p.architectures:
        for budget, widths in p.widths.items():
            for width in widths:
                cfg = model(p, architecture, width, p.loops)
                steps = steps_for(p, budget, count(cfg).published["004"], width)
                plan |= {(architecture, budget, width, seed): run(p, cfg, p.lr, steps, seed) for seed in p.seeds}
    return plan


def frame(results: Iterable[RunResult], plan: dict[Label, RunConfig]) -> pd.DataFrame:
    """One row a finished run of ``grid``: what its label says, N active and ``stored`` parameters, F training FLOPs per
    token as 004 counts them, D tokens, and the validation loss in nats per token."""

    def size(cfg: RunConfig) -> dict[str, float]:
        counts = count(cfg.model)
        return {"N": counts.n_active, "stored": counts.n_params, "F": counts.published["004"], "D": cfg.tokens}

    return finished(results, plan, ("architecture", "budget", "width", "seed"), size)


def name(architecture: str, depth: int, loops: int) -> str:
    """As 004 writes it: Looped-MoE 4x2, unique layers by loops; Base and MoE have a name alone."""
    return TITLES[architecture] + (f" {depth // loops}x{loops}" if "looped" in architecture else "")


def studied(p: Studied, each: list[int], architectures: Iterable[str] = tuple(LOOK)) -> dict[Label, RunConfig]:
    """(name, seed) -> run of the sizes that routing, convergence and early exit are studied on, the looped ones with
    ``each`` number of loops at one width (004, Sec. "Does More Looping Improve Early-Exit Efficiency?"). The routing of
    MoE layers that loop is looked at on the way, at eight validations."""
    plan: dict[Label, RunConfig] = {}
    for architecture in architectures:
        width, steps = p.size(architecture)
        for loops in each if "looped" in architecture else each[:1]:
            cfg = model(p, architecture, width, loops)
            look = max(1, steps // 8) if cfg.recur and cfg.experts > 1 else None
            for seed in p.seeds:
                plan[name(architecture, p.depth, loops), seed] = run(p, cfg, p.lr, steps, seed, look)
    return plan


# ---- what is measured ------------------------------------------------------------------------------------------------


class OfExits(OfRun):
    """The exits of a run on the first ``rows`` of its validation text: of a model that loops the ends of its loops, or
    with ``every_layer`` all effective layers, as of any other. ``saved``: shares of the depth that leaving saves."""

    rows: int
    every_layer: bool
    saved: tuple[float, ...] = ()

    def read(self) -> tuple[exits.Exits, LoopedLM, torch.Tensor]:
        """The exits, and the model and the rows [B, S + 1] that they are of."""
        model, validation = trained_model(self.cfg, self.store)
        x = torch.as_tensor(validation[: self.rows], device=model.embed.weight.device)
        return exits.exits_of_rows(model, x, self.every_layer or not self.cfg.model.recur), model, x


def of_exits(
    configs: Iterable[RunConfig], store: RunStore, rows: int, every_layer: bool = False, saved: Iterable[float] = ()
) -> list[OfExits]:
    """A case for each run."""
    return [
        OfExits.of(
            cfg,
            store,
            validation_flops(cfg) * rows / cfg.data.val_rows,
            rows=rows,
            every_layer=every_layer,
            saved=tuple(saved),
        )
        for cfg in configs
    ]


@named("lib.papers.looped_moe.convergence")
def convergence(case: OfExits) -> dict[str, Any]:
    """Columns of ``exits.convergence``, a number for each layer."""
    found, *_ = case.read()
    return {name: of.tolist() for name, of in exits.convergence(found, case.cfg.data.context).items()}


@named("lib.papers.looped_moe.trade_offs")
def trade_offs(case: OfExits) -> dict[str, Any]:
    """Perplexities at each of the shares ``saved``: ``entropy``, by that criterion from its first exit on; ``common``,
    by each criterion from the first exit on at which all of them have a score."""
    found, *_ = case.read()
    common = exits.first_common(found)
    return {
        "entropy": exits.trade_off(found, "entropy", list(case.saved)),
        "common": {name: exits.trade_off(found, name, list(case.saved), common) for name in exits.CRITERIA},
    }


@named("lib.papers.looped_moe.leaving")
def leaving(case: OfExits) -> dict[str, Any]:
    """``exits.at_thresholds`` for every ``threshold``, from 0 to the entropy of the uniform prediction in steps of .05
    nats; ``depth``, the exits' shares of the depth; ``median``, the median entropy at the first exit."""
    found, *_ = case.read()
    thresholds = 0.05 * np.arange(math.ceil(math.log(case.cfg.model.vocab_size) / 0.05) + 1)
    return {
        "threshold": thresholds.tolist(),
        "depth": found.depth.tolist(),
        "median": float(np.median(found.scores["entropy"][0])),
        **exits.at_thresholds(found, thresholds),
    }


@named("lib.papers.looped_moe.debts")
def debts(case: OfExits) -> dict[str, Any]:
    """Columns of ``pace.debts``, a number for each of the shares ``saved``."""
    found, model, x = case.read()
    return {str(name): of for name, of in pace.debts(model, x, found, case.saved).to_dict("list").items()}


@named("lib.papers.looped_moe.routing")
def routing(case: OfRun) -> dict[str, Any]:
    """Columns of ``routing.divergence`` on the validation text, a number for each layer and pair of loops."""
    model, text = trained_model(case.cfg, case.store)
    rows = divergence(looped_choices(model, torch.as_tensor(text[:, :-1], device=model.embed.weight.device)))
    return {name: [row[name] for row in rows] for name in rows[0]}
