"""The league's parameters are refused in one line where nothing could be compared."""

import pytest

from lib.papers.league.parameters import DeltaPhiLeague
from tests.given import given
from tests.lines import one_line


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"recurrences": [2, 4]}, "recurrences: [2, 4] needs 1, the plain model, and shown, 4, above 1"),
        ({"shown": 8}, "and shown, 8, above 1"),
        ({"shown": 1}, "and shown, 1, above 1"),
    ],
)
def test_what_cannot_be_compared_is_refused(changes, says):
    with one_line(says):
        given(DeltaPhiLeague, **changes)
