"""Every way a verdict can go with scale, and the claims that went it."""

import itertools

import pytest

from lib.workbook import claims, places, travel
from lib.workbook.claims import ABSENT, CONTRADICTED, DISPUTED, INCOMPARABLE, REPRODUCED, UNRESOLVED
from lib.workbook.reference import Entry, Reference

IDS = [claim.id for claim in claims.ledger(places.LEDGER).values() if claim.notebook == "instability"]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (UNRESOLVED, REPRODUCED, travel.FOR),
        (DISPUTED, REPRODUCED, travel.FOR),
        (UNRESOLVED, CONTRADICTED, travel.AGAINST),
        (UNRESOLVED, ABSENT, travel.AGAINST),
        (CONTRADICTED, REPRODUCED, travel.TOWARDS),
        (CONTRADICTED, ABSENT, travel.TOWARDS),
        (ABSENT, REPRODUCED, travel.TOWARDS),
        (REPRODUCED, CONTRADICTED, travel.AWAY),
        (REPRODUCED, ABSENT, travel.AWAY),
        (ABSENT, CONTRADICTED, travel.AWAY),
        (REPRODUCED, UNRESOLVED, travel.LOST),
        (CONTRADICTED, DISPUTED, travel.LOST),
        (UNRESOLVED, DISPUTED, ""),
        (INCOMPARABLE, INCOMPARABLE, ""),
    ],
)
def test_which_way_a_verdict_went(before, after, expected):
    assert travel.way(before, after) == expected


def test_every_change_of_what_is_settled_has_a_way_and_no_other():
    for before, after in itertools.product(claims.VERDICTS, repeat=2):
        settled = before in travel.SETTLED or after in travel.SETTLED
        assert bool(travel.way(before, after)) == (settled and before != after)


def known(cpu, desk):
    """A reference in which both profiles have judged the claims of one notebook."""
    entries = {
        profile: {"instability": Entry(seconds=1, verdicts=dict(zip(IDS, verdicts, strict=False)), made_from=1)}
        for profile, verdicts in {"cpu": cpu, "desk": desk}.items()
        if verdicts
    }
    return Reference(flops_per_second=1, cores=2, whole={}, entries=entries)


def test_claims_are_counted_and_named():
    cpu = [UNRESOLVED, UNRESOLVED, REPRODUCED, REPRODUCED, CONTRADICTED]
    desk = [REPRODUCED, UNRESOLVED, CONTRADICTED, REPRODUCED]  # one is judged at cpu alone
    lines = travel.changed(known(cpu, desk), set()).splitlines()
    assert lines == [
        "| at cpu, and at desk | reproduced | contradicted | not resolved |",
        "| --- | --- | --- | --- |",
        "| reproduced | 1 | 1 |  |",
        "| not resolved | 1 |  | 1 |",
        "",
        f"- settled, for the paper (1): [{IDS[0]}](claims.md#{IDS[0]})",
        f"- turned away from it (1): [{IDS[2]}](claims.md#{IDS[2]})",
    ]


def test_where_nothing_changed_that_is_said():
    assert travel.changed(known([REPRODUCED], [REPRODUCED]), set()).endswith("\n\nNo verdict changed.")


def test_one_profile_is_compared_with_nothing():
    said = travel.changed(known([REPRODUCED], []), set())
    assert said == "Only one of `cpu` and `desk` is judged yet."


def test_what_is_being_made_anew_is_not_compared():
    judged = known([REPRODUCED], [CONTRADICTED])
    assert travel.pairs(judged, {("cpu", "instability")}) == travel.pairs(judged, {("desk", "instability")}) == []
    assert len(travel.pairs(judged, {("smoke", "instability"), ("cpu", "convergence")})) == 1
