"""A finished run, what every finished run says of itself, and the columns in which records have it: name, type and
meaning. Every part of records has them; what a run or a measurement lacks is empty."""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import numpy as np
import pydantic

from lib.base.errors import Checked
from lib.config import RunConfig

if TYPE_CHECKING:
    import pyarrow as pa

TABLES = ("curves", "measured", "runs")  # in the order in which a part is written: it is there once its runs are
SUMMARY, MADE = "summary.", "provenance."  # what names of columns begin with
LOGGED = 500  # steps of a run that are logged at least, every (steps // 500)-th; all of a run that has fewer
POINTS = 100  # of a record's curve


class Column(NamedTuple):
    name: str
    kind: str  # int, float, bool, text, floats or ints
    says: str


#: how a run ended
ENDS = [
    Column("loss", "float", "training loss of the last step, nats per token"),
    Column("val_loss", "float", "loss on the validation rows at mean_loops, nats per token"),
    Column("val_perplexity", "float", "e to that"),
    Column("val_bpb", "float", "the same in bits per byte of text"),
    Column("rho", "float", "spectral radius of what carries the state from loop to loop; nan where there is none"),
    Column("steps_done", "int", "optimiser steps until the end, or until the run diverged"),
    Column("tokens", "int", "tokens trained on"),
    Column("train_flops", "float", "FLOPs of the training, by the honest count of lib/flops.py"),
    Column("max_state_rms", "float", "largest root mean square of the state after its last loop, over logged steps"),
    Column("seconds", "float", "seconds that the training took"),
]
LAST = [column.name for column in ENDS[:5]]  # what stands in the last row of a curve, too
#: who made a run or a measurement
MADE_BY = [
    Column("recipe", "int", "lib.RECIPE, which is raised when numbers change"),
    Column("attention", "text", "what computed attention"),
    Column("text", "text", "the tokenised text as JSON: documents, bytes, tokens, checksums"),
    Column("compiled", "bool", "whether blocks were compiled by torch"),
    Column("processes", "int", "how many trained it together; empty for one"),
    Column("commit", "text", "commit of this repository"),
    Column("python", "text", "version"),
    Column("torch", "text", "version"),
    Column("numpy", "text", "version"),
    Column("device", "text", "accelerator, or kind of processor"),
    Column("cpu", "text", "processor"),
    Column("instructions", "text", "its instruction sets that compute"),
    Column("compiler", "text", "C compiler that made the kernels"),
]
#: of these what is noted of a measurement
WHO = ("commit", "python", "torch", "numpy", "device", "cpu", "instructions", "compiler")
#: what is followed in a logged step
CURVES = [
    Column("step", "int", "optimiser step, from 1 on"),
    Column("loss", "float", "training loss, nats per token"),
    Column("state_norm", "float", "mean norm of a token's state after its last loop"),
    Column("state_rms", "float", "root mean square of that state"),
    Column("residual", "float", "mean norm of the last loop's change of the state"),
    Column("grad_norm", "float", "norm of the gradient before it is clipped"),
    Column("tokens_per_s", "float", "tokens trained on in a second"),
    Column("rho", "float", "as in runs"),
    Column("a_norm", "float", "spectral norm of A, which keeps the state"),
    Column("b_norm", "float", "spectral norm of B, which lets the prelude's output in"),
    Column("c_norm", "float", "spectral norm of C, the readout"),
    Column("router_loss", "float", "what routers add to the loss"),
    Column("val_loss", "float", "as in runs"),
    Column("val_perplexity", "float", "as in runs"),
    Column("val_bpb", "float", "as in runs"),
]
#: of these what every run has, never negative: nan in steps in which it is not measured, as in all where there is none
FOLLOWED = [column.name for column in CURVES if column.name not in ("step", "router_loss")]
#: further columns of curves, which only parts with such runs have
FAMILIES = {
    "trace ": "norm of the state at that place of the model, on validation rows; or the cosines between its increments",
    "routing ": "share of tokens that keep none, some or all of their experts from one loop to another, or by chance",
}
MEASURED = [
    Column("measurement", "text", "name of the function that measured"),
    Column("key", "text", "the measurement's key, a hash of the recipe and the case"),
    Column("run", "text", "key of the run, or hash of the checkpoint, that it was made on; empty where it needs none"),
    Column("case", "text", "all that decides its numbers, as JSON"),
    Column("quantity", "text", "the names that lead to the number, each after a /"),
    Column("i", "int", "its place in a list, or the row of a table"),
    Column("j", "int", "its place in the row of a table"),
    Column("value", "float", "the number; losses in nats per token"),
    Column("kind", "text", "float, int or bool; text, none, no names or no items where it is no number"),
    Column("text", "text", "what is measured in words"),
]


@functools.cache
def row_types() -> dict[str, str]:
    """Column of a config's field -> what it holds. Numbers or words are text."""
    kinds = {"integer": "int", "number": "float", "boolean": "bool", "string": "text", "array": "floats"}
    found = {}
    for part, info in RunConfig.model_fields.items():
        fields = cast(Any, info.annotation).model_json_schema()["properties"]
        for field, schema in fields.items():
            types = {option["type"] for option in schema.get("anyOf", [schema])} - {"null"}
            found[f"{part}.{field}"] = "text" if len(types) > 1 else kinds[types.pop()]
    return found


def schema(table: str, followed: Iterable[str] = ()) -> "pa.Schema":
    """Of one of TABLES; curves also have what was ``followed``."""
    import pyarrow as pa

    kinds = {"key": "text"}
    if table == "runs":
        kinds |= row_types() | {"status": "text"} | _kinds(ENDS, SUMMARY) | _kinds(MADE_BY, MADE)
    elif table == "curves":
        kinds |= dict.fromkeys([*_kinds(CURVES), *followed], "float32") | {"key": "text", "step": "int32"}
    else:
        kinds = _kinds(MEASURED) | _kinds((column for column in MADE_BY if column.name in WHO), MADE)
    arrow = {
        "int": pa.int64(),
        "int32": pa.int32(),
        "float": pa.float64(),
        "float32": pa.float32(),
        "bool": pa.bool_(),
        "text": pa.string(),
        "floats": pa.list_(pa.float64()),
    }
    return pa.schema([(name, arrow[kind]) for name, kind in kinds.items()])


def _kinds(some: Iterable[Column], prefix: str = "") -> dict[str, str]:
    return {prefix + column.name: column.kind for column in some}


# ---- a run -----------------------------------------------------------------------------------------------------------


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
        "int": Annotated[int, pydantic.Field(ge=0, lt=2**63)],
        "float": Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)],
        "bool": bool,
        "text": str,
    }
    fields: dict[str, Any] = {column.name: (kinds[column.kind], ...) for column in (*ENDS, *MADE_BY)}
    fields |= {name: (float, ...) for name in any_number} | {"text": (dict, ...), "processes": (int | None, None)}
    return pydantic.create_model(
        "Ended", __base__=Checked, __cls_kwargs__={"strict": True, "extra": "ignore", "allow_inf_nan": True}, **fields
    )


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
