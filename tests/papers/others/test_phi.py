"""phi comes back from runs that a law made, whatever the base, and is what it was on the published runs of others."""

import numpy as np
import pytest

from lib.fit import laws
from lib.papers.isodepth import published
from lib.papers.others import phi, runs

TRUTH = dict(A=60.0, B=4000.0, E=2.2, alpha=0.25, beta=0.45, phi=0.7)


@pytest.fixture(scope="module")
def theirs():
    return runs.isoflop()


@pytest.fixture(scope="module")
def grid():
    return published.sets(published.runs())["all"]


@pytest.fixture(scope="module")
def lawful(theirs):
    """Their models and tokens, with the losses of one joint law."""
    arrays = [theirs[name] for name in ("n_once", "n_rec", "r", "D")]
    return theirs.assign(loss=laws.JOINT.loss(TRUTH, *arrays))


def test_were_the_law_right_every_base_and_regime_would_give_its_phi(lawful, grid):
    bases = phi.by_base(lawful, grid, 2, 0)
    assert set(bases[bases["group"] == phi.THEIRS].index) == {*phi.BASES}
    regimes = phi.by_regime(lawful, grid, 2, 0)
    for table in (bases, regimes):
        own = table[table["group"] == phi.THEIRS]
        for column in ("phi", "low", "high"):
            assert own[column].tolist() == pytest.approx([TRUTH["phi"]] * len(own), abs=1e-4)


# ---- at one D --------------------------------------------------------------------------------------------------------


def test_at_one_D_the_law_is_found_again():
    made = runs.loops().query("recipe == 'tuned'")
    truth = dict(A=60.0, E=2.5, alpha=0.25, phi=0.7)
    made = made.assign(loss=laws.JOINT_AT_ONE_D.loss(truth, made["n_once"], made["n_rec"], made["r"]))
    found = phi.at_one_D({"x: all": made}, 3, 0)
    assert found.loc["x: all", ["phi", "low", "high"]].tolist() == pytest.approx([0.7] * 3, abs=1e-6)
    by = phi.by_loops(made, published.sets(published.runs())["all"], 2, 0).loc[phi.THEIRS]
    assert by["phi"].tolist() == pytest.approx([0.7] * 4, abs=1e-4)
    assert by["worth"].tolist() == pytest.approx((by.index.to_numpy() ** 0.7).tolist(), rel=1e-4)


def test_the_tied_share_of_a_law_with_phi_below_one_is_below_one():
    made = runs.loops().query("recipe == 'tuned'")
    worth = made["n_rec"] * made["r"] ** 0.7
    made = made.assign(loss=2.5 + 60 * (made["n_once"] + worth) ** -0.25)
    assert phi.tied_share(made, 1e-9, 5, 0)["share"].between(0.3, 0.95).all()


def test_with_few_tokens_a_parameter_tied_passes_beat_own_weights():
    noise = phi.scatter(runs.isoflop())
    assert noise == pytest.approx(0.002, abs=1e-4)
    found = phi.tied_share(runs.loops(), noise, 500, 0)
    six = found.xs(6, level="loops")
    assert six["share"].round(2).tolist() == [0.72, 0.94, 1.08, 1.24, 1.42]
    assert six["tokens a parameter"].round(1).tolist() == [23.5, 9.7, 4.9, 2.9, 1.8]
    assert six["high"].iloc[0] < 1 < six["low"].iloc[-1]
    assert np.corrcoef(np.log(found["tokens a parameter"]), found["share"])[0, 1] < -0.9
