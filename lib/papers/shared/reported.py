"""Numbers as a claim takes them: an estimate and its draws, or one number a seed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from lib.base.errors import InputError
from lib.base.statistics import LEVEL

T = TypeVar("T")

#: comparison -> [1 + n], what is estimated and its n draws; the only comparison of a claim has no name
Drawn = Mapping[str, ArrayLike]


class Reported(NamedTuple):
    """The arguments of ``nb.claim_of_published``: the number of each comparison, and its draws."""

    id: str
    values: dict[str, list[float]]
    draws: dict[str, list[float]]
    unit: str
    note: str = ""


def compared(id: str, drawn: Drawn, unit: str, note: str = "") -> Reported:
    """A claim on these numbers."""
    every = {name: np.asarray(x, dtype=float).tolist() for name, x in drawn.items()}
    values, draws = ({name: x[part] for name, x in every.items()} for part in (slice(1), slice(1, None)))
    return Reported(id, values, draws, unit, note)


def exact(id: str, found: Mapping[str, float], unit: str, note: str = "") -> Reported:
    """A claim on numbers that nothing was drawn for: each is its own interval."""
    return compared(id, {name: [x, x] for name, x in found.items()}, unit, note)


def read_off(read: Callable[[T], Mapping[str, float]], every: Sequence[T]) -> dict[str, list[float]]:
    """What is read off a grid of runs, or a law, and off those that might have been, the first of ``every`` being the
    one that is."""
    margins = [read(one) for one in every]
    return {name: [of[name] for of in margins] for name in margins[0]}


def rests_on(
    reported: Iterable[Reported],
    read: Callable[[pd.DataFrame, float | str], Iterable[Reported]],
    runs: pd.DataFrame,
    seeds: Sequence[int],
) -> dict[str, dict[str, Any]]:
    """Claim -> the arguments of ``nb.claim`` that say what its interval rests on. read: what is ``reported``, of some
    runs and by laws of a coupling, as ``fit_joint`` takes it; it is asked of the runs of each seed by themselves, and
    of all runs by the coupled law. Where that changes nothing no law was read; nothing is said where the runs of a seed
    are too few for a law."""

    def numbers(of: pd.DataFrame, coupling: float | str) -> dict[str, dict[str, float]]:
        return {one.id: {name: x for name, (x,) in one.values.items()} for one in read(of, coupling)}

    try:
        each, form = [numbers(runs[runs["seed"] == seed], 1) for seed in seeds], numbers(runs, "free")
    except (InputError, KeyError):  # no law, or one of some recurrences alone
        return {one.id: {} for one in reported}
    return {
        one.id: {
            "by_seed": {name: [own[one.id].get(name, np.nan) for own in each] for name in one.values},
            "by_form": {name: form[one.id][name] for name, (x,) in one.values.items() if form[one.id][name] != x},
        }
        for one in reported
    }


def with_intervals(found: pd.DataFrame, drawn: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Each column of a table with its 95 % interval over such tables of what might have been: x, x low, x high."""
    ends = np.quantile(np.array([*drawn], dtype=float), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    low, high = (pd.DataFrame(end, found.index, found.columns) for end in ends)
    table = found.join(low.add_suffix(" low")).join(high.add_suffix(" high"))
    return table[[f"{name}{end}" for name in found for end in ("", " low", " high")]]


def comparisons(table: pd.DataFrame | pd.Series, seeds: list[int]) -> list[float] | dict[str, list[float]]:
    """Each column of a table with one row a seed as the numbers of ``seeds``, in their order, by its name: "L = 4, N =
    1" where the levels of the columns are L and N, the value alone where a level has no name. Of a series the numbers
    alone, of one comparison without a name."""
    if isinstance(table, pd.Series):
        return [float(x) for x in table[seeds]]

    def name(column: Any) -> str:
        values = column if isinstance(column, tuple) else (column,)
        shown = (
            (level, f"{value:g}" if isinstance(value, float) else str(value))
            for level, value in zip(table.columns.names, values, strict=True)
        )
        return ", ".join(f"{level} = {value}" if level else value for level, value in shown)

    return {name(column): [float(x) for x in values[seeds]] for column, values in table.items()}
