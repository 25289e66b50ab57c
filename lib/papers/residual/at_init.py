"""How the stream and an optimiser step's effect grow with the loops: 002, Sec. 3 (Theorems 1 and 2, Fig. 2 to 4, 9).

N is how often a layer is used, or, in a stack that shares nothing, how many layers there are in its place; every rule
sets the multiplier alpha of x <- x + alpha f(x). Squares are |x_N|^2 / d, changes the root mean square of what one
step of the optimiser changes in x_N.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from torch import Tensor

from lib.base.seeds import torch_stream
from lib.base.statistics import mean_interval
from lib.config import Config, Label, ModelConfig, OptimConfig
from lib.flops import count
from lib.model import probes
from lib.model.looped import Draw, LoopedLM
from lib.sweep.measurements import named
from lib.train.optimiser import Optimizer

#: alpha by the number of loops N
RULES: dict[str, Callable[[int], float]] = {
    "none": lambda N: 1.0,
    "1/sqrt(N)": lambda N: N**-0.5,
    "1/N": lambda N: 1 / N,
}
#: what 002 predicts: the exponent in N of |x_N|^2, looped and not, and of the change of one step, looped
SQUARES = {
    "looped": {"none": 2.0, "1/sqrt(N)": 1.0, "1/N": 0.0},
    "stack": {"none": 1.0, "1/sqrt(N)": 0.0, "1/N": 0.0},  # under 1/N the input alone remains
}
CHANGES = {"none": 1.0, "1/sqrt(N)": 0.5, "1/N": 0.0}


class Start(Config):
    """A model at its init, on one row of random tokens as long as its context."""

    model: ModelConfig = Field(strict=False)
    block: int = Field(1, ge=1, description="layers of a block, whose increments are compared")
    seed: int = Field(0, ge=0)

    def network(self) -> LoopedLM:
        return LoopedLM(self.model, seed=self.seed).to("cuda" if torch.cuda.is_available() else "cpu")

    def tokens(self) -> torch.Tensor:
        """The row [1, S + 1], the same at every step."""
        generator = torch_stream("random tokens", self.seed)
        return torch.randint(self.model.vocab_size, (1, self.model.context + 1), generator=generator)

    @property
    def flops(self) -> float:
        """Of a forward pass."""
        return self.model.context * count(self.model).flops_per_token_forward


class FirstSteps(Start):
    """The same over its first optimiser steps."""

    optim: OptimConfig = Field(strict=False)
    steps: int = Field(10, ge=1)

    @property
    def flops(self) -> float:
        return (self.steps + 1) * self.model.context * count(self.model).flops_per_token


@named("lib.growth.first_steps")
def first_steps(case: FirstSteps) -> dict[str, list[float]]:
    """squares [steps + 1] at the end of the last loop, before the first step and after each; changes [steps] of the
    state there, by each step. In fp32."""
    model = case.network().train()
    tokens = case.tokens().to(model.angles.device)
    optimizer = Optimizer(model, case.optim, case.steps, case.model.context)
    squares, changes, before = [], [], None
    for step in range(case.steps + 1):
        # the same draw at every step, so that a random initial state stays what it is
        loss, end = model.loss(tokens[:, :-1], tokens[:, 1:], draw=Draw(case.seed, 0, range(1)))
        x = end.state.detach()
        squares.append(x.square().mean().item())
        if before is not None:
            changes.append((x - before).square().mean().sqrt().item())
        before = x
        if step < case.steps:
            loss.backward()
            optimizer.step(step)
            model.zero_grad(set_to_none=True)
    return {"squares": squares, "changes": changes}


@named("lib.growth.initial_increments")
def initial_increments(case: Start) -> dict[str, Any]:
    """At the init: cosines [n, n] between the increments of the n passes over a block, one block n times or n blocks
    once, and ``branches``, |x_N - x_0|^2 / d, the square of their sum."""
    model = case.network()
    states = probes.stream(model, case.tokens()[:, :-1].to(model.angles.device), every=case.block)
    branches = (states[-1] - states[0]).square().mean().item()
    return {"cosines": probes.increment_cosines(states).tolist(), "branches": branches}


def relu_steps(
    width: int, loops: int, alpha: float, shared: bool, normalised: bool, lr: float, seeds: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """(squares [seeds], changes [seeds]) of the theory's model x <- x + alpha W relu(x), W ~ N(0, 1/d) (002, Eq. 1).

    normalised: the branch reads x / rms(x), so that activations are bounded as Theorem 1 assumes. One W for all loops,
    or one for each. A step is Adam's first, eta sign(gradient), of a linear readout of x_N drawn once (Theorem 2)."""
    draws = [torch_stream("relu model", seed) for seed in seeds]
    layers = 1 if shared else loops
    x0 = torch.stack([torch.randn(width, generator=g, dtype=torch.float64) for g in draws])
    W = torch.stack([torch.randn(layers, width, width, generator=g, dtype=torch.float64) for g in draws])
    readout = torch.stack([torch.randn(width, generator=g, dtype=torch.float64) for g in draws])
    W = (W / math.sqrt(width)).requires_grad_()

    def run(weights: Tensor) -> Tensor:
        x = x0
        for t in range(loops):
            branch = x * torch.rsqrt(x.square().mean(-1, keepdim=True)) if normalised else x
            x = x + alpha * torch.einsum("sij,sj->si", weights[:, t % layers], torch.relu(branch))
        return x

    x = run(W)
    # the gradient's sign is what counts, and a raw recursion would overflow squares of its size
    (gradient,) = torch.autograd.grad((readout * x).sum(), W)
    with torch.no_grad():
        changed = run(W - lr * gradient.sign())
        return x.square().mean(-1).numpy(), (changed - x).square().mean(-1).sqrt().numpy()


