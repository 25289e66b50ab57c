"""What a sweep found, as a table with the parts of the runs' labels for columns."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lib.config import Label, RunConfig
from lib.store.result import RunResult


def labelled(results: Iterable[RunResult], plan: dict[Label, RunConfig], names: Sequence[str]) -> pd.DataFrame:
    """One row a run of the plan: ``label``, its parts under ``names``, ``status``, ``tokens``, the last validation's
    bits per byte ``bpb``, and its ``loss`` in nats per token, nan where the run diverged."""
    found = {result.key: result for result in results}
    rows = [
        {
            "label": label,
            **dict(zip(names, label, strict=True)),
            "status": result.status,
            "tokens": result.summary.get("tokens"),
            "bpb": result.summary.get("val_bpb"),
            "loss": result.summary["val_loss"] if result.status == "finished" else np.nan,
        }
        for label, result in ((label, found[cfg.key]) for label, cfg in plan.items())
    ]
    return pd.DataFrame(rows, columns=["label", *names, "status", "tokens", "bpb", "loss"])


def finished(
    results: Iterable[RunResult],
    plan: dict[Label, RunConfig],
    names: Sequence[str],
    size: Callable[[RunConfig], dict[str, Any]],
    status: str = "finished",
) -> pd.DataFrame:
    """``labelled`` runs that finished, or that have another ``status``, with what ``size`` says of their configs
    besides."""
    sizes = pd.DataFrame([size(cfg) for cfg in plan.values()])
    return labelled(results, plan, names).join(sizes).query("status == @status").reset_index(drop=True)


def with_labels(
    table: pd.DataFrame, plan: dict[Label, RunConfig], names: Sequence[str], key: str = "key"
) -> pd.DataFrame:
    """The rows of a table that are of runs of the plan, by their keys in the column ``key``, with the parts of its
    labels under ``names``. A run that has several labels has its rows with each of them."""
    labels = pd.DataFrame([*plan], columns=[*names], index=[cfg.key for cfg in plan.values()])
    return table.merge(labels, left_on=key, right_index=True)
