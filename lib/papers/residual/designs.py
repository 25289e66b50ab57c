"""002's models and runs, looped and not, at any size, and what is read off them."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from lib.base.errors import InputError
from lib.config import ModelConfig, OptimConfig, RunConfig
from lib.model import probes
from lib.model.looped import LoopedLM
from lib.papers.residual.at_init import FirstSteps
from lib.papers.residual.parameters import ResidualModel, ResidualRuns
from lib.papers.shared.parameters import text_of, training_of
from lib.presets import head_count, optimizer, preset
from lib.sweep.finished import OfRun, trained_model
from lib.sweep.measurements import named
from lib.train.followed import TRACED_ROWS

R = TypeVar("R", bound=ResidualModel)

TRACES = 10  # of the state in each run at the kept rate


def model(p: ResidualModel, rule: str, loops: int, layers: int = 1, **fields: Any) -> ModelConfig:
    """``layers`` unique layers L looped ``loops`` times N. The branches are multiplied by c alpha, and the rule names
    alpha: none (1), 1/sqrt(N), 1/N; with a share for the layers 1/sqrt(L), 1/sqrt(N L) and 002's own, 1/(N sqrt(L)).
    At one loop these three are the same model and get the same config. Raises InputError for another rule."""
    if loops == 1 and rule in ("1/sqrt(L)", "1/sqrt(N L)"):
        rule = "1/(N sqrt(L))"
    c, shared = p.c, p.c / layers**0.5
    multipliers = {
        "none": ("none", c),
        "1/sqrt(N)": ("1/sqrt(N)", c),
        "1/N": ("1/N", c),
        "1/sqrt(L)": ("none", shared),
        "1/sqrt(N L)": ("1/sqrt(N)", shared),
        "1/(N sqrt(L))": ("1/(N sqrt(L))", c),
    }
    if rule not in multipliers:
        raise InputError(f"rule: {rule!r} is not known, use {', '.join(multipliers)}")
    residual, residual_c = multipliers[rule]
    return _sized(p, recur=layers, mean_loops=loops, residual=residual, residual_c=residual_c, **fields)


def stack(p: ResidualModel, rule: str, copies: int, layers: int = 1) -> ModelConfig:
    """Without sharing: ``copies`` x ``layers`` layers run once, the branches multiplied as if the copies were loops."""
    alpha = model(p, rule, copies).residual_multiplier
    return _sized(p, recur=copies * layers, residual="none", residual_c=alpha)


#: by whether layers are shared
MAKERS: dict[str, Callable[..., ModelConfig]] = {"looped": model, "stack": stack}


def of_width(p: R, width: int) -> R:
    """p at another width, with an MLP of the same shape and matrices of the same gain."""
    return p.replace(
        width=width, mlp_width=round(p.mlp_width * width / p.width), init_std=p.init_std * (p.width / width) ** 0.5
    )


def _sized(p: ResidualModel, **fields: Any) -> ModelConfig:
    return preset(
        "residual-L12-N1",
        width=p.width,
        heads=head_count(p.width, p.head_dim),
        mlp_width=p.mlp_width,
        init_std=p.init_std,
        vocab_size=p.vocab_size,
        context=p.context,
        **fields,
    )


def steps_from_init(cfg: ModelConfig, lr: float, layers: int, seed: int, steps: int) -> FirstSteps:
    """The first ``steps`` optimiser steps of a model of blocks of ``layers``, with one rate for all parameters."""
    optim = optimizer("residual-L12-N1", steps, lr=lr, scaling="none")
    return FirstSteps(model=cfg, optim=optim, block=layers, steps=steps, seed=seed)


def optim(p: ResidualRuns, lr: float, layers: int, corrected: bool, table_lr: float | None = None) -> OptimConfig:
    """AdamW at base rate ``lr``, warmed up over a tenth and falling to 0 over the last half; corrected by 002's rule
    for the depth, or else ``lr`` everywhere. At the reference depth both are the same and get the same config.
    table_lr: of the token table, which is the unembedding too, in place of ``lr``."""
    scaling: dict[str, Any] = {"scaling": "none", "embedding_lr": None if table_lr == lr else table_lr}
    if corrected and layers != p.reference_depth:
        scaling |= {"scaling": "depth-loop", "reference_depth": p.reference_depth}
    return optimizer(
        "residual-L12-N1", p.steps, lr=lr, warmup_steps=p.steps // 10, cooldown_steps=p.steps // 2, **scaling
    )


def run(
    p: ResidualRuns, cfg: ModelConfig, lr: float, seed: int, corrected: bool = True, table_lr: float | None = None
) -> RunConfig:
    """A run at base rate ``lr`` (``optim``); where all rates are ``kept_lr`` the state is traced, for the notebook that
    looks inside."""
    return RunConfig(
        model=cfg,
        data=text_of(p),
        optim=optim(p, lr, cfg.recur, corrected, table_lr),
        train=training_of(
            p,
            steps=p.steps,
            seed=seed,
            trace_every=max(1, p.steps // TRACES) if lr == p.kept_lr and table_lr in (None, lr) else None,
            checkpoint_loops=p.checkpoint_loops,
        ),
    )


@named("lib.papers.residual.increments")
def increments(case: OfRun) -> dict[str, Any]:
    """Of a finished run, on validation rows: ``cosines`` [n, n] between the increments of its n loops, and ``norms``
    [n + 1], the mean 2-norm of the tokens' stream before the first loop and after each (002, Fig. 6 to 8). ``initial
    cosines`` and ``initial norms`` are those before training. Nothing of a run that diverged."""
    if case.diverged:
        return {}
    trained, validation = trained_model(case.cfg, case.store)
    device = trained.angles.device
    tokens = torch.as_tensor(validation[:TRACED_ROWS, :-1], device=device)
    start = LoopedLM(case.cfg.model, seed=case.cfg.train.seed).set_precision(case.cfg.train.precision).to(device)
    measured: dict[str, Any] = {}
    for prefix, network in (("", trained), ("initial ", start)):
        states = probes.stream(network, tokens)
        measured[prefix + "cosines"] = probes.increment_cosines(states).tolist()
        measured[prefix + "norms"] = states.norm(dim=-1).mean((1, 2)).tolist()
    return measured
