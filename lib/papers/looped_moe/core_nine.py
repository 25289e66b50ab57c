"""Core 9 of 004's best models: nine tasks as OLMES asks them."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from lib.config import Label, RunConfig
from lib.papers.looped_moe import designs
from lib.papers.shared.scores import Contrast, accuracy_scores, contrast, labelled
from lib.tasks.suites import CORE_9

NINE = {task.name.removesuffix(" (OLMES)"): task for task in CORE_9}


def best_of_each(grid: dict[Label, RunConfig], found: dict[str, Any]) -> dict[Label, RunConfig]:
    """(architecture, width, seed) -> run: for each of 004's architectures and each seed, the one with the lowest
    validation loss at the largest budget of ``grid`` (``designs.grid``). found: the runs' results by key."""
    runs = designs.frame([found[cfg.key] for cfg in grid.values()], grid)
    top = runs[runs["budget"] == runs["budget"].max()]
    best = top.loc[top.groupby(["architecture", "seed"], sort=False)["loss"].idxmin()]
    return {
        (row.architecture, row.width, row.seed): grid[row.architecture, row.budget, row.width, row.seed]
        for row in best.itertuples()
    }


def nine_scores(
    table: pd.DataFrame, runs: dict[Label, RunConfig], names: Sequence[str], found: dict[str, Any]
) -> pd.DataFrame:
    """Core 9 and each of its tasks, one row a run of 004, as ``scores.labelled`` has them."""
    return labelled(accuracy_scores(table, "Core 9", NINE), runs, names, found)


def on_core_9(runs: pd.DataFrame, pairs: Sequence[tuple[str, str]], seeds: Sequence[int]) -> dict[str, Contrast]:
    """By how much the first architecture of each pair lies above the second."""
    return {
        f"{a} over {b}": contrast(runs, "Core 9", {(a,): 1.0, (b,): -1.0}, ("architecture",), seeds) for a, b in pairs
    }
