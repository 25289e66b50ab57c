"""004's notebooks refuse loops and counts below one, in one line that names the parameter."""

from lib.papers.looped_moe.parameters import Convergence, EarlyExit
from tests.given import given
from tests.lines import one_line


def test_what_is_below_one_is_refused():
    with one_line("(got 0)", starts="loops: "):
        given(Convergence, loops=0)
    with one_line("(got 0)", starts="loops.1: "):
        given(EarlyExit, loops=[2, 0])
