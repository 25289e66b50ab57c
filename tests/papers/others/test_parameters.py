"""The notebook of published models saves shares of the depth."""

from lib.papers.others.parameters import PublishedModels
from tests.given import given
from tests.lines import one_line


def test_shares_lie_below_one():
    with one_line("saved.1: input should be less than 1 (got 1.0)"):
        given(PublishedModels, saved=[0.0, 1.0])
