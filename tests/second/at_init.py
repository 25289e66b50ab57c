"""The numbers of ``residual_scaling_init`` once more, from what was measured over the first optimiser steps."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

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
        rule: pd.DataFrame(
            {f"{step + 1}": slopes("looped", rule, "changes", step) for step in range(parameters["steps"])}
        )
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
