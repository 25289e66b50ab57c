"""What a room of papers hands a notebook, to be reported as a claim of the ledger."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

Numbers = Sequence[float] | Mapping[str, Sequence[float]]


class Reported(NamedTuple):
    """The arguments of ``nb.claim_of_published``: one number, or one for each comparison; the resamples of each, or the
    two ends of an interval that comes from elsewhere."""

    id: str
    values: Numbers
    draws: Numbers | tuple[float, float]
    unit: str
    note: str = ""


def compared(
    id: str, found: Mapping[str, float], draws: Sequence[Mapping[str, float]], unit: str, note: str = ""
) -> Reported:
    """A claim that speaks of several comparisons, by name, and the same numbers in each of the draws."""
    values = {name: [float(x)] for name, x in found.items()}
    return Reported(id, values, {name: [float(draw[name]) for draw in draws] for name in found}, unit, note)


def exact(id: str, found: Mapping[str, float], unit: str, note: str = "") -> Reported:
    """A claim on numbers that nothing was drawn for: each is its own interval."""
    return compared(id, found, [found], unit, note)
