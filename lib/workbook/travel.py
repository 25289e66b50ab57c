"""What scale changed: the verdicts of a smaller and of a larger profile side by side, and which way they went."""

import collections
import textwrap
from collections.abc import Iterable

from lib.workbook import claims, findings
from lib.workbook.claims import ABSENT, CONTRADICTED, REPRODUCED
from lib.workbook.findings import Judged
from lib.workbook.markdown import table
from lib.workbook.reference import Outdated, Reference

SMALLER, LARGER = "cpu", "desk"
#: verdicts that settle a claim, by how much they speak for the paper
SETTLED = {REPRODUCED: 1, ABSENT: -1, CONTRADICTED: -2}
FOR, AGAINST = "settled, for the paper", "settled, against it"
TOWARDS, AWAY, LOST = "turned towards the paper", "turned away from it", "no longer settled"
WAYS = (FOR, AGAINST, TOWARDS, AWAY, LOST)

Pair = tuple[Judged, Judged]


def way(before: str, after: str) -> str:
    """Which of the WAYS a verdict went; empty where it stayed, or was settled neither before nor after."""
    was, now = SETTLED.get(before), SETTLED.get(after)
    if was == now:
        return ""
    if now is None:
        return LOST
    if was is None:
        return FOR if now > 0 else AGAINST
    return TOWARDS if now > was else AWAY


def pairs(known: Reference, outdated: Outdated) -> list[Pair]:
    """Every claim that both profiles have judged, as it was at each, in the order of the ledger."""
    both = zip(*(findings.judged(known, outdated, profile) for profile in (SMALLER, LARGER)), strict=True)
    return [(small, large) for small, large in both if {small.ours, large.ours} <= {*claims.VERDICTS}]


def changed(known: Reference, outdated: Outdated) -> str:
    """How many verdicts became which, and which claims went which way."""
    found = pairs(known, outdated)
    if not found:
        return f"Only one of `{SMALLER}` and `{LARGER}` is judged yet."
    lines = [_wrapped(f"- {name} ({len(ids)}): {', '.join(ids)}") for name in WAYS if (ids := _went(found, name))]
    return "\n".join([_counts(found), "", *(lines or ["No verdict changed."])])


def _wrapped(line: str) -> str:
    return textwrap.fill(line, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _went(found: Iterable[Pair], name: str) -> list[str]:
    """Links to the claims that went one way."""
    return [
        f"[{small.claim.id}]({findings.link(small.claim.id).removeprefix('docs/')})"
        for small, large in found
        if way(small.ours, large.ours) == name
    ]


def _counts(found: Iterable[Pair]) -> str:
    """A row a verdict at the smaller profile, a column a verdict at the larger one."""
    count = collections.Counter((small.ours, large.ours) for small, large in found)
    before, after = (
        [verdict for verdict in claims.VERDICTS if verdict in {*side}] for side in zip(*count, strict=True)
    )
    return table(
        [
            {f"at {SMALLER}, and at {LARGER}": row} | {column: f"{count[row, column] or ''}" for column in after}
            for row in before
        ]
    )
