"""What a sweep found, as a table with the parts of the runs' labels for columns."""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from lib.config import Label, RunConfig
from lib.store.result import RunResult


def labelled(results: Iterable[RunResult], plan: dict[Label, RunConfig], names: Sequence[str]) -> pd.DataFrame:
    """One row a run of the plan: ``label``, its parts under ``names``, ``status``, ``tokens``, and ``loss``, the last
    validation loss in nats per token, nan where the run diverged."""
    found = {result.key: result for result in results}
    rows = []
    for label, cfg in plan.items():
        result = found[cfg.key]
        finished = result.status == "finished"
        outcome = {"status": result.status, "tokens": result.summary.get("tokens")}
        loss = result.summary["val_loss"] if finished else np.nan
        rows.append({"label": label, **dict(zip(names, label, strict=True)), **outcome, "loss": loss})
    return pd.DataFrame(rows, columns=["label", *names, "status", "tokens", "loss"])
