"""002's notebooks refuse loops, layers and steps that train nothing, in one line that names the parameter."""

import pytest

from lib.base.errors import InputError
from lib.papers.residual import parameters
from tests.given import given


@pytest.mark.parametrize(
    ("kind", "changes", "says"),
    [
        (parameters.ResidualScalingInit, {"deep_loops": [4, 0]}, "^deep_loops.1: .* 1 .got 0.$"),
        (parameters.LoopLrTransfer, {"steps": 0}, "^steps: .* 1 .got 0.$"),
        (parameters.LoopLrTransfer, {"loops": []}, "^loops: .* is empty"),
    ],
)
def test_what_trains_nothing_is_refused(kind, changes, says):
    with pytest.raises(InputError, match=says):
        given(kind, **changes)
