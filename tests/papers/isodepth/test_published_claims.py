"""The claims of 000 that its published runs decide are those of the ledger, each once, with draws for every number."""

import pytest

from lib.fit.fits import fit_joint
from lib.papers.isodepth import published, published_claims, readings
from lib.workbook import claims, places


@pytest.fixture(scope="module")
def reported():
    runs = published.runs()
    sets = published.sets(runs)
    grid = sets["all"]
    families, own, law = published.families(grid), readings.own_laws(grid), fit_joint(*readings.joint_arrays(grid))
    four = runs[runs["budget"] <= sets["lower four"]["budget"].max()]
    probes = {"baseline": sets["lower four"], **{name: sets[name] for name in ("truncated", "hyper-connections")}}
    refits = {name: fit_joint(*readings.joint_arrays(part)) for name, part in probes.items()}
    drawn = readings.probe_draws(probes, fit_joint, 3, 0)
    return [
        *published_claims.of_frontier(grid, families, 3, 0),
        *published_claims.of_joint_law(grid, law, readings.fresh_joint(law, grid, 3, 0), families, "authors", 0),
        *published_claims.of_probes(four, probes, drawn, refits, 0),
        *published_claims.of_pair(published.pair(runs), own, grid, 0),
    ]


def test_they_are_the_published_claims_of_the_ledger(reported):
    ids = [one.id for one in reported]
    ledger = claims.ledger(places.LEDGER)
    assert len(ids) == len(set(ids)) and {*ids} == {
        id for id, one in ledger.items() if one.published and one.paper == "000"
    }


def test_every_number_has_draws(reported):
    for one in reported:
        values = claims.as_comparisons(one.values)
        if isinstance(one.draws, tuple):
            assert len(values) == 1 and one.draws[0] <= one.draws[1]
        else:
            draws = claims.as_comparisons(one.draws)
            assert draws.keys() == values.keys(), one.id
            assert all(len(x) >= 3 for x in draws.values()) and all(len(x) == 1 for x in values.values()), one.id


def test_the_numbers_are_those_of_the_grid(reported):
    by = {one.id: one for one in reported}
    assert by["000-phi"].values == [pytest.approx(0.4587, abs=1e-4)]
    assert by["000-phi-below-one"].values == [1 - by["000-phi"].values[0]]
    assert "authors" in by["000-phi"].note and by["000-looped-trails-beyond-the-grid"].values == [pytest.approx(0.061)]
