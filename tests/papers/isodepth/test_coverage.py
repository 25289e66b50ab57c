"""Intervals by the laws of each recurrence, and of phi, hold what they say on grids of a known law. It takes long, so
it has a file of its own."""

import numpy as np
import pandas as pd
import pytest

from lib.fit.fits import fit_joint, fresh_fits
from lib.fit.laws import JOINT
from lib.papers.isodepth import designs, readings
from lib.papers.isodepth.parameters import IsodepthIsoflop, PhiProbes
from tests.given import given

pytestmark = [pytest.mark.costly, pytest.mark.long]

ENDS = 39  # draws whose least and largest are the ends of a 95 % interval
GRIDS = 100


def simulated(seed=None, noise=0.02):
    """The cpu profile's grid with the losses of a law about as steep there, alone or with noise in every run."""
    law = dict(A=22.0, B=41.0, E=1.0, alpha=0.35, beta=0.35, phi=0.6)
    p, rows = given(IsodepthIsoflop), []
    for budget, r, width in ((C, r, d) for C in p.budgets for r in p.recurrences for d in p.widths[C]):
        own = designs.size(designs.model(p, r, width))
        rows.append({"budget": budget, "r": r, "width": width, "seed": 0, **own, "D": budget / own["F"]})
    runs = pd.DataFrame(rows)
    loss = JOINT.loss(law, runs["n_once"], runs["n_rec"], runs["r"], runs["D"])
    return runs.assign(loss=loss if seed is None else loss + np.random.default_rng(seed).normal(0, noise, len(runs)))


def test_intervals_by_the_own_laws_cover_what_they_should():  # four to twelve minutes
    """93 to 97 % of intervals over grids like the cpu profile's, for every number that is judged at all scales."""
    p = given(IsodepthIsoflop)
    families = designs.families(p, beyond=2)

    def read(laws):
        found = readings.cost_of_sharing(readings.law_optima(laws, families, p.budgets)) | readings.of_own_laws(laws)
        return {(name, of): x for name, many in found.items() for of, x in many.items()}

    truth, inside = read(readings.own_laws(simulated())), []
    for seed in range(GRIDS):
        draws = pd.DataFrame([read(laws) for laws in fresh_fits(readings.own_laws(simulated(seed)), ENDS, seed)])
        low, high = draws.min(), draws.max()
        inside.append({name: low[name] <= x <= high[name] for name, x in truth.items()})
    found = {name: np.mean([one[name] for one in inside]) for name in truth}
    judged = {name: share for name, share in found.items() if name[0] not in ("unexplained", "largest residual")}
    assert 0.93 <= np.mean([*judged.values()]) <= 0.97 and min(judged.values()) >= 0.88, judged  # one alone to 4 %


def test_intervals_of_phi_cover_what_they_should():  # two to eleven minutes
    """93 to 97 % over grids like the cpu profile's, of phi and of its shift under a probe on the lower two budgets,
    which has no effect here. Drawing cells, as before, had 99 % and 100 %, at 1.2 and 1.9 times the width."""
    widths, inside = given(PhiProbes).widths, []
    for seed in range(GRIDS):
        runs, others = simulated(seed), simulated(1000 + seed)
        phis = [one.params["phi"] for one in readings.joint_fits(runs, ENDS, seed)[1:]]
        part = [width in widths.get(budget, ()) for budget, width in zip(runs["budget"], runs["width"], strict=True)]
        probed = pd.concat([runs[part].query("r == 1"), others[part].query("r > 1")])
        drawn = readings.probe_draws({"baseline": runs[part], "probe": probed}, fit_joint, ENDS, seed)
        shifts = [b.params["phi"] - a.params["phi"] for a, b in zip(*drawn.values(), strict=True)][1:]
        inside.append((min(phis) <= 0.6 <= max(phis), min(shifts) <= 0 <= max(shifts)))
    covered = np.mean(inside, axis=0)
    assert ((covered >= 0.92) & (covered <= 0.99)).all(), covered
