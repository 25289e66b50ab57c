"""002's notebooks refuse loops and steps that train nothing, in one line that names the parameter."""

from lib.papers.residual.parameters import LoopLrTransfer, ResidualScalingInit
from tests.given import given
from tests.lines import one_line


def test_what_trains_nothing_is_refused():
    with one_line("(got 0)", starts="deep_loops.1: "):
        given(ResidualScalingInit, deep_loops=[4, 0])
    with one_line("(got 0)", starts="steps: "):
        given(LoopLrTransfer, steps=0)
