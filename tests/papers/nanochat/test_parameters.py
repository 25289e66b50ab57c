"""The width sweep's parameters are refused in one line where a budget or a seed stands twice or a list is empty."""

import pytest

from lib.papers.nanochat.parameters import UsageWeighted
from tests.given import given
from tests.lines import one_line


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"seeds": [1, 1]}, "seeds: [1, 1] is empty or names something twice"),
        ({"widths": {}}, "widths: {} is empty"),
        ({"widths": {1e9: [8, 8]}}, "names something twice"),
    ],
)
def test_a_sweep_that_repeats_itself_is_refused(changes, says):
    with one_line(says):
        given(UsageWeighted, **changes)
