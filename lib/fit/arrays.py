"""Where numbers of others come in: as arrays of floats, or as one line that names the column and what to do."""

from typing import Any

import numpy as np
import pandas as pd

from lib.base.errors import InputError

LEVEL = 1e-13  # of the largest value: what rounding alone makes of a level
POSITIVE = (1e-30, 1e30)  # no unit goes beyond, and powers and squares stay finite
NOT_NEGATIVE = (0.0, 1e30)
ANY_SIGN = (-1e30, 1e30)


def columns(table: Any, names: list[str]) -> dict[str, Any]:
    """Name -> column, of a table, or what else has names."""
    for name in names:
        if name not in table:
            raise InputError(f"{name}: is not there, only {', '.join(map(str, table))}; add it")
    return {name: table[name] for name in names}


def same_index(given: dict[str, Any]) -> None:
    """Raises InputError for columns of other rows, or of the same in another order: they would go by position."""
    indexed = [(name, x.index) for name, x in given.items() if isinstance(x, (pd.Series, pd.DataFrame))]
    for name, index in indexed[1:]:
        if not index.equals(indexed[0][1]):
            raise InputError(f"{indexed[0][0]}, {name}: indices differ, take both from one table, or both .to_numpy()")


def floats(given: dict[str, Any]) -> dict[str, np.ndarray]:
    """Each as floats of its own shape, and nan for what is missing."""
    same_index(given)
    return {name: _floats(name, x) for name, x in given.items()}


def points(given: dict[str, Any], bounds: dict[str, tuple[float, float]] | None = None) -> list[np.ndarray]:
    """Each as floats of one shape, within its bounds: positive where none are given."""
    found = floats(given)
    shapes = [x.shape for x in found.values() if x.ndim]
    if any(len(shape) > 1 or shape != shapes[0] for shape in shapes):
        raise InputError(f"{', '.join(found)}: have shapes {shapes}, give one number a point in each")
    for name, x in found.items():
        low, high = (bounds or {}).get(name, POSITIVE)
        off = x[~((x >= low) & (x <= high))]
        if off.size:
            raise InputError(
                f"{name}: {off[0]:g} lies outside {low:g} to {high:g}, as {off.size} of {x.size} do; leave those out"
            )
    return [*np.broadcast_arrays(*found.values())]


def number(name: str, value: Any, bounds: tuple[float, float]) -> float:
    """A single one."""
    return float(points({name: [value]}, {name: bounds})[0][0])


def _floats(name: str, x: Any) -> np.ndarray:
    try:
        array = np.asarray(x.filled(np.nan) if isinstance(x, np.ma.MaskedArray) else x)
        if array.dtype.kind in "OSU":
            array = np.reshape([float(value) for value in pd.to_numeric(array.ravel()).tolist()], array.shape)
        if array.dtype.kind not in "iuf":  # truth values, dates and complex numbers, which numpy would convert
            raise TypeError(f"{array.dtype} are no numbers")
        return array.astype(float, copy=False)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(f"{name}: {str(error)!r}; give numbers, and leave out the runs that have none") from None
