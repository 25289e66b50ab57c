"""The notebook of published models saves shares of the depth."""

from lib.papers.others.parameters import PublishedModels
from tests.given import given
from tests.lines import one_line


def test_shares_lie_below_one():
    for saved in ([0.0, 1.0], [-0.1]):
        with one_line(f"saved: {saved}", "numbers from 0 to below 1"):
            given(PublishedModels, saved=saved)
