"""A finished run, and what every finished run says of itself."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pydantic
from pydantic import Field

from lib.base.errors import Checked
from lib.config import RunConfig
from lib.store.columns import ENDS, FOLLOWED, LAST, LOGGED, MADE_BY, POINTS

SAID = 3  # of what is left out, how many a line names


@dataclasses.dataclass(frozen=True)
class RunResult:
    """A finished run.

    status is 'finished' or 'diverged'; summary holds the numbers of its end, metrics a column of numbers for each
    quantity that was followed (with ``step``), provenance who made it. ``path`` is None for a run that has no folder
    of its own: a record, or one kept nowhere.
    """

    config: RunConfig
    status: str
    summary: dict[str, Any]
    metrics: Mapping[str, list[Any]]
    provenance: dict[str, Any]
    path: Path | None = None

    @property
    def key(self) -> str:
        return self.config.key


def _ended(any_number: Sequence[str]) -> Any:
    """Checks how a run ended, and who made it: numbers are finite and not negative, but for some that may be any."""
    kinds: dict[str, Any] = {
        "int": Annotated[int, Field(ge=0, lt=2**63)],
        "float": Annotated[float, Field(ge=0, allow_inf_nan=False)],
        "bool": bool,
        "text": str,
    }
    fields: dict[str, Any] = {column.name: (kinds[column.kind], ...) for column in (*ENDS, *MADE_BY)}
    fields |= {name: (float, ...) for name in any_number} | {"text": (dict, ...), "processes": (int | None, None)}
    loose = {"strict": True, "extra": "ignore", "allow_inf_nan": True}
    return pydantic.create_model("Ended", __base__=Checked, __cls_kwargs__=loose, **fields)


STATUSES = {"finished": _ended(["rho"]), "diverged": _ended([*LAST, "max_state_rms"])}


def check(run: RunResult) -> None:
    """Raises ValueError for what no training leaves, whoever wrote it. A number that was changed into another one that
    could have been is not told, unless it stands in two places."""
    if run.status not in STATUSES:
        raise ValueError(f"status is {run.status!r:.80}")
    STATUSES[run.status](**run.summary, **run.provenance)
    done, steps, train = run.summary["steps_done"], run.metrics.get("step", []), run.config.train
    rising = all(a < b for a, b in itertools.pairwise([0, *steps, train.steps + 1]))
    whole = rising and done in steps[-1:] and len(steps) >= min(POINTS, done // max(1, train.steps // LOGGED))
    stopped = done < train.steps and run.status == "finished"
    if not whole or stopped or run.summary["tokens"] != done * run.config.tokens_per_step:
        raise ValueError(f"its curve of {len(steps)} rows or its tokens are not those of {done} steps of {train.steps}")
    curve = {name: np.array(run.metrics.get(name), float) for name in FOLLOWED}
    if wrong := [name for name, values in curve.items() if values.shape != (len(steps),) or (values < 0).any()]:
        raise ValueError(f"{wrong[0]} is missing in its curve, or negative")
    with np.errstate(over="ignore"):  # curves of records have fewer digits
        last = np.array([[curve[name][-1], run.summary[name]] for name in LAST], "f4")
    if not np.array_equal(last[:, 0], last[:, 1], equal_nan=True):
        raise ValueError("its losses are not those where its curve ends")
    known = np.isfinite([*curve["loss"], run.summary["val_loss"], curve["grad_norm"][-1]]).all()
    if (known and run.summary["max_state_rms"] <= train.max_state_rms) != (run.status == "finished"):
        raise ValueError(f"status is {run.status}, and its numbers are not")


def some(left_out: Sequence[str]) -> str:
    return "; ".join(left_out[:SAID]) + "; ..." * (len(left_out) > SAID)
