"""The outcome of a claim by permutation over seeds; the first opinion (lib/workbook/claims.py) is by Student's t."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.stats

FEWEST = 6  # seeds: 2^-6 is the first power of 1/2 below ERROR
ERROR = 0.025
TOO_FEW = "too few seeds"
SIGNS = 2**12  # changes of signs: all of up to twelve numbers, so many drawn beyond


def p_above(values: Sequence[float], at: float = 0.0) -> float:
    """The one-sided p-value of a mean that is not above ``at``: the share of all changes of signs of the distances from
    ``at`` that have a mean as high (Fisher 1935). It is exact where the noise is symmetric, whatever else it is."""
    distances = np.asarray(values, dtype=float) - at
    found = scipy.stats.permutation_test(
        (distances,), np.mean, permutation_type="samples", alternative="greater", n_resamples=SIGNS, rng=0
    )
    return float(found.pvalue)


def p_below(values: Sequence[float], at: float = 0.0) -> float:
    """The same of a mean that is not below ``at``."""
    return p_above([-x for x in values], -at)


def opinion(entry: Mapping[str, Any], numbers: Mapping[str, Sequence[float]]) -> str:
    """The outcome for an entry of the ledger, from one number a seed for each comparison that it speaks of.

    Too few: below six seeds; and where so many comparisons share the error that no permutation of the seeds could show
    one of them wrong, unless all of them are shown right."""
    rows = [*numbers.values()]
    if not rows or min(map(len, rows)) < FEWEST:
        return TOO_FEW
    if not np.isfinite(np.concatenate([np.asarray(row, dtype=float) for row in rows])).all():
        return "not resolved"
    outcome = _within if entry["kind"] in ("tie", "value") else _above
    found = outcome(entry, rows, ERROR / len(rows))
    beyond_showing = 0.5 ** min(map(len, rows)) > ERROR / len(rows)
    return TOO_FEW if beyond_showing and found != "reproduced" else found


def _within(entry: Mapping[str, Any], rows: list[Sequence[float]], shared: float) -> str:
    """Of a tie or a value: two one-sided tests against each end of its margin."""
    value = entry["value"]
    margin = max(entry["uncertainty"], abs(value) / 10, entry["effect"])
    low, high = value - margin, value + margin
    if any(min(p_below(row, low), p_above(row, high)) <= shared for row in rows):
        return "contradicted"
    return "reproduced" if all(max(p_above(row, low), p_below(row, high)) <= ERROR for row in rows) else "not resolved"


def _above(entry: Mapping[str, Any], rows: list[Sequence[float]], shared: float) -> str:
    """Of an ordering or a bound."""
    effect = entry["effect"]
    negligible = [
        entry["kind"] == "ordering" and max(p_above(row, -effect), p_below(row, effect)) <= shared for row in rows
    ]
    if any(p_below(row) <= shared and not small for row, small in zip(rows, negligible, strict=True)):
        return "contradicted"
    if any(negligible):
        return "absent here"
    return "reproduced" if all(p_above(row) <= ERROR for row in rows) else "not resolved"
