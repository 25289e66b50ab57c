"""A second opinion on every verdict: numbers read off the raw records once more, and judged by permutation over seeds.

It shares no code with what it checks (``lib/workbook/claims.py``, the papers' modules): it reads the ledger's text, the
records of runs, and nothing else. Below six seeds no permutation can reject at 2.5 %, and it says so.
"""

from collections.abc import Mapping

from lib.base.permutation import p_above

FEWEST = 6  # seeds: 2^-6 is the first power below 2.5 %
ERROR = 0.025
TOO_FEW = "too few seeds"


def opinion(entry: Mapping[str, object], numbers: Mapping[str, Mapping[int, float]]) -> str:
    """The outcome for an entry of the ledger, from comparison -> seed -> number."""
    rows = [[*by_seed.values()] for by_seed in numbers.values()]
    if not rows or min(map(len, rows)) < FEWEST:
        return TOO_FEW
    effect, value = float(str(entry["effect"])), float(str(entry.get("value", 0.0)))
    one_of = ERROR / len(rows)
    if entry["kind"] in ("tie", "value"):
        margin = max(float(str(entry.get("uncertainty", 0.0))), 0.1 * abs(value), effect)
        low, high = value - margin, value + margin
        beyond = [min(p_above([-x for x in row], -low), p_above(row, high)) for row in rows]
        if min(beyond) <= one_of:
            return "contradicted"
        within = [max(p_above(row, low), p_above([-x for x in row], -high)) for row in rows]
        return "reproduced" if max(within) <= ERROR else "not resolved"
    small = [
        entry["kind"] == "ordering" and max(p_above(row, -effect), p_above([-x for x in row], -effect)) <= one_of
        for row in rows
    ]
    below = [p_above([-x for x in row]) <= one_of for row in rows]
    if any(is_below and not is_small for is_below, is_small in zip(below, small, strict=True)):
        return "contradicted"
    if any(small):
        return "absent here"
    return "reproduced" if max(p_above(row) for row in rows) <= ERROR else "not resolved"
