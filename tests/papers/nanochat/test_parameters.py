"""The width sweep's parameters are refused in one line where a budget has no width, or one twice."""

import pytest

from lib.papers.nanochat.parameters import UsageWeighted
from tests.given import given
from tests.lines import one_line


@pytest.mark.parametrize("widths", [{}, {1e9: [8, 8]}, {1e9: []}])
def test_a_sweep_that_repeats_itself_is_refused(widths):
    with one_line("widths: ", "names something twice"):
        given(UsageWeighted, widths=widths)
