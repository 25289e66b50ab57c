"""002's models, looped and not, at any size, their runs, and what is measured on them and on the theory's own.

How the stream, and what one optimiser step changes in it, grow with the loops is 002's Sec. 3 (Theorems 1 and 2, Fig.
2, 3, 4 and 9). A looped model uses each layer N times; a stack has N different layers in the place of each. A rule sets
the multiplier alpha of x <- x + alpha f(x). A ``square`` is |x_N|^2 / d, a ``change`` the root mean square over the
elements of x_N of what one optimiser step changes there.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from torch import Tensor

from lib.base.errors import InputError
from lib.base.machine import device_type
from lib.base.seeds import torch_stream
from lib.base.statistics import mean_and_interval
from lib.config import Config, Label, ModelConfig, OptimConfig, RunConfig
from lib.flops import count
from lib.model import probes
from lib.model.looped import Draw, LoopedLM
from lib.papers.residual.parameters import ResidualModel, ResidualRuns
from lib.papers.shared.parameters import text_of, training_of
from lib.presets import head_count, optimizer, preset
from lib.sweep.finished import OfRun, trained_model
from lib.sweep.measurements import named
from lib.train.evaluate import TRACED_ROWS
from lib.train.optimiser import Optimizer

#: alpha by the number of loops N
RULES: dict[str, Callable[[int], float]] = {
    "none": lambda N: 1.0,
    "1/sqrt(N)": lambda N: N**-0.5,
    "1/N": lambda N: 1 / N,
}


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
    return _sized(p, recur=copies * layers, residual="none", residual_c=model(p, rule, copies).residual_multiplier)


#: by whether layers are shared
MAKERS: dict[str, Callable[..., ModelConfig]] = {"looped": model, "stack": stack}


def of_width(p: ResidualModel, width: int) -> ResidualModel:
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


def run(
    p: ResidualRuns, cfg: ModelConfig, lr: float, seed: int, corrected: bool = True, table_lr: float | None = None
) -> RunConfig:
    """AdamW at base rate ``lr``, warmed up over a tenth and falling to 0 over the last half; corrected by 002's rule
    for the depth, or else ``lr`` everywhere. At the reference depth both are the same and get the same config. Where
    all rates are ``kept_lr`` the state is traced, ten times, for the notebook that looks inside.
    table_lr: of the token table, which is the unembedding too, in place of ``lr``."""
    scaling: dict[str, Any] = {"scaling": "none", "embedding_lr": None if table_lr == lr else table_lr}
    if corrected and cfg.recur != p.reference_depth:
        scaling |= {"scaling": "depth-loop", "reference_depth": p.reference_depth}
    return RunConfig(
        model=cfg,
        data=text_of(p),
        optim=optimizer(
            "residual-L12-N1", p.steps, lr=lr, warmup_steps=p.steps // 10, cooldown_steps=p.steps // 2, **scaling
        ),
        train=training_of(
            p,
            steps=p.steps,
            seed=seed,
            trace_every=max(1, p.steps // 10) if lr == p.kept_lr and table_lr in (None, lr) else None,
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


# ---- at the init -----------------------------------------------------------------------------------------------------


class Start(Config):
    """A model at its init, on one row of random tokens as long as its context."""

    model: ModelConfig = Field(strict=False)
    block: int = Field(1, ge=1, description="layers of a block, whose increments are compared")
    seed: int = Field(0, ge=0)

    def tokens(self) -> torch.Tensor:
        """The row [1, S + 1], the same at every step."""
        return torch.randint(
            self.model.vocab_size, (1, self.model.context + 1), generator=torch_stream("random tokens", self.seed)
        )

    @property
    def flops(self) -> float:
        """Of a forward pass."""
        return self.model.context * count(self.model).flops_per_token_forward


class FirstSteps(Start):
    """The same model and row over the first optimiser steps."""

    optim: OptimConfig = Field(strict=False)
    steps: int = Field(10, ge=1)

    @property
    def flops(self) -> float:
        return (self.steps + 1) * self.model.context * count(self.model).flops_per_token


def steps_from_init(cfg: ModelConfig, lr: float, layers: int, seed: int, steps: int) -> FirstSteps:
    """The first ``steps`` optimiser steps of a model of blocks of ``layers``, with one rate for all parameters."""
    return FirstSteps(
        model=cfg,
        optim=optimizer("residual-L12-N1", steps, lr=lr, scaling="none"),
        block=layers,
        steps=steps,
        seed=seed,
    )


@named("lib.growth.first_steps")
def first_steps(case: FirstSteps) -> dict[str, list[float]]:
    """At the end of the last loop, ``squares`` [steps + 1], before the first step and after each, and ``changes``
    [steps] by each step. In fp32."""
    model = LoopedLM(case.model, seed=case.seed).to(device_type()).train()
    tokens = case.tokens().to(model.angles.device)
    optimizer = Optimizer(model, case.optim, case.steps, case.model.context)
    states = []
    for step in range(case.steps + 1):
        # the same draw at every step, so that a random initial state stays what it is
        loss, end = model.loss(tokens[:, :-1], tokens[:, 1:], draw=Draw(case.seed, 0, range(1)))
        states.append(end.state.detach())
        if step < case.steps:
            loss.backward()
            optimizer.step(step)
            model.zero_grad(set_to_none=True)
    return {
        "squares": [x.square().mean().item() for x in states],
        "changes": [(x - before).square().mean().sqrt().item() for before, x in itertools.pairwise(states)],
    }


@named("lib.growth.initial_increments")
def initial_increments(case: Start) -> dict[str, Any]:
    """Returns, of a model at its init, ``cosines`` [n, n] between the increments of n passes (one block n times, or n
    blocks once each), and ``branches``, |x_N - x_0|^2 / d, the square of their sum."""
    model = LoopedLM(case.model, seed=case.seed).to(device_type())
    states = probes.stream(model, case.tokens()[:, :-1].to(model.angles.device), every=case.block)
    return {
        "cosines": probes.increment_cosines(states).tolist(),
        "branches": (states[-1] - states[0]).square().mean().item(),
    }


def tidy(
    labels: Iterable[Label], names: Sequence[str], results: Iterable[dict[str, Any]]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What ``first_steps`` measured, as two tables, each row with the parts of its label under ``names``: (states, one
    row a step from 0 on, with square and its root norm; changes, one row a step from 1 on, with change)."""
    squares, changes = [], []
    for label, result in zip(labels, results, strict=True):
        of = dict(zip(names, label, strict=True))
        squares += [{**of, "step": i, "square": x, "norm": x**0.5} for i, x in enumerate(result["squares"])]
        changes += [{**of, "step": i, "change": x} for i, x in enumerate(result["changes"], start=1)]
    return pd.DataFrame(squares), pd.DataFrame(changes)


