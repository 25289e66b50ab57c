"""002's models and runs, looped and not, at any size, and what is read off them.

``p`` is everywhere the parameters of a notebook: width, head_dim, init_std, c; vocab_size, context; the text; steps,
batch, micro_batch, precision, reference_depth and kept_lr.
"""

import math

import pandas as pd
import torch

from lib import probes
from lib.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig
from lib.errors import InputError
from lib.growth import RULES, FirstSteps
from lib.model import LoopedLM
from lib.presets import optimizer, preset
from lib.store import RunResult, RunStore
from lib.sweep import trained_model

TRACES = 10  # of the state in each run at the kept rate
TRACED_ROWS = 32  # of the validation set, over which cosines and norms are averaged

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


def model(p: dict, rule: str, loops: int, layers: int = 1, **fields) -> ModelConfig:
    """``layers`` unique layers looped ``loops`` times, the branches multiplied by alpha: c under "none", c / N under
    "1/N", c / sqrt(N L) under "1/sqrt(N)", and 002's c / (N sqrt(L)). At one loop the last two are the same model and
    get the same config. Raises InputError for another rule."""
    c, root = p["c"], layers**0.5
    if loops == 1 and rule == "1/sqrt(N)":
        rule = "1/(N sqrt(L))"
    multiplier = {
        "none": {"residual": "none", "residual_c": c},
        "1/sqrt(N)": {"residual": "1/sqrt(N)", "residual_c": c / root},
        "1/N": {"residual": "1/N", "residual_c": c},
        "1/(N sqrt(L))": {"residual": "1/(N sqrt(L))", "residual_c": c},
    }
    if rule not in multiplier:
        raise InputError(f"rules: {rule!r} is not known, use {', '.join(multiplier)}")
    return preset("residual-L12-N1", recur=layers, mean_loops=loops, **multiplier[rule], **_sizes(p), **fields)


def stack(p: dict, rule: str, copies: int, layers: int = 1) -> ModelConfig:
    """Without sharing: ``copies`` x ``layers`` layers run once, the branches multiplied as if they were loops."""
    alpha = p["c"] * RULES[rule](copies)
    return preset("residual-L12-N1", recur=copies * layers, residual="none", residual_c=alpha, **_sizes(p))


def first_steps(p: dict, cfg: ModelConfig, layers: int, seed: int, steps: int) -> FirstSteps:
    """The first ``steps`` optimiser steps of a model, at p's rate, the same for all parameters."""
    optim = optimizer("residual-L12-N1", max(1, steps), lr=p["lr"], scaling="none")
    return FirstSteps(model=cfg, optim=optim, block=layers, steps=steps, seed=seed)


def optim(p: dict, lr: float, layers: int, corrected: bool) -> OptimConfig:
    """AdamW at base rate ``lr``, warmed up over a tenth and falling to 0 over the last half; with 002's depth
    correction, or with ``lr`` everywhere. At the reference depth these are the same and get the same config."""
    steps = p["steps"]
    scaling = {"scaling": "none"}
    if corrected and layers != p["reference_depth"]:
        scaling = {"scaling": "depth-loop", "reference_depth": p["reference_depth"]}
    return optimizer("residual-L12-N1", steps, lr=lr, warmup_steps=steps // 10, cooldown_steps=steps // 2, **scaling)


def run(p: dict, cfg: ModelConfig, lr: float, seed: int, corrected: bool = True) -> RunConfig:
    """A run at base rate ``lr``; at ``kept_lr`` the state is traced, for the notebook that looks inside."""
    steps = p["steps"]
    return RunConfig(
        model=cfg, data=DataConfig.of(p), optim=optim(p, lr, cfg.recur, corrected),
        train=TrainConfig(
            steps=steps, batch=p["batch"], micro_batch=p["micro_batch"] or None, precision=p["precision"], seed=seed,
            trace_every=max(1, steps // TRACES) if lr == p["kept_lr"] else None,
        ),
    )  # fmt: skip


def increments(configs: list[RunConfig], store: RunStore) -> dict[str, dict]:
    """Of each finished run, by key: ``cosines`` [n, n] between the increments of its loops, ``initial`` cosines of the
    same model before its training, and ``norms`` [n + 1] of the stream before and after each loop, 2-norms averaged
    over tokens (002, Fig. 6 to 8). On validation rows; noted beside the run."""
    found = {}
    for cfg in configs:
        result = store.find(cfg)
        if result.status != "finished":
            continue
        noted = store.noted(result, "increments")
        if not noted:
            trained, validation = trained_model(cfg, store)
            device = trained.angles.device
            tokens = torch.as_tensor(validation[:TRACED_ROWS, :-1], device=device)
            start = LoopedLM(cfg.model, seed=cfg.train.seed).set_precision(cfg.train.precision).to(device)
            states = probes.stream(trained, tokens)
            noted = {
                "cosines": probes.increment_cosines(states).tolist(),
                "initial": probes.increment_cosines(probes.stream(start, tokens)).tolist(),
                "norms": states.norm(dim=-1).mean((1, 2)).tolist(),
            }
            store.note(result, "increments", noted)
        found[cfg.key] = noted
    return found


def traces(results: list[RunResult], labels: list[dict]) -> pd.DataFrame:
    """What was traced as runs at the kept rate trained: one row a run and traced step, under its label's columns, with
    ``norm`` after the last loop and the mean cosines of increments, ``early`` pairs and pairs with the ``last``."""
    rows = []
    for result, label in zip(results, labels, strict=True):
        metrics, end = result.metrics, f"trace loop {result.config.model.mean_loops}"
        for i, step in enumerate(metrics["step"]):
            if math.isfinite(metrics[end][i]):
                early, last = metrics["trace cosine"][i], metrics["trace last cosine"][i]
                rows.append({**label, "step": step, "norm": metrics[end][i], "early": early, "last": last})
    return pd.DataFrame(rows)


def _sizes(p: dict) -> dict:
    width, head_dim = p["width"], p["head_dim"]
    if head_dim < 1 or width % head_dim:
        raise InputError(f"width: {width} is not a multiple of head_dim {head_dim}, use multiples of it")
    return dict(
        width=width, heads=width // head_dim, mlp_width=p["mlp_width"], init_std=p["init_std"],
        vocab_size=p["vocab_size"], context=p["context"],
    )  # fmt: skip
