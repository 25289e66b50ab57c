"""001's parameters refuse grids too small for their fits, and to judge a size that is not made."""

import pytest

from lib.papers.parcae.parameters import (
    DepthTasks,
    EndToEnd,
    LoopingIsoflop,
    StabilityAblation,
    TokenizerCompression,
    UnifiedLaw,
)
from tests.given import given
from tests.lines import one_line


@pytest.mark.parametrize("kind", [LoopingIsoflop, UnifiedLaw])
def test_a_grid_carries_a_parabola_and_a_law(kind):
    for loops in ([0, 2, 4, 8], [1, 2, 4]):
        with one_line(f"loops: {loops} has fewer than three above 1", "list more"):
            given(kind, loops=loops)
    with one_line("budgets: 1 are too few for a law of five parameters", "list more"):
        given(kind, budgets=[1e11])
    assert given(kind, loops=[2, 4, 8], budgets=[1e11, 2e11]).loops == [2, 4, 8]


def test_what_is_judged_and_asked_is_among_what_is_made():
    with one_line("judged_lr: 0.5 is not one of injection_lrs", "add it there"):
        given(StabilityAblation, judged_lr=0.5)
    with one_line("mean_loops: 8 is not one of depths [1, 2]", "add it there"):
        given(DepthTasks, depths=[1, 2])
    with one_line("source:", "'generated'", "(got 'sotu')"):
        given(DepthTasks, source="sotu")
    with one_line("families.0:", "hops|addition|chains|swaps", "(got 'poems')"):
        given(DepthTasks, families=["poems"])
    with one_line("judged: 700 is not one of sizes [300, 600]", "add it there"):
        given(TokenizerCompression, sizes=[300, 600], judged=700)


def test_a_size_of_several_is_the_same_set_up_at_that_width():
    several = given(EndToEnd, sizes={32: 1, 64: 3}, rdm_sizes={32: 1, 64: 1}, lr=0.003)
    one = several.at(64)
    assert (one.width, one.layers, one.lr, one.seeds) == (64, 3, 0.003, several.seeds)
    each = several.replace(steps=10, steps_at={64: 20}, lr_at={64: 0.02})
    assert [(each.at(d).steps, each.at(d).lr) for d in (32, 64)] == [(10, 0.003), (20, 0.02)]
    for name, value in {"steps_at": 10, "lr_at": 0.01, "rdm_lr_at": 0.01, "rdm_loops_at": 4}.items():
        with one_line(f"{name}: 48 is none of the widths 32, 64", "use these"):
            several.replace(**{name: {48: value}})
    with one_line("budgets_at: 64 is none of the widths 32"):
        given(LoopingIsoflop, budgets_at={64: [1e11, 2e11]})


def test_what_is_shortened_has_steps_that_are_set():
    with one_line("shorter: is a share of rdm_steps, which has to be set for that"):
        given(EndToEnd, rdm_steps=0, rdm_steps_at={}, shorter=0.25)