def octaves_grown(states: pd.DataFrame) -> pd.DataFrame:
    """log2 of the largest norm within the steps over that before the first: one row a seed and rule, one column a rate.
    Beyond ten octaves a norm has exploded, and by how much says nothing."""
    norms = states.fillna({"norm": np.inf}).pivot(index=["seed", "rule", "lr"], columns="step", values="norm")
    return (norms.max(axis=1) / norms[0]).apply(np.log2).clip(upper=10.0).unstack("lr")


def explosion_rates(states: pd.DataFrame) -> pd.DataFrame:
    """The learning rate at which the norm first doubles within the steps: one row a seed, one column a rule, in
    octaves. states: as ``tidy`` has them, of a ladder of rates, with a column ``lr``.

    Between two rates the octaves of growth are interpolated in log lr. A norm that doubles at the least rate has that
    one, and one that doubles at none has the largest, so that two rules of which neither explodes are not told apart:
    they have no number."""
    grown = octaves_grown(states)
    octaves = np.log2(grown.columns.to_numpy(float))
    found = grown.apply(lambda row: _first_doubling(octaves, row.to_numpy()), axis=1).unstack("rule")
    return found.where((grown.max(axis=1) >= 1).unstack("rule").any(axis=1), axis=0)


def _first_doubling(octaves: np.ndarray, grown: np.ndarray) -> float:
    """The rate at which what has ``grown`` at those of ``octaves`` first passes 1."""
    if not (grown >= 1).any():
        return float(octaves[-1])
    i = int((grown >= 1).argmax())
    return float(np.interp(1.0, grown[i - 1 : i + 1], octaves[i - 1 : i + 1]) if i else octaves[0])


def with_intervals(exponents: pd.Series, by: list[str]) -> pd.DataFrame:
    """mean, low and high of exponents over the seeds of each combination of ``by``, levels of their index: the 95 %
    interval of the mean by Student's t."""
    found = exponents.groupby(by, sort=False).apply(mean_and_interval)
    return pd.DataFrame(found.tolist(), found.index, ["mean", "low", "high"])


# ---- the theory's own model, and its lemma ---------------------------------------------------------------------------


