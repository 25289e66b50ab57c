"""002's models and runs, looped and not, at any size, and what is read off them.

``p`` is everywhere the parameters of a notebook: width, head_dim, init_std, c; vocab_size, context; the text; steps,
batch, micro_batch, precision, checkpoint_loops, reference_depth and kept_lr.
"""

import math
from typing import Any

import pandas as pd
import torch

from lib.base.errors import InputError
from lib.base.statistics import mean_interval
from lib.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig
from lib.model import probes
from lib.model.looped import LoopedLM
from lib.papers.residual.at_init import FirstSteps
from lib.presets import head_count, optimizer, preset
from lib.store.runs import RunResult, RunStore
from lib.sweep.finished import trained_model
from lib.train.loop import TRACED_ROWS

TRACES = 10  # of the state in each run at the kept rate

#: what is put in place of no injection, as changes to 002's model; the branches' multiplier stays
INJECTIONS = {
    "looped": {},
    "concat": {"injection": "concat"},
    "lti": {"injection": "lti", "state_init": "like-init"},
    "hyper-connections": {"injection": "hyper-connections"},
    "post-norm": {"block": "post-norm"},
}
#: their colours and markers, those of the architecture that the papers know them from
LOOK = {"looped": "looped", "concat": "base", "lti": "parcae", "hyper-connections": "hyper-connections",
        "post-norm": "post-norm"}  # fmt: skip


def model(p: dict[str, Any], rule: str, loops: int, layers: int = 1, **fields: Any) -> ModelConfig:
    """``layers`` unique layers L looped ``loops`` times N, the branches multiplied by c alpha, alpha as the rule says:
    none (1), 1/sqrt(N), 1/N; with the layers' share besides, 1/sqrt(L), 1/sqrt(N L) and 002's own, 1/(N sqrt(L)). At
    one loop the last three are the same model and get the same config. Raises InputError for another rule."""
    if layers < 1:
        raise InputError(f"reference_depth: {layers} layers loop nothing, use at least 1")
    c, root = p["c"], layers**0.5
    if loops == 1 and rule in ("1/sqrt(L)", "1/sqrt(N L)"):
        rule = "1/(N sqrt(L))"
    multiplier = {
        "none": {"residual": "none", "residual_c": c},
        "1/sqrt(N)": {"residual": "1/sqrt(N)", "residual_c": c},
        "1/N": {"residual": "1/N", "residual_c": c},
        "1/sqrt(L)": {"residual": "none", "residual_c": c / root},
        "1/sqrt(N L)": {"residual": "1/sqrt(N)", "residual_c": c / root},
        "1/(N sqrt(L))": {"residual": "1/(N sqrt(L))", "residual_c": c},
    }
    if rule not in multiplier:
        raise InputError(f"rule: {rule!r} is not known, use {', '.join(multiplier)}")
    return preset("residual-L12-N1", recur=layers, mean_loops=loops, **multiplier[rule], **_sizes(p), **fields)


def stack(p: dict[str, Any], rule: str, copies: int, layers: int = 1) -> ModelConfig:
    """Without sharing: ``copies`` x ``layers`` layers run once, the branches multiplied as if the copies were loops."""
    alpha = model(p, rule, copies).residual_multiplier
    return preset("residual-L12-N1", recur=copies * layers, residual="none", residual_c=alpha, **_sizes(p))


def first_steps(p: dict[str, Any], cfg: ModelConfig, layers: int, seed: int, steps: int) -> FirstSteps:
    """The first ``steps`` optimiser steps of a model, at p's rate, the same for all parameters."""
    optim = optimizer("residual-L12-N1", steps, lr=p["lr"], scaling="none")
    return FirstSteps(model=cfg, optim=optim, block=layers, steps=steps, seed=seed)


