"""Measured numbers as rows of a table and back: numbers, words, lists and tables of them, and names within names."""

import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from lib.base.errors import InputError

NESTED = "/"  # between the names of a measured number
KINDS: dict[type, str] = {bool: "bool", int: "int", float: "float", str: "text", types.NoneType: "none"}
KINDS |= {dict: "no names", list: "no items"}  # which are empty


class Number(NamedTuple):
    """A measured number: the names that lead to it, and its place in a list or a table."""

    quantity: str
    i: int | None
    j: int | None
    value: float | None
    kind: str
    text: str | None


def flat(values: Mapping[str, Any], under: str = "") -> Iterator[Number]:
    """A row for each number of names within names, and of lists or tables of them. Raises InputError for what no table
    holds."""
    if not values:
        yield _number(under, None, None, values)
    for name, value in values.items():
        if NESTED in name:
            raise InputError(f"measured: {name!r} has a {NESTED} in it, which separates names, call it otherwise")
        path = under + NESTED + name
        if isinstance(value, dict):
            yield from flat(value, path)
        elif isinstance(value, list) and value:
            for i, row in enumerate(value):
                cells = enumerate(row) if isinstance(row, list) and row else [(None, row)]
                yield from (_number(path, i, j, x) for j, x in cells)
        else:
            yield _number(path, None, None, value)


def _number(path: str, i: int | None, j: int | None, x: Any) -> Number:
    if isinstance(x, dict | list) and x:
        raise InputError(f"measured: {path!r} is composed too deeply for a table, use lists or tables of numbers")
    kind = next((kind for of, kind in KINDS.items() if isinstance(x, of)), None)  # numpy's floats are floats, too
    if kind is None:
        raise InputError(f"measured: {path!r} is a {type(x).__name__}, use numbers, words, lists and names")
    value = float(x) if isinstance(x, int | float) else None  # bool among them
    return Number(path, i, j, value, kind, x if isinstance(x, str) else None)


def nested(numbers: Iterable[Number]) -> dict[str, Any]:
    """What ``flat`` was given."""
    found: dict[str, Any] = {}
    for number in numbers:
        if not number.quantity:
            return {}
        x = _read(number)
        *outer, name = number.quantity.removeprefix(NESTED).split(NESTED)
        place = found
        for step in outer:
            place = place.setdefault(step, {})
        if number.i is None:
            place[name] = x
        elif number.j:
            place[name][number.i].append(x)
        else:
            place.setdefault(name, []).append(x if number.j is None else [x])
    return found


def _read(number: Number) -> Any:
    make = {"int": int, "float": float, "bool": bool}
    if number.kind in make:
        return make[number.kind](cast(float, number.value))
    return {"text": number.text, "none": None, "no names": {}, "no items": []}[number.kind]
