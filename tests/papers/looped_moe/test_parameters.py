"""004's notebooks refuse sizes, loops and counts below one, in one line that names the parameter."""

import pytest

from lib.base.errors import InputError
from lib.papers.looped_moe import parameters
from tests.given import given


@pytest.mark.parametrize(
    ("kind", "changes", "says"),
    [
        (parameters.Convergence, {"loops": 0}, "^loops: .* 1 .got 0.$"),
        (parameters.EarlyExit, {"loops": [2, 0]}, "^loops.1: .* 1 .got 0.$"),
    ],
)
def test_what_is_below_one_is_refused(kind, changes, says):
    with pytest.raises(InputError, match=says):
        given(kind, **changes)
