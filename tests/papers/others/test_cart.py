"""CART's tables say what its paper prints of them, and its seeds' noise is that of means."""

import numpy as np
import pytest

from lib.papers.others import cart, runs


@pytest.fixture(scope="module")
def losses():
    return cart.by_loops(runs.cart(), 0, 0)[0]


def test_gains_are_the_printed_ones(losses):
    """In per cent of perplexity: -.25 to 5.24 at first, 1.10 to -.69 in the end."""
    found = 100 * (1 - np.exp(-cart.gains(losses)))
    assert found.iloc[:, 0].round(1).tolist() == [-0.3, 1.7, 2.8, 5.2]
    assert found.iloc[:, 1].round(1).tolist() == [1.1, -1.0, -0.5, -0.7]


def test_the_printed_powers_of_the_width_come_back(losses):
    found = cart.width_laws(losses)
    assert (found["ours"] - found["printed"]).abs().max() < 0.001


def test_means_over_more_seeds_have_less_noise():
    table = runs.cart()
    (seeds,) = cart.by_loops(table.assign(loss=table["seeds"]), 0, 0)
    first, *fresh = cart.by_loops(table, 400, 0)
    draws = np.array([one - first for one in fresh])
    three, one = (draws[:, seeds == n].std() for n in (3, 1))
    assert one == pytest.approx(cart.SEED_SD, rel=0.05) and one / three == pytest.approx(np.sqrt(3), rel=0.05)
