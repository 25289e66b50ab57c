"""phi comes back from runs that a law made, whatever the base, and is what it was on the published runs of others."""

import numpy as np
import pytest

from lib.fit import laws
from lib.fit.fits import bootstrap, fit_joint
from lib.papers.isodepth import published
from lib.papers.isodepth.designs import PUBLISHED
from lib.papers.isodepth.readings import joint_arrays
from lib.papers.others import phi, runs
from tests.cells import run

COUNTED = ("blocks", "blocks and head", "blocks, head and token table")
TRUTH = dict(A=60.0, B=4000.0, E=2.2, alpha=0.25, beta=0.45, phi=0.7)


@pytest.fixture(scope="module")
def grid():
    return published.sets(published.runs())["all"].assign(group="000")


def test_were_the_law_right_every_base_count_and_regime_would_give_its_phi(grid):
    """Their models and tokens, with the losses of one joint law."""
    theirs = runs.isoflop()
    arrays = [theirs[name] for name in ("n_once", "n_rec", "r", "D")]
    lawful = theirs.assign(loss=laws.JOINT.loss(TRUTH, *arrays))
    sets = run(
        "other_groups", "questions = {", theirs=lawful, grid=grid, loops=runs.loops(), small=runs.cart()
    ).questions
    assert [len(of) for of in sets.values()] == [7, 6, 8, 5]
    own = [of for name in ("what r = 1 is", "tokens a parameter") for of in sets[name].values() if "arm" in of]
    found = phi.of_sets(dict(enumerate(own)), 2, 0)
    assert len(found) == 7 and (found["group"] == runs.THEIRS).all()
    for column in ("phi", "low", "high"):
        assert found[column].tolist() == pytest.approx([TRUTH["phi"]] * 7, abs=1e-4)
    blocks, head, tables = (sets["what runs once"][f"000: {name}"]["n_once"] for name in COUNTED)
    assert (tables - head).equals(head - blocks) and (head - blocks).equals(32064 * grid["width"])
    few, many = (phi.tokens_a_parameter(of) for of in phi.few_and_many(grid).values())
    assert few.max() < many.min() and len(few) + len(many) == len(grid)


# ---- at one D --------------------------------------------------------------------------------------------------------


def test_at_one_D_the_law_is_found_again():
    made = runs.loops().query("recipe == 'tuned'")
    truth = dict(A=60.0, E=2.5, alpha=0.25, phi=0.7)
    made = made.assign(loss=laws.JOINT_AT_ONE_D.loss(truth, made["n_once"], made["n_rec"], made["r"]))
    pairs = {r: made[(made["arm"] == "tied") & made["r"].isin([1, r])] for r in (2, 3, 4, 6)}
    found = phi.of_sets({"all": made} | pairs, 3, 0)
    for column in ("phi", "low", "high"):
        assert found[column].tolist() == pytest.approx([0.7] * 5, abs=1e-4)


def test_the_tied_share_of_a_law_with_phi_below_one_is_below_one():
    made = runs.loops().query("recipe == 'tuned'")
    worth = made["n_rec"] * made["r"] ** 0.7
    made = made.assign(loss=2.5 + 60 * (made["n_once"] + worth) ** -0.25)
    assert phi.tied_share(made, 1e-9, 5, 0)["share"].between(0.3, 0.95).all()


def test_with_few_tokens_a_parameter_tied_passes_beat_own_weights():
    theirs = runs.isoflop()
    noise = published.scatter(theirs.assign(probe=theirs["arm"]))
    assert noise == pytest.approx(0.002, abs=1e-4)
    found = phi.tied_share(runs.loops(), noise, 500, 0)
    six = found.xs(6, level="loops")
    assert six["share"].round(2).tolist() == [0.72, 0.94, 1.08, 1.24, 1.42]
    assert six["tokens a parameter"].round(1).tolist() == [23.5, 9.7, 4.9, 2.9, 1.8]
    assert six["high"].iloc[0] < 1 < six["low"].iloc[-1]
    assert np.corrcoef(np.log(found["tokens a parameter"]), found["share"])[0, 1] < -0.9


def test_the_printed_fit_of_000_is_at_the_optimum_to_its_digits(grid):
    found = phi.authors_fit(grid, 20, 0)["000, joint"]
    assert found["points"] == len(grid) and 0 <= found["lower"] < 1e-4
    draws = bootstrap(fit_joint, joint_arrays(grid), grid[["budget", "r"]], 20, 0)["phi"]
    assert found[["phi, ours low", "phi, ours high"]].tolist() == [*np.quantile(draws, [0.025, 0.975])]
    assert all(
        found[f"{name}, ours low"] < found[f"{name}, printed"] < found[f"{name}, ours high"] for name in PUBLISHED
    )
