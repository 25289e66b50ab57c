"""What the readings of runs share."""

import math
from typing import Any


def loss_of(record: dict[str, Any]) -> float:
    """The validation loss at the end in nats per token; that of knowing nothing, log V, for a run that diverged."""
    nothing = math.log(record["config"]["model"]["vocab_size"])
    return float(record["summary"]["val_loss"]) if record["status"] == "finished" else nothing
