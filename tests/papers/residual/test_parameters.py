"""002's notebooks refuse loops, layers and steps that train nothing, in one line that names the parameter."""

import pytest

from lib.base.errors import InputError
from lib.papers.residual import parameters
from tests.given import given


@pytest.mark.parametrize(
    ("kind", "changes", "says"),
    [
        (parameters.ResidualScalingInit, {"layers": 0}, "^layers: .* 1 .got 0.$"),
        (parameters.ResidualScalingInit, {"deep_loops": [4, 0]}, "^deep_loops.1: .* 1 .got 0.$"),
        (parameters.ResidualScalingBeyond, {"init_loops": [0, 1]}, "^init_loops.0: .* 1 .got 0.$"),
        (parameters.LoopLrTransfer, {"steps": 0}, "^steps: .* 1 .got 0.$"),
        (parameters.LoopLrTransfer, {"loops": []}, "^loops: .* is empty"),
        (parameters.LoopLrTransfer, {"deep": [1, -2]}, "^deep.1: .* 1 .got -2.$"),
        (parameters.LoopLrTransfer, {"lrs": [0.1, 0.1]}, "^lrs: .* twice"),
    ],
)
def test_what_trains_nothing_is_refused(kind, changes, says):
    with pytest.raises(InputError, match=says):
        given(kind, **changes)


def test_runs_have_what_their_models_need():
    assert issubclass(parameters.ResidualRuns, parameters.ResidualModel)
    p = given(parameters.ResidualScalingTrained)
    assert p.replace(width=64).width == 64 and (p.width, p.vocab_size) == (32, 256)
