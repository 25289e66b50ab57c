"""The second opinion reads the numbers of ``residual_scaling_init`` once more off the records, by other code."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lib.papers.residual import designs
from lib.papers.residual.parameters import ResidualScalingInit
from tests.cells import run
from tests.given import of_profile

STEPS, INCREMENTS = "lib.growth.first_steps", "lib.growth.initial_increments"
POWER = {"none": 0.0, "1/sqrt(N)": -0.5, "1/N": -1.0}  # of N, by which a rule multiplies the branches


def numbers(records: Mapping[str, list[dict[str, Any]]], parameters: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """Claim -> one row a seed, one column a comparison. ``records``: name of a measurement -> what a notebook with
    these ``parameters`` asked for, as it was kept."""
    steps, looks = (_tidy(records[name], parameters["c"]) for name in (STEPS, INCREMENTS))
    first = steps[(steps.lr == parameters["lr"]) & (steps.steps == parameters["steps"])]
    first, least = first[parameters["layers"] == first.L], parameters["least"]

    def slopes(model: str, rule: str, series: str, step: int, many: bool = True) -> pd.Series:
        """seed -> log-log slope in N of what a series holds at a step, for N from ``least`` on or up to it."""
        rows = first[first[f"{model}, {rule}"] & ((least <= first.N) if many else (least >= first.N))]
        return rows.groupby("seed").apply(lambda seed: _slope(seed.N, [xs[step] for xs in seed[series]]))

    squares = {(model, rule): slopes(model, rule, "squares", 0) for model in ("looped", "stack") for rule in POWER}
    each = {
        rule: pd.DataFrame({f"{i + 1}": slopes("looped", rule, "changes", i) for i in range(parameters["steps"])})
        for rule in POWER
    }
    few, many = slopes("looped", "1/N", "changes", 0, many=False), each["1/N"]["1"]
    apart = {rule: squares["looped", rule] - squares["stack", rule] for rule in ("none", "1/sqrt(N)")}
    copies = looks[(parameters["cosine_loops"] == looks.N) & (parameters["layers"] == looks.L)]
    stacks, loops = (copies[copies[f"{model}, none"]].set_index("seed").cosines for model in ("stack", "looped"))
    found = {
        "002-unscaled-grows-quadratically": squares["looped", "none"],
        "002-sqrt-does-not-suffice": squares["looped", "1/sqrt(N)"],
        "002-linear-keeps-the-norm": squares["looped", "1/N"],
        "002-stack-grows-linearly": squares["stack", "none"],
        "002-sqrt-suffices-for-stacks": squares["stack", "1/sqrt(N)"],
        "002-sharing-is-the-cause": pd.DataFrame(apart),
        "002-stack-increments-orthogonal": 0.15 - stacks.map(lambda matrix: np.abs(_pairs(matrix)).mean()),
        "002-looped-increments-parallel": loops.map(lambda matrix: np.quantile(_pairs(matrix), 0.05)),
        "002-unscaled-change-grows-linearly": each["none"]["1"],
        "002-sqrt-change-grows": each["1/sqrt(N)"]["1"],
        "002-linear-change-is-bounded": many,
        "002-linear-change-saturates": pd.DataFrame({"at few N": few, "and less at many": few - many}),
        "002-changes-persist": each["1/N"],
        "002-sqrt-changes-persist": each["1/sqrt(N)"],
        "002-unscaled-changes-persist": each["none"],
    }
    return {id: x if isinstance(x, pd.DataFrame) else x.to_frame("") for id, x in found.items()}


def _tidy(records: list[dict[str, Any]], c: float) -> pd.DataFrame:
    """One row a record: N, L, seed, lr, steps, what was measured, and whether it is of a looped model or a stack under
    each rule, whose branches have the multiplier c alpha. At one loop it can be of both."""
    rows = []
    for record in records:
        case, model = record["case"], record["case"]["model"]
        loops, copies = model["mean_loops"], model["recur"] // case["block"]
        row = {"N": loops * copies, "L": case["block"], "seed": case["seed"]}
        row |= {"lr": case.get("optim", {}).get("lr"), "steps": case.get("steps")}
        for rule, power in POWER.items():
            once = loops == 1 and model["residual"] == "none"
            row[f"looped, {rule}"] = copies == 1 and model["residual"] == rule
            row[f"stack, {rule}"] = once and bool(np.isclose(model["residual_c"], c * float(copies) ** power))
        rows.append(row | record["measured"])
    return pd.DataFrame(rows)


def _slope(N: pd.Series, values: list[float]) -> float:
    """The log-log slope: covariance over variance."""
    x, y = np.log(N.to_numpy(float)), np.log(np.asarray(values, dtype=float))
    return float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())


def _pairs(cosines: list[list[float]]) -> np.ndarray:
    """The cosines of two different increments, each pair once."""
    matrix = np.asarray(cosines)
    return matrix[np.triu_indices(len(matrix), 1)]


def measured():
    """(parameters, the claims of the notebook, what the second opinion reads) of real first steps at a tiny size."""
    small = dict(width=16, head_dim=8, mlp_width=16, context=8, loops=[1, 2, 4, 8], least=4, steps=2, cosine_loops=3)
    p = ResidualScalingInit(**of_profile("smoke", "residual_scaling_init") | small | {"seeds": [1, 2], "lr": 0.01})
    cases = {
        (model, rule, N, p.width, seed): designs.steps_from_init(make(p, rule, N, 1), p.lr, 1, seed, p.steps)
        for model, make in designs.MAKERS.items()
        for rule in designs.RULES
        for N in p.loops
        for seed in p.seeds
    }
    looks = {
        (model, seed): designs.Start(model=make(p, "none", p.cosine_loops, 1), block=1, seed=seed)
        for model, make in designs.MAKERS.items()
        for seed in p.seeds
    }
    # beside them stand a rate of the ladder and a block of several layers, which are of other claims
    others = [designs.steps_from_init(designs.model(p, "1/N", 8, 1), 0.02, 1, 1, p.steps)]
    others += [designs.steps_from_init(designs.model(p, "1/N", 8, 2), p.lr, 2, 1, 1)]
    asked = [(STEPS, designs.first_steps, [*cases.values(), *others])]
    asked += [(INCREMENTS, designs.initial_increments, [*looks.values()])]
    records = {
        name: [{"case": case.model_dump(mode="json"), "measured": function(case)} for case in some]
        for name, function, some in asked
    }
    own = [record["measured"] for record in records[STEPS]]
    states, changes = designs.tidy(cases, ["model", "rule", "N", "d", "seed"], own[: len(cases)])
    cosines = {label: np.array(of["measured"]["cosines"]) for label, of in zip(looks, records[INCREMENTS], strict=True)}
    relu = designs.relu_models(p.width, p.loops, p.lr, p.seeds).assign(d=p.width)
    # of other claims, and made up: a ladder of rates, and blocks of several layers
    rungs = states[["rule", "seed", "step", "norm"]].drop_duplicates(["rule", "seed", "step"]).assign(lr=p.lr)
    kinds = itertools.product(("1/N", "1/(N sqrt(L))"), p.deep_loops, p.deep, p.seeds)
    blocks = pd.DataFrame(kinds, columns=["rule", "N", "L", "seed"]).assign(square=1.0, branches=1.0, change=1.0)
    of = dict(p=p, states=states, changes=changes, cosines=cosines, relu=relu, rungs=rungs, blocks=blocks)
    cells = ("predicted = ", "exponents = ", "moved = ", "by_layers = ", "pairs = ")
    return p, run("residual_scaling_init", *cells, **of).said.claims, numbers(records, p.model_dump())


@pytest.mark.usefixtures("style")
def test_the_numbers_at_the_init_are_the_notebooks():
    p, first, second = measured()
    # a pair of increments counts once there and twice here, which moves a quantile of so few
    loose = {"002-looped-increments-parallel": 0.1}
    for id, table in second.items():
        assert table.index.tolist() == p.seeds
        own = first[id] if isinstance(first[id], dict) else {"": first[id]}
        np.testing.assert_allclose(table.to_numpy(), pd.DataFrame(own).to_numpy(), rtol=1e-9, atol=loose.get(id, 1e-9))
