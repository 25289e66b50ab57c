"""The numbers of ``injection_ablation`` once more, from its runs."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from lib.second.runs import loss_of

NAMES = {"concat-identity": "linear", "add": "additive", "none": "passthrough"}


def numbers(records: Mapping[str, list[dict[str, Any]]], parameters: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """Claim -> one row a seed, one column a comparison. ``records``: "runs" -> what was recorded."""
    losses = pd.DataFrame(
        [
            (record["config"]["model"]["injection"], record["config"]["train"]["seed"], loss_of(record))
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
