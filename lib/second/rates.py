"""The numbers of ``mup_transfer`` once more, from its runs."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from lib.second.runs import loss_of


def numbers(records: Mapping[str, list[dict[str, Any]]], parameters: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """Claim -> one row a seed, one column an architecture and larger width. records: "runs" -> what was recorded."""
    losses: dict[tuple[str, int, float, int], float] = {}
    for record in records["runs"]:
        model = record["config"]["model"]
        name = ("looped, " if model["mean_loops"] > 1 else "") + ("moe" if model["experts"] > 1 else "dense")
        run = name, model["width"], record["config"]["optim"]["lr"], record["config"]["train"]["seed"]
        losses[run] = min(loss_of(record), math.log(model["vocab_size"]))
    names, widths = sorted({run[0] for run in losses}), sorted({run[1] for run in losses})
    rates, seeds = sorted({run[2] for run in losses}), sorted({run[3] for run in losses})

    def chosen(name: str, width: int, judge: int) -> float:
        """The rate that is the best on average, by all seeds but the one that judges."""
        others = [seed for seed in seeds if seed != judge] or seeds
        return min(rates, key=lambda lr: math.fsum(losses[name, width, lr, seed] for seed in others))

    room = {
        (name, width): {
            seed: 1.008
            - losses[name, width, chosen(name, widths[0], seed), seed]
            / losses[name, width, chosen(name, width, seed), seed]
            for seed in seeds
        }
        for name in names
        for width in widths[1:]
    }
    return {"004-mup-transfers": pd.DataFrame({f"{name}, d = {width}": by for (name, width), by in room.items()})}
