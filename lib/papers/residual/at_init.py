"""How the stream, and what one optimiser step changes in it, grow with the loops: 002, Sec. 3 (Theorems 1 and 2,
Fig. 2, 3, 4 and 9).

A looped model uses each layer N times; a stack has N different layers in the place of each. A rule sets the multiplier
alpha of x <- x + alpha f(x). A ``square`` is |x_N|^2 / d, a ``change`` the root mean square over the elements of x_N of
what one optimiser step changes there.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from torch import Tensor

from lib.base.machine import device_type
from lib.base.seeds import torch_stream
from lib.base.statistics import mean_and_interval
from lib.config import Config, ModelConfig, OptimConfig
from lib.flops import count
from lib.model import probes
from lib.model.looped import Draw, LoopedLM
from lib.papers.shared.slopes import slopes
from lib.sweep.measurements import named
from lib.train.optimiser import Optimizer

#: alpha by the number of loops N
RULES: dict[str, Callable[[int], float]] = {
    "none": lambda N: 1.0,
    "1/sqrt(N)": lambda N: N**-0.5,
    "1/N": lambda N: 1 / N,
}
#: the exponents in N that 002 predicts: of a square at the init, and of the change by one step of a looped model
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
        return LoopedLM(self.model, seed=self.seed).to(device_type())

    def tokens(self) -> torch.Tensor:
        """The row [1, S + 1], the same at every step."""
        generator = torch_stream("random tokens", self.seed)
        return torch.randint(self.model.vocab_size, (1, self.model.context + 1), generator=generator)

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


@named("lib.growth.first_steps")
def first_steps(case: FirstSteps) -> dict[str, list[float]]:
    """At the end of the last loop, ``squares`` [steps + 1], before the first step and after each, and ``changes``
    [steps] by each step. In fp32."""
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
    """Returns, of a model at its init, ``cosines`` [n, n] between the increments of n passes (one block n times, or n
    blocks once each), and ``branches``, |x_N - x_0|^2 / d, the square of their sum."""
    model = case.network()
    states = probes.stream(model, case.tokens()[:, :-1].to(model.angles.device), every=case.block)
    branches = (states[-1] - states[0]).square().mean().item()
    return {"cosines": probes.increment_cosines(states).tolist(), "branches": branches}


def relu_steps(
    width: int, loops: int, alpha: float, shared: bool, normalised: bool, lr: float, seeds: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """(squares [seeds], changes [seeds]) of the theory's model x <- x + alpha W relu(x), W ~ N(0, 1/d) (002, Eq. 1).

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
        return x.square().mean(-1).numpy(), (changed - x).square().mean(-1).sqrt().numpy()


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
    parts = []
    for (name, (shared, normalised)), N, rule in itertools.product(RELU.items(), loops, RULES):  # one draw, all rules
        squares, changes = relu_steps(width, N, RULES[rule](N), shared, normalised, lr, seeds)
        parts.append(
            pd.DataFrame({"model": name, "rule": rule, "N": N, "seed": seeds, "square": squares, "change": changes})
        )
    return pd.concat(parts, ignore_index=True)


