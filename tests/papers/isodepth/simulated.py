"""Grids like the cpu profile's with the losses of a known law, by which intervals are tested."""

import numpy as np
import pandas as pd

from lib.fit.laws import JOINT
from lib.papers.isodepth import designs
from lib.papers.isodepth.parameters import IsodepthIsoflop
from tests.given import given

ENDS = 39  # draws whose least and largest are the ends of a 95 % interval


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