#: the theory's model: name -> (one W for all loops, branches read a normalised stream)
RELU = {"ReLU, looped": (True, True), "ReLU, stack": (False, True), "ReLU, looped raw": (True, False)}


def relu_frame(width: int, loops: list[int], lr: float, seeds: list[int]) -> pd.DataFrame:
    """The theory's model under every rule: one row a kind of ``RELU``, rule, N and seed, with square and change."""
    rows = []
    for name, (shared, normalised) in RELU.items():
        for rule, alpha in RULES.items():
            for N in loops:
                measured = zip(*relu_steps(width, N, alpha(N), shared, normalised, lr, seeds), strict=True)
                rows += [
                    {"model": name, "rule": rule, "N": N, "seed": seed, "square": square, "change": change}
                    for seed, (square, change) in zip(seeds, measured, strict=True)
                ]
    return pd.DataFrame(rows)


def tidy(labels: list[dict[str, Any]], results: list[dict[str, Any]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What ``first_steps`` measured, each result under its label's columns: (one row a step from 0 on, with square and
    its root norm; one row a step from 1 on, with change)."""
    squares, changes = [], []
    for label, result in zip(labels, results, strict=True):
        squares += [
            {**label, "step": step, "square": square, "norm": square**0.5}
            for step, square in enumerate(result["squares"])
        ]
        changes += [{**label, "step": step, "change": change} for step, change in enumerate(result["changes"], start=1)]
    return pd.DataFrame(squares), pd.DataFrame(changes)


def nearness(exponents: pd.Series, predicted: float, within: float) -> pd.Series:
    """By how much each exponent lies nearer to what is predicted than ``within``."""
    return within - (exponents - predicted).abs()


def statistics(
    states: pd.DataFrame, changes: pd.DataFrame, relu: pd.DataFrame, cosines: dict[Label, np.ndarray], least: int
) -> dict[Label, pd.Series]:
    """What the claims are about, each a number a seed. Exponents in N from ``least`` on: ("square", model, rule) at the
    init, ("change", model, rule, step), and without a step for the theory's model; ("change", "up to least") of the
    looped model's first step under 1/N. ("growth", rule): octaves by which the looped norm grows over the steps at the
    largest N. Off the diagonal of cosines (model, seed) -> [n, n]: ("cosine", model, "absolute"), the mean absolute
    one, and ("cosine", model, "5 %"), the quantile."""
    start = pd.concat([states[states["step"] == 0], relu])
    found = {
        ("square", *group): cell.set_index("seed")["exponent"]
        for group, cell in exponents(start, ["model", "rule", "seed"], "square", "N", least).groupby(["model", "rule"])
    }
    for frame, by in ((changes, ["model", "rule", "step"]), (relu, ["model", "rule"])):
        for group, cell in exponents(frame, [*by, "seed"], "change", "N", least).groupby(by):
            found["change", *group] = cell.set_index("seed")["exponent"]
    first = changes.query("model == 'looped' and rule == '1/N' and step == 1 and N <= @least")
    found["change", "up to least"] = exponents(first, ["seed"], "change", "N", 1).set_index("seed")["exponent"]
    most = states[(states["model"] == "looped") & (states["N"] == states["N"].max())]
    for rule, cell in most.groupby("rule"):
        norms = cell.pivot(index="seed", columns="step", values="norm")
        found["growth", rule] = np.log2(norms.max(axis=1) / norms[0])
    for model in dict.fromkeys(model for model, _ in cosines):
        off = {seed: m[~np.eye(len(m), dtype=bool)] for (of, seed), m in cosines.items() if of == model}
        found["cosine", model, "absolute"] = pd.Series({seed: np.abs(x).mean() for seed, x in off.items()})
        found["cosine", model, "5 %"] = pd.Series({seed: np.quantile(x, 0.05) for seed, x in off.items()})
    return found


def farthest(of: dict[Label, pd.Series], predicted: dict[Label, float]) -> pd.Series:
    """The largest distance of ``statistics`` from what is predicted for them, seed by seed."""
    return pd.concat([(of[name] - value).abs() for name, value in predicted.items()], axis=1).max(axis=1)


def of_blocks(
    labels: pd.DataFrame, states: pd.DataFrame, changes: pd.DataFrame, sums: list[dict[str, Any]]
) -> pd.DataFrame:
    """What was measured of blocks, one row a label: square and norm at the init, change by the first step, and branches
    from ``sums``, which are those of the labels in their order."""
    keys = list(labels)
    found = labels.assign(branches=[found["branches"] for found in sums])
    start, first = states[states["step"] == 0], changes[changes["step"] == 1]
    return found.merge(start.drop(columns="step"), on=keys).merge(first.drop(columns="step"), on=keys)


def with_intervals(exponents: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """mean, low and high of the column ``exponent`` over the seeds of each combination of ``by``: the 95 % interval of
    the mean by Student's t."""
    rows = [
        {
            **dict(zip(by, group, strict=True)),
            **dict(zip(("mean", "low", "high"), mean_interval(cell["exponent"]), strict=True)),
        }
        for group, cell in exponents.groupby(by, sort=False)
    ]
    return pd.DataFrame(rows).set_index(by)


def in_layers(blocks: pd.DataFrame) -> pd.DataFrame:
    """The exponents of Theorem 3 and Proposition 7 for blocks of L layers: a row a seed of ``blocks``, whose columns
    are rule, N, L, seed, square, branches and change. Under 1/N: ``branches``, of the branches' squared sum in L.
    Under 1/(N sqrt(L)): ``square in L``, ``square in N``, ``change in L``. In L at the largest N and the reverse."""
    most, deepest = blocks[blocks["N"] == blocks["N"].max()], blocks[blocks["L"] == blocks["L"].max()]
    slopes = {
        "branches": ("1/N", most, "branches", "L"),
        "square in L": ("1/(N sqrt(L))", most, "square", "L"),
        "square in N": ("1/(N sqrt(L))", deepest, "square", "N"),
        "change in L": ("1/(N sqrt(L))", most, "change", "L"),
    }
    found = {
        name: exponents(cells[cells["rule"] == rule], ["seed"], quantity, over, 1).set_index("seed")["exponent"]
        for name, (rule, cells, quantity, over) in slopes.items()
    }
    return pd.DataFrame(found)


def exponents(frame: pd.DataFrame, by: list[str], quantity: str, over: str, least: int) -> pd.DataFrame:
    """The exponent of ``quantity`` in ``over``, its log-log slope over the rows with ``over`` >= least: one row for
    each combination of ``by``, with a column ``exponent``. The sums that the theory predicts outgrow the
    input x_0 only at a few loops, hence ``least``."""
    rows = []
    for group, cell in frame[frame[over] >= least].groupby(by, sort=False):
        slope = np.polyfit(np.log(cell[over]), np.log(cell[quantity]), 1)[0] if cell[over].nunique() > 1 else np.nan
        rows.append({**dict(zip(by, group, strict=True)), "exponent": float(slope)})
    return pd.DataFrame(rows)
