"""Intervals of phi hold what they say. It takes long, so it has a file of its own."""

import numpy as np
import pandas as pd
import pytest

from lib.fit.fits import fit_joint
from lib.papers.isodepth import readings
from lib.papers.isodepth.parameters import PhiProbes
from tests.given import given
from tests.papers.isodepth.simulated import ENDS, simulated

pytestmark = pytest.mark.costly


@pytest.mark.long  # two to eleven minutes
def test_intervals_of_phi_cover_what_they_should():
    """93 to 97 % over grids like the cpu profile's, of phi and of its shift under a probe on the lower two budgets,
    which has no effect here. Drawing cells, as before, had 99 % and 100 %, at 1.2 and 1.9 times the width."""
    widths, inside, grids = given(PhiProbes).widths, [], 100
    for seed in range(grids):
        runs, others = simulated(seed), simulated(1000 + seed)
        phis = [one.params["phi"] for one in readings.joint_fits(runs, ENDS, seed)[1:]]
        part = [width in widths.get(budget, ()) for budget, width in zip(runs["budget"], runs["width"], strict=True)]
        probed = pd.concat([runs[part].query("r == 1"), others[part].query("r > 1")])
        drawn = readings.probe_draws({"baseline": runs[part], "probe": probed}, fit_joint, ENDS, seed)
        shifts = [b.params["phi"] - a.params["phi"] for a, b in zip(*drawn.values(), strict=True)][1:]
        inside.append((min(phis) <= 0.6 <= max(phis), min(shifts) <= 0 <= max(shifts)))
    covered = np.mean(inside, axis=0)
    assert ((covered >= 0.92) & (covered <= 0.99)).all(), covered
