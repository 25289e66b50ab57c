"""Compute-optimal widths are those of a fine search, and looped frontiers trail the plain one as in 000."""

import dataclasses

import numpy as np
import pytest

from lib.fit import frontier
from lib.fit.fits import fit_joint
from lib.presets import preset
from tests.fit.known import iso_depth_grid, joint_arrays
from tests.lines import one_line


@pytest.fixture(scope="module")
def published():
    return fit_joint(*joint_arrays(iso_depth_grid()))


@pytest.fixture(scope="module")
def families():
    return {r: frontier.sizes([preset(f"isodepth-s{s}-r{r}") for s in range(6, 36, 2)]) for r in (1, 2, 4, 8)}


def test_a_looped_410m_costs_a_billion_and_is_worth_580m():
    # 000, App. F.4: blocks of one unit, 20 of them plain; injection n_b / 6 left out of the effective ratio there
    worth = frontier.effective_parameters(4, 4, 4, 0.46) / 20
    assert worth == pytest.approx(0.58, abs=0.005)
    assert pytest.approx(0.41, abs=0.005) == (8 + 1 / 6) / 20
    assert frontier.effective_parameters(4, 4, 4, 1.0) == 20  # all unrolled


@pytest.mark.parametrize("r", [1, 4])
def test_the_compute_optimal_width_is_that_of_a_fine_search(published, families, r):
    best = frontier.compute_optimal(published, families[r], r, 4.64e18)
    widths = np.geomspace(384, 2176, 4001)
    table = families[r]
    names = ("n_once", "n_rec", "flops")
    once, rec, flops = (np.exp(np.interp(np.log(widths), np.log(table.width), np.log(table[c]))) for c in names)
    losses = published.predict(once, rec, np.full(4001, r), 4.64e18 / flops)
    assert losses.min() - 1e-6 < best["loss"] <= losses.min() + 1e-12
    assert best["width"] == pytest.approx(widths[losses.argmin()], rel=2e-3)
    flops = np.exp(np.interp(np.log(best["width"]), np.log(table.width), np.log(table.flops)))
    assert best["D"] * flops == pytest.approx(4.64e18)
    assert not best["at_edge"] and frontier.compute_optimal(published, table, r, 1e15)["at_edge"]
    assert frontier.compute_optimal(published, table[::-1], r, 4.64e18) == best
    level = dataclasses.replace(published, theta=published.theta * np.array([1, 1, 1, 0, 0, 1]))
    with one_line("fit: its loss is the same at every width"):
        frontier.compute_optimal(level, table, r, 4.64e18)
