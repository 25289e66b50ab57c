"""What the layouts of other people's checkpoints share: fields of a config.json, and their tensors under our names.

A layout is a table of names and a function of config.json. What it does not read is refused before a tensor is touched:
a field that is missing, or one that says what this library does not have. Then every tensor must be in the table, and
every name of the table among the tensors. Errors call fields and tensors as the checkpoint does: what a layout reads
goes with the table back.
"""

import json
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from lib.base.errors import InputError
from lib.config import ModelConfig
from lib.model.weights import missing_or_unknown, refuse

Tensors = dict[str, Tensor]
#: a config.json
About = dict[str, Any]
#: their name -> ours, or back
Names = dict[str, str]


def need(about: About, whose: str, fields: Iterable[str], least: float = 1e-12) -> None:
    """Raises InputError where config.json does not state one of these fields, numbers that are at least so large."""
    for field in fields:
        value = about.get(field)
        if value is None:
            raise InputError(f"{field}: {whose} needs a config.json beside it that states it, restore that")
        if isinstance(value, bool) or not isinstance(value, int | float) or value < least:
            raise InputError(f"{field}: {json.dumps(value)} is no size, restore the config.json of {whose}")


def read_only(about: About, whose: str, here: dict[str, Any]) -> None:
    """Raises InputError where config.json states another value than what is here; a tuple has several that are.

    What it does not state, or states as null, is as here.
    """
    for field, known in here.items():
        value = about.get(field)
        options = known if isinstance(known, tuple) else (known,)
        if value is not None and value not in options:
            wanted = " or ".join(json.dumps(option) for option in options)
            raise InputError(f"{field}: {json.dumps(value)} has no counterpart here, load {whose} with {wanted}")


def section(about: About, field: str) -> About:
    """An object in config.json, empty where it is missing or null. Raises InputError where it is none."""
    value = about.get(field) or {}
    if not isinstance(value, dict):
        raise InputError(f"{field}: {json.dumps(value)} is no JSON object, restore the config.json")
    return value


def names(model: Names, block: Names, places: Names) -> Names:
    """Their name -> ours, of a whole model; ``places`` has their prefix of each block -> ours."""
    blocks = {f"{at}.{leaf}": f"{to}.{ours}" for at, to in places.items() for leaf, ours in block.items()}
    return model | blocks


def places(theirs: str, ours: str, layers: int) -> Names:
    """theirs.0 -> ours.0, and so on."""
    return {f"{theirs}.{i}": f"{ours}.{i}" for i in range(layers)}


def rename(tensors: Tensors, names: Names) -> tuple[Tensors, Names]:
    """The tensors under our names, and our name -> theirs. Raises InputError naming those that are missing, and those
    that are unknown."""
    refuse(missing_or_unknown(names, tensors), "give the whole checkpoint of its config.json")
    return {names[name]: tensor for name, tensor in tensors.items()}, {ours: name for name, ours in names.items()}


def without(tensors: Tensors, *endings: str) -> Tensors:
    """Without what we compute ourselves, as rotary angles."""
    return {name: tensor for name, tensor in tensors.items() if not name.endswith(endings)}


def with_head(names: Names, tensors: Tensors, cfg: ModelConfig, head: str, table: str) -> tuple[Names, Tensors]:
    """The names with that of a head of its own; of a tied one the tensors without it. Raises InputError where it is not
    the table."""
    if not cfg.tied:
        return names | {head: "head.weight"}, tensors
    if not is_tied(tensors, head, table):
        raise InputError(f"{head}: it is not {table}, though config.json says that they are one, restore either")
    return names, without(tensors, head)


def is_tied(tensors: Tensors, head: str, table: str) -> bool:
    """Whether there are no two of them that differ."""
    return not {head, table} <= tensors.keys() or torch.equal(tensors[head], tensors[table])


def split(tensors: Tensors, called: Names, whole: str, parts: dict[str, int], columns: int) -> None:
    """Puts parts of so many rows in the place of every tensor whose name ends with ``whole``, side by side in it."""
    shape = (sum(parts.values()), columns)
    for name in [name for name in tensors if name.endswith(whole)]:
        tensor = tensors.pop(name)
        if tensor.shape != shape:
            refuse([f"{called[name]} has shape {tuple(tensor.shape)} instead of {shape}"], "restore it")
        stem = name.removesuffix(whole)
        rows = tensor.split([*parts.values()])
        tensors |= {stem + part: taken for part, taken in zip(parts, rows, strict=True)}


def state_last(weight: Tensor) -> Tensor:
    """W [e ; h], as we have it, of a concatenating injection W [h ; e]."""
    return torch.cat(weight.chunk(2, -1)[::-1], -1) if weight.ndim == 2 else weight