def tidy(labels: list[dict[str, Any]], results: list[dict[str, Any]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What ``first_steps`` measured, as two tables, each row with the columns of its label: (states, one row a step
    from 0 on, with square and its root norm; changes, one row a step from 1 on, with change)."""
    squares, changes = [], []
    for label, result in zip(labels, results, strict=True):
        squares += [
            {**label, "step": step, "square": square, "norm": square**0.5}
            for step, square in enumerate(result["squares"])
        ]
        changes += [{**label, "step": step, "change": change} for step, change in enumerate(result["changes"], start=1)]
    return pd.DataFrame(squares), pd.DataFrame(changes)


def statistics(
    states: pd.DataFrame,
    changes: pd.DataFrame,
    relu: pd.DataFrame,
    cosines: dict[tuple[str, int], np.ndarray],
    least: int,
) -> dict[str, pd.DataFrame]:
    """What the claims are about, from what ``tidy`` and ``relu_models`` give and the cosines [n, n] between increments
    by (model, seed): tables with one row a seed. Exponents are in N, from ``least`` on.

    squares: exponent of the square at the init, columns (model, rule), with those of the theory's model. changes: that
    of the change by a step, columns (model, rule, step). relu changes: the same of the theory's model, columns (model,
    rule). few loops: the same of the looped model's first step, up to ``least``, a column a rule. cosines: of two
    different increments, the mean absolute and the 5 % quantile, columns (which, model)."""

    def by_seed(measured: pd.DataFrame, by: list[str], quantity: str) -> pd.DataFrame:
        found = slopes(measured[measured["N"] >= least], [*by, "seed"], quantity, "N")
        return found.unstack(by).sort_index(axis=1)

    start = states[states["step"] == 0]
    few = changes.query("model == 'looped' and step == 1 and N <= @least")
    pairs = []
    for (model, seed), matrix in cosines.items():
        different = matrix[~np.eye(len(matrix), dtype=bool)]
        found = {"absolute": np.abs(different).mean(), "5 %": np.quantile(different, 0.05)}
        pairs.append({"model": model, "seed": seed, **found})
    return {
        "squares": by_seed(pd.concat([start, relu]), ["model", "rule"], "square"),
        "changes": by_seed(changes, ["model", "rule", "step"], "change"),
        "relu changes": by_seed(relu, ["model", "rule"], "change"),
        "few loops": slopes(few, ["seed", "rule"], "change", "N").unstack("rule"),
        "cosines": pd.DataFrame(pairs).pivot(index="seed", columns="model"),
    }


def deviations(exponents: pd.DataFrame, predicted: dict[tuple[Any, ...], float]) -> pd.DataFrame:
    """How far exponents lie from those predicted, with their sign: one row a seed, one column for each name of
    ``predicted``, which are the columns of exponents."""
    return pd.DataFrame({", ".join(map(str, name)): exponents[name] - value for name, value in predicted.items()})


MOST_GROWTH = 10.0  # octaves; beyond them a norm has exploded, and by how much says nothing


def explosion_rates(states: pd.DataFrame) -> pd.DataFrame:
    """The learning rate at which the norm first doubles within the steps: one row a seed, one column a rule, in
    octaves. states: as ``tidy`` has them, of a ladder of rates, with a column ``lr``.

    Between two rates the octaves of growth are interpolated in log lr. A norm that doubles at the least rate has that
    one, and one that doubles at none has the largest, so that two rules of which neither explodes are not told apart:
    they have no number."""
    cells = states.assign(norm=states["norm"].fillna(np.inf)).set_index(["seed", "rule", "lr"])
    times = cells.groupby(level=[0, 1, 2])["norm"].max() / cells.loc[cells["step"] == 0, "norm"]
    grown = times.apply(np.log2).clip(upper=MOST_GROWTH).unstack("lr")
    octaves = np.log2(grown.columns.to_numpy(float))
    found = pd.Series({label: _crossing(octaves, row.to_numpy()) for label, row in grown.iterrows()})
    table = found.rename_axis(["seed", "rule"]).unstack("rule")
    return table[(grown.max(axis=1) >= 1).unstack("rule").any(axis=1)].reindex(table.index)


def _crossing(x: np.ndarray, grown: np.ndarray) -> float:
    """Where what has ``grown`` at x first passes 1."""
    if not (grown >= 1).any():
        return float(x[-1])
    i = int((grown >= 1).argmax())
    return float(x[0] if i == 0 else np.interp(1.0, grown[i - 1 : i + 1], x[i - 1 : i + 1]))


CONE_GAIN = 1 - 0.5**0.5  # the least gain on the cone as the width grows: one less its Gaussian width (Gordon)
CONE_STARTS, CONE_STEPS = 16, 300  # of the search for the least and the largest


def cone_gains(width: int, seed: int) -> tuple[float, float]:
    """The least and the largest |W x| / |x| that a search finds over x >= 0, of one W ~ N(0, 1/d) (002, Lemma 5).

    A projected power iteration from many starts: no descent is sure to find the least, so that it lies no higher."""
    draw = torch_stream("cone", seed)
    W = torch.randn(width, width, generator=draw, dtype=torch.float64) / math.sqrt(width)
    gram = W.T @ W
    shift = torch.linalg.matrix_norm(gram, 2)
    starts = torch.rand(CONE_STARTS, width, generator=draw, dtype=torch.float64)

    x = torch.stack([starts, starts])  # on the way to the least and to the largest
    for _ in range(CONE_STEPS):
        image = x @ gram
        x = torch.nn.functional.normalize(torch.stack([shift * x[0] - image[0], image[1]]).relu(), dim=-1)
    least, most = (x @ W.T).norm(dim=-1)
    return float(least.min()), float(most.max())


def cone_room(widths: list[int], seeds: list[int]) -> pd.DataFrame:
    """What is left of Lemma 5's constants, one row a seed: below, the least gain over half of CONE_GAIN; above, the
    norm 2 of W and that half over the largest."""
    rows = {}
    for seed in seeds:
        found = {width: cone_gains(width, seed) for width in widths}
        rows[seed] = {f"below, d = {d}": least - CONE_GAIN / 2 for d, (least, _) in found.items()}
        rows[seed] |= {f"above, d = {d}": 2 + CONE_GAIN / 2 - most for d, (_, most) in found.items()}
    return pd.DataFrame.from_dict(rows, orient="index")


def of_blocks(
    labels: pd.DataFrame, states: pd.DataFrame, changes: pd.DataFrame, increments: list[dict[str, Any]]
) -> pd.DataFrame:
    """What was measured of blocks, one row a label: square and norm at the init, change by the first step, and the
    ``branches`` of ``increments`` (``initial_increments``), which are in the order of the labels."""
    names = list(labels)
    blocks = labels.assign(branches=[found["branches"] for found in increments])
    start, first = states[states["step"] == 0], changes[changes["step"] == 1]
    return blocks.merge(start.drop(columns="step"), on=names).merge(first.drop(columns="step"), on=names)


def with_intervals(exponents: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """mean, low and high of the column ``exponent`` over the seeds of each combination of ``by``: the 95 % interval of
    the mean by Student's t."""
    found = exponents.groupby(by, sort=False)["exponent"].apply(mean_and_interval)
    return pd.DataFrame(found.tolist(), found.index, ["mean", "low", "high"])


def in_layers(blocks: pd.DataFrame) -> pd.DataFrame:
    """The exponents of Theorem 3 and Proposition 7 for blocks of L layers, one row a seed. ``branches``: under 1/N, of
    the square of the branches' sum in L. ``square in L``, ``square in N`` and ``change in L``: under 1/(N sqrt(L)).
    Exponents in L are at the largest N, the one in N at the largest L. blocks has the columns rule, N, L, seed, square,
    branches and change."""
    most, deepest = blocks[blocks["N"] == blocks["N"].max()], blocks[blocks["L"] == blocks["L"].max()]

    found = {
        "branches": slopes(most[most["rule"] == "1/N"], ["seed"], "branches", "L"),
        "square in L": slopes(most[most["rule"] == "1/(N sqrt(L))"], ["seed"], "square", "L"),
        "square in N": slopes(deepest[deepest["rule"] == "1/(N sqrt(L))"], ["seed"], "square", "N"),
        "change in L": slopes(most[most["rule"] == "1/(N sqrt(L))"], ["seed"], "change", "L"),
    }
    return pd.DataFrame(found)


def exponents(measured: pd.DataFrame, by: list[str], quantity: str, over: str, least: int) -> pd.DataFrame:
    """The exponent of the column ``quantity`` in the column ``over``, its log-log slope: one row for each combination
    of ``by``, with a column ``exponent``, nan where one value of ``over`` is left.

    Only rows with ``over`` >= least count: at fewer loops the input x_0 outweighs the sum that the theory predicts."""
    return slopes(measured[measured[over] >= least], by, quantity, over).rename("exponent").reset_index()
