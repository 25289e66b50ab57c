"""The columns of records: name, type and meaning. Every part has them; what a run or a measurement lacks is empty."""

import functools
import typing
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

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
def config_kinds() -> dict[str, set[str]]:
    """Column of a config's field -> the kinds of its values: int, float, bool, text or floats."""
    kinds = {"integer": "int", "number": "float", "boolean": "bool", "string": "text", "array": "floats"}
    found = {}
    for part, info in RunConfig.model_fields.items():
        fields = typing.cast(Any, info.annotation).model_json_schema()["properties"]
        for field, schema in fields.items():
            types = {option["type"] for option in schema.get("anyOf", [schema])} - {"null"}
            found[f"{part}.{field}"] = {kinds[name] for name in types}
    return found


def row_types() -> dict[str, str]:
    """Column of a config's field -> what it holds. Numbers or words are text."""
    return {name: "text" if len(kinds) > 1 else next(iter(kinds)) for name, kinds in config_kinds().items()}


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
