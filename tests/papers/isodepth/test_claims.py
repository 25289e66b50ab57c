"""The claims of 000 that its published runs decide are those of the ledger, each once, with draws for every number."""

import pytest

from lib.fit.fits import fit_joint
from lib.papers.isodepth import claims, designs, published, readings
from lib.workbook.claims import ledger
from lib.workbook.places import LEDGER

#: by single numbers, in the notebook
OTHERS = {"000-truncation-buys-tokens", "000-looped-trails-beyond-the-grid"}


@pytest.fixture(scope="module")
def grid():
    return published.sets(published.runs())["all"]


@pytest.fixture(scope="module")
def reported(grid):
    runs, families = published.runs(), published.families(grid)
    sets = published.sets(runs)
    probes = {"baseline": sets["lower four"], **{name: sets[name] for name in ("truncated", "hyper-connections")}}
    gains = readings.gains(runs[runs["budget"] <= sets["lower four"]["budget"].max()])
    sizes = {probe: designs.published_families(probe)[4] for probe in probes}
    drawn = readings.probe_draws(probes, fit_joint, 3, 0)
    every = [
        *claims.of_frontier(grid, grid, families, 3, 0),
        *claims.of_joint_law(readings.joint_fits(grid, 3, 0), grid, families, "a note", 0),
        *claims.of_probes(gains, probes, drawn, sizes, 4, "", 0),
    ]
    return {one.id: one for one in every}


def test_they_are_the_published_claims_of_the_ledger(reported):
    of_000 = {id for id, one in ledger(LEDGER).items() if one.published and one.paper == "000"}
    assert reported.keys() == of_000 - OTHERS


def test_the_numbers_are_those_of_the_grid(reported):
    values = {id: {name: x for name, (x,) in one.values.items()} for id, one in reported.items()}
    assert values["000-phi"][""] == pytest.approx(0.4587, abs=1e-4) and reported["000-phi"].note == "a note"
    assert values["000-phi-below-one"][""] == 1 - values["000-phi"][""]
    assert values["000-r4-trails-the-plain-frontier"][""] == pytest.approx(0.065, abs=1e-3)
    draws = reported["000-r4-trails-the-plain-frontier"].draws[""]
    assert sum(draws) / len(draws) == pytest.approx(0.065, abs=0.01)