def relu_steps(
    width: int, loops: int, alpha: float, shared: bool, normalised: bool, lr: float, seeds: list[int]
) -> dict[str, np.ndarray]:
    """``square`` and ``change`` [seeds] of the theory's model x <- x + alpha W relu(x), W ~ N(0, 1/d) (002, Eq. 1).

    shared: there is one W for all loops, else one for each. normalised: the branch reads x / rms(x), so that
    activations are bounded as Theorem 1 assumes. The optimiser step is Adam's first, lr sign(gradient), and its loss a
    linear readout of x_N that is drawn once (Theorem 2)."""
    x0, readout, *layers = _relu_draws(width, 1 if shared else loops, tuple(seeds))
    W = [layer.detach().requires_grad_() for layer in layers]  # apart, or each loop would fill a gradient of all layers

    def end(weights: Sequence[Tensor]) -> Tensor:
        x = x0
        for t in range(loops):
            branch = x * torch.rsqrt(x.square().mean(-1, keepdim=True)) if normalised else x
            x = x + alpha * torch.einsum("sij,sj->si", weights[t % len(W)], torch.relu(branch))
        return x

    x = end(W)
    # the gradient's sign is what counts, and a raw recursion would overflow squares of its size
    gradients = torch.autograd.grad((readout * x).sum(), W)
    with torch.no_grad():
        changed = end([step.sign_().mul_(-lr).add_(layer) for step, layer in zip(gradients, W, strict=True)])
        squares, changes = x.square().mean(-1), (changed - x).square().mean(-1).sqrt()
    return {"square": squares.numpy(), "change": changes.numpy()}


@functools.lru_cache(maxsize=1)
def _relu_draws(width: int, layers: int, seeds: tuple[int, ...]) -> list[Tensor]:
    """x_0 and the readout [seeds, d], and then each layer's W [seeds, d, d], which no rule changes."""
    draws = [torch_stream("relu model", seed) for seed in seeds]
    x0 = torch.stack([torch.randn(width, generator=g, dtype=torch.float64) for g in draws])
    W = torch.stack([torch.randn(layers, width, width, generator=g, dtype=torch.float64) for g in draws])
    readout = torch.stack([torch.randn(width, generator=g, dtype=torch.float64) for g in draws])
    return [x0, readout, *(W / math.sqrt(width)).unbind(1)]


#: kinds of the theory's model: name -> (shared, normalised)
RELU = {"ReLU, looped": (True, True), "ReLU, stack": (False, True), "ReLU, looped raw": (True, False)}


def relu_models(width: int, loops: list[int], lr: float, seeds: list[int]) -> pd.DataFrame:
    """The theory's model under every rule: one row a kind of ``RELU``, rule, N and seed, with square and change."""
    found = (
        {"model": name, "rule": rule, "N": N, "seed": seeds}
        | relu_steps(width, N, RULES[rule](N), *shared_and_normalised, lr, seeds)
        for name, shared_and_normalised in RELU.items()
        for N in loops
        for rule in RULES  # one draw, all rules
    )
    return pd.concat(map(pd.DataFrame, found), ignore_index=True)


CONE_GAIN = 1 - 0.5**0.5  # the least gain on the cone as the width grows: one less its Gaussian width (Gordon)


def cone_gains(width: int, seed: int) -> tuple[float, float]:
    """The least and the largest |W x| / |x| that a search finds over x >= 0, of one W ~ N(0, 1/d) (002, Lemma 5).

    A projected power iteration of 300 steps from 16 starts: no descent is sure to find the least, so that it lies no
    higher."""
    draw = torch_stream("cone", seed)
    W = torch.randn(width, width, generator=draw, dtype=torch.float64) / math.sqrt(width)
    gram = W.T @ W
    shift = torch.linalg.matrix_norm(gram, 2)
    starts = torch.rand(16, width, generator=draw, dtype=torch.float64)

    x = torch.stack([starts, starts])  # on the way to the least and to the largest
    for _ in range(300):
        image = x @ gram
        x = torch.nn.functional.normalize(torch.stack([shift * x[0] - image[0], image[1]]).relu(), dim=-1)
    least, most = (x @ W.T).norm(dim=-1)
    return float(least.min()), float(most.max())


def cone_room(widths: list[int], seeds: list[int]) -> pd.DataFrame:
    """What is left of Lemma 5's constants, one row a seed: below, the least gain over half of CONE_GAIN; above, the
    norm 2 of W and that half over the largest."""
    found = pd.DataFrame([(d, seed, *cone_gains(d, seed)) for d in widths for seed in seeds])
    table = found.set_axis(["d", "seed", "least", "most"], axis=1).pivot(index="seed", columns="d").loc[seeds]
    room = {"below": table["least"] - CONE_GAIN / 2, "above": 2 + CONE_GAIN / 2 - table["most"]}
    return pd.DataFrame({f"{side}, d = {d}": of[d] for side, of in room.items() for d in widths})
