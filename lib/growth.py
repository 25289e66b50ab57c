"""How the stream and an optimiser step's effect grow with the loops: 002, Sec. 3 (Theorems 1 and 2, Fig. 2 to 4, 9).

N is how often a layer is used, or, in a stack that shares nothing, how many layers there are in its place; every rule
sets the multiplier alpha of x <- x + alpha f(x). Squares are |x_N|^2 / d, changes the root mean square of what one
step of the optimiser changes in x_N.
"""

import math

import numpy as np
import pandas as pd
import torch
from pydantic import Field

from lib import probes, seeds
from lib.config import Config, ModelConfig, OptimConfig
from lib.flops import count
from lib.model import Draw, LoopedLM
from lib.optim import Optimizer

#: alpha by the number of loops N
RULES = {"none": lambda N: 1.0, "1/sqrt(N)": lambda N: N**-0.5, "1/N": lambda N: 1 / N}
#: what 002 predicts: the exponent in N of |x_N|^2, looped and not, and of the change of one step, looped
SQUARES = {
    "looped": {"none": 2.0, "1/sqrt(N)": 1.0, "1/N": 0.0},
    "stack": {"none": 1.0, "1/sqrt(N)": 0.0, "1/N": 0.0},  # under 1/N the input alone remains
}
CHANGES = {"none": 1.0, "1/sqrt(N)": 0.5, "1/N": 0.0}


class FirstSteps(Config):
    """A model at its init and over its first optimiser steps, on one row of random tokens as long as its context."""

    model: ModelConfig = Field(strict=False)
    optim: OptimConfig = Field(strict=False)
    block: int = Field(1, ge=1, description="layers of a block, whose increments are compared")
    steps: int = Field(10, ge=0)
    seed: int = Field(0, ge=0)

    def tokens(self) -> torch.Tensor:
        """The row [1, S + 1], the same at every step."""
        generator = seeds.torch_stream("random tokens", self.seed)
        return torch.randint(self.model.vocab_size, (1, self.model.context + 1), generator=generator)


def first_steps(case: FirstSteps) -> dict[str, list[float]]:
    """squares [steps + 1] at the end of the last loop, before the first step and after each; changes [steps] of the
    state there, by each step. In fp32."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = LoopedLM(case.model, seed=case.seed).to(device).train()
    tokens = case.tokens().to(device)
    optimizer = Optimizer(model, case.optim, max(1, case.steps), case.model.context)
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


def initial_increments(case: FirstSteps) -> dict:
    """At the init: cosines [n, n] between the increments of the n passes over a block, one block n times or n blocks
    once, and ``branches``, |x_N - x_0|^2 / d, the square of their sum."""
    states = probes.stream(LoopedLM(case.model, seed=case.seed), case.tokens()[:, :-1], every=case.block)
    branches = (states[-1] - states[0]).square().mean().item()
    return {"cosines": probes.increment_cosines(states).tolist(), "branches": branches}


def relu_steps(
    width: int, loops: int, alpha: float, shared: bool, normalised: bool, lr: float, seeds_: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """(squares [seeds], changes [seeds]) of the theory's model x <- x + alpha W relu(x), W ~ N(0, 1/d) (002, Eq. 1).

    normalised: the branch reads x / rms(x), so that activations are bounded as Theorem 1 assumes. One W for all loops,
    or one for each. A step is Adam's first, eta sign(gradient), of a linear readout of x_N drawn once (Theorem 2)."""
    draws = [seeds.torch_stream("relu model", seed) for seed in seeds_]
    layers = 1 if shared else loops
    x0 = torch.stack([torch.randn(width, generator=g, dtype=torch.float64) for g in draws])
    W = torch.stack([torch.randn(layers, width, width, generator=g, dtype=torch.float64) for g in draws])
    readout = torch.stack([torch.randn(width, generator=g, dtype=torch.float64) for g in draws])
    W = (W / math.sqrt(width)).requires_grad_()

    def run(weights):
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


def relu_frame(width: int, loops: list[int], lr: float, seeds_: list[int]) -> pd.DataFrame:
    """The theory's model under every rule, with normalised and with raw branch inputs, looped: one row a model, rule, N
    and seed, with columns square and change."""
    rows = []
    for name, normalised in (("ReLU, normalised", True), ("ReLU, raw", False)):
        for rule, alpha in RULES.items():
            for N in loops:
                found = zip(*relu_steps(width, N, alpha(N), True, normalised, lr, seeds_), strict=True)
                rows += [
                    {"model": name, "rule": rule, "N": N, "seed": seed, "square": square, "change": change}
                    for seed, (square, change) in zip(seeds_, found, strict=True)
                ]
    return pd.DataFrame(rows)


def tidy(labels: list[dict], results: list[dict]) -> tuple[pd.DataFrame, pd.DataFrame]:
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


def cost(cases: dict[tuple, FirstSteps]) -> pd.DataFrame:
    """What measurements would take: one row for each first part of their labels."""
    rows = []
    for group in dict.fromkeys(label[0] for label in cases):
        some = [case for label, case in cases.items() if label[0] == group]
        flops = [(case.steps + 1) * case.model.context * count(case.model).flops_per_token for case in some]
        rows.append({
            "measurements of": group, "measurements": len(some), "optimiser steps": sum(case.steps for case in some),
            "parameters, at most": max(count(case.model).n_params for case in some), "FLOPs": sum(flops),
        })  # fmt: skip
    return pd.DataFrame(rows).set_index("measurements of")


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


def nearness(exponents: pd.Series, predicted: float, within: float) -> list[float]:
    """By how much each exponent lies nearer to what is predicted than ``within``."""
    return (within - (exponents - predicted).abs()).tolist()


def exponents(frame: pd.DataFrame, by: list[str], quantity: str, over: str, least: int) -> pd.DataFrame:
    """The exponent of ``quantity`` in ``over``, its log-log slope over the rows with ``over`` >= least: one row for
    each combination of ``by``, with a column ``exponent``. The sums that the theory predicts outgrow the
    input x_0 only at a few loops, hence ``least``."""
    rows = []
    for group, cell in frame[frame[over] >= least].groupby(by, sort=False):
        slope = np.polyfit(np.log(cell[over]), np.log(cell[quantity]), 1)[0] if cell[over].nunique() > 1 else np.nan
        rows.append({**dict(zip(by, group, strict=True)), "exponent": float(slope)})
    return pd.DataFrame(rows)
