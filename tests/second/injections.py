"""The numbers of ``injection_ablation`` once more, from its runs."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

NAMES = {"concat-identity": "linear", "add": "additive", "none": "passthrough"}


def numbers(records: Mapping[str, list[dict[str, Any]]], parameters: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """Claim -> one row a seed, one column a comparison. ``records``: "runs" -> what was recorded."""
    losses = pd.DataFrame(
        [
            (record["config"]["model"]["injection"], record["config"]["train"]["seed"], _loss(record))
            for record in records["runs"]
            if record["config"]["train"]["seed"] in parameters["seeds"]
        ],
        columns=["injection", "seed", "loss"],
    )
    kinds = losses.replace({"injection": NAMES}).groupby(["seed", "injection"])["loss"].first().unstack()
    if not {*NAMES.values()} <= {*kinds}:
        return {}
    behind = {name: kinds["passthrough"] - kinds[name] for name in ("linear", "additive")}
    trails = (kinds["additive"] - kinds["linear"]).to_frame("")
    return {
        "000-passthrough-is-worst": pd.DataFrame(behind),
        "000-additive-trails-linear": trails,
        "000-additive-gap-in-nats": trails,
    }


def _loss(record: dict[str, Any]) -> float:
    """In nats per token at the end; that of knowing nothing, log V, for a run that diverged."""
    nothing = math.log(record["config"]["model"]["vocab_size"])
    return float(record["summary"]["val_loss"]) if record["status"] == "finished" else nothing
