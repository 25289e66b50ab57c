"""The league's parameters are refused in one line where nothing could be compared."""

from lib.papers.league.parameters import DeltaPhiLeague
from tests.given import given
from tests.lines import one_line


def test_what_cannot_be_compared_is_refused():
    with one_line("recurrences: [2, 4] needs 1, the plain model, and shown, 4, above 1"):
        given(DeltaPhiLeague, recurrences=[2, 4])