def optim(p: dict[str, Any], lr: float, layers: int, corrected: bool) -> OptimConfig:
    """AdamW at base rate ``lr``, warmed up over a tenth and falling to 0 over the last half; with 002's depth
    correction, or with ``lr`` everywhere. At the reference depth these are the same and get the same config."""
    steps = p["steps"]
    scaling = {"scaling": "none"}
    if corrected and layers != p["reference_depth"]:
        scaling = {"scaling": "depth-loop", "reference_depth": p["reference_depth"]}
    return optimizer("residual-L12-N1", steps, lr=lr, warmup_steps=steps // 10, cooldown_steps=steps // 2, **scaling)


def run(p: dict[str, Any], cfg: ModelConfig, lr: float, seed: int, corrected: bool = True) -> RunConfig:
    """A run at base rate ``lr``; at ``kept_lr`` the state is traced, for the notebook that looks inside."""
    steps = p["steps"]
    return RunConfig(
        model=cfg, data=DataConfig.of(p), optim=optim(p, lr, cfg.recur, corrected),
        train=TrainConfig(
            steps=steps, batch=p["batch"], micro_batch=p["micro_batch"] or None, precision=p["precision"], seed=seed,
            trace_every=max(1, steps // TRACES) if lr == p["kept_lr"] else None,
            checkpoint_loops=p["checkpoint_loops"],
        ),
    )  # fmt: skip


def increments(configs: list[RunConfig], store: RunStore) -> dict[str, dict[str, Any]]:
    """Of each finished run, by key: ``cosines`` [n, n] between the increments of its loops and ``norms`` [n + 1] of the
    stream before and after each loop, 2-norms averaged over tokens (002, Fig. 6 to 8); the same of the model before its
    training, ``initial cosines`` and ``initial norms``. On validation rows; noted beside the run."""
    found = {}
    for cfg in configs:
        result = store.get(cfg)
        if result.status != "finished":
            continue
        noted = store.noted(result, "increments")
        if not noted:
            trained, validation = trained_model(cfg, store)
            device = trained.angles.device
            tokens = torch.as_tensor(validation[:TRACED_ROWS, :-1], device=device)
            start = LoopedLM(cfg.model, seed=cfg.train.seed).set_precision(cfg.train.precision).to(device)
            for prefix, network in (("", trained), ("initial ", start)):
                states = probes.stream(network, tokens)
                noted[prefix + "cosines"] = probes.increment_cosines(states).tolist()
                noted[prefix + "norms"] = states.norm(dim=-1).mean((1, 2)).tolist()
            store.note(result, "increments", noted)
        found[cfg.key] = noted
    return found


def traces(
    results: list[RunResult], labels: list[dict[str, Any]], increments: dict[str, dict[str, Any]]
) -> pd.DataFrame:
    """How runs at the kept rate changed: one row a run and traced step, 0 included, under its label's columns, with
    ``norm`` after the last loop and the mean cosines of increments, ``early`` pairs and pairs with the ``last``."""
    rows = []
    for result, label in zip(results, labels, strict=True):
        start = increments[result.key]
        early, last = probes.mean_cosines(start["initial cosines"])
        rows.append({**label, "step": 0, "norm": start["initial norms"][-1], "early": early, "last": last})
        metrics, end = result.metrics, f"trace loop {result.config.model.mean_loops}"
        for i, step in enumerate(metrics["step"]):
            if math.isfinite(metrics[end][i]):
                early, last = metrics["trace cosine"][i], metrics["trace last cosine"][i]
                rows.append({**label, "step": step, "norm": metrics[end][i], "early": early, "last": last})
    return pd.DataFrame(rows)


def judged(series: dict[str, pd.Series], limits: dict[str, float]) -> pd.DataFrame:
    """Does a rule hold? One row for each (model, rule) and name of ``series``, whose values are indexed by model, rule
    and seed: n seeds, their mean and its 95 % interval (Student's t), and ``holds``: yes where the whole interval lies
    within the name's limit of 0, no where all of it lies outside, else not resolved; empty for a name without limit."""
    rows = {}
    for name, values in series.items():
        for group, cell in values.dropna().groupby(["model", "rule"], sort=False):
            mean, low, high = mean_interval(cell)
            limit, holds = limits.get(name), ""
            if limit is not None:
                outside = low > limit or high < -limit
                holds = "yes" if max(-low, high) < limit else "no" if outside else "not resolved"
            rows[*group, name] = {"n": len(cell), "mean": mean, "low": low, "high": high, "holds": holds}
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index.names = ["model", "rule", "of"]
    return table


def _sizes(p: dict[str, Any]) -> dict[str, Any]:
    width, head_dim = p["width"], p["head_dim"]
    return dict(
        width=width, heads=head_count(width, head_dim), mlp_width=p["mlp_width"], init_std=p["init_std"],
        vocab_size=p["vocab_size"], context=p["context"],
    )  # fmt: skip
