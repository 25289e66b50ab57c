"""The claims of other groups are those of the ledger, each once, with draws for every number, and fall as they fell."""

import numpy as np
import pytest

from lib.fit.fits import fresh_fits
from lib.papers.others import claims as reported_claims
from lib.papers.others import growth, runs, test_time_loops
from lib.workbook import claims, places

N = 20


@pytest.fixture(scope="module")
def reported():
    theirs, loops, tested = runs.isoflop(), runs.loops(), test_time_loops.curves(runs.test_time())
    laws = {arm: growth.law(own["compute"], own["loss"]) for arm, own in runs.ladders().items()}
    every = [
        *reported_claims.of_ladders([laws, *fresh_fits(laws, N, 0)]),
        *reported_claims.of_isoflop([growth.optima(theirs), *growth.fresh_optima(theirs, N, 0)]),
        *reported_claims.of_loops([growth.best_loops(loops), *growth.fresh_best_loops(loops, 0.002, N, 0)]),
        *reported_claims.of_cart(reported_claims.cart_by_loops(runs.cart(), N, 0), tested),
    ]
    return {one.id: one for one in every}


def test_they_are_the_ledgers_and_nobody_reports_them_from_runs_of_ours(reported):
    of_others = {id: one for id, one in claims.ledger(places.LEDGER).items() if one.paper == "005"}
    assert reported.keys() == of_others.keys() and len(reported) == 18
    assert all(one.published and one.notebook is None for one in of_others.values())


def verdict(one, tmp_path):
    entry = claims.ledger(places.LEDGER)[one.id]
    return claims.report_published(entry, one.values, one.draws, "published", tmp_path, one.unit, one.note).verdict


def test_what_an_arm_saves_is_reproduced_and_whether_its_exponent_rises_is_not(reported, tmp_path):
    for id in reported_claims.SAVINGS:
        assert verdict(reported[id], tmp_path) == claims.REPRODUCED, id
    values = reported["005-growth-raises-the-exponent"].values
    assert values["vanilla's E"][0] > 0 > values["own E"][0]
    assert verdict(reported["005-growth-raises-the-exponent"], tmp_path) != claims.REPRODUCED


def test_carts_own_seeds_do_not_tell_six_loops_from_eight(reported, tmp_path):
    assert verdict(reported["005-cart-wants-six-loops-when-wide"], tmp_path) != claims.REPRODUCED
    assert verdict(reported["005-cart-loops-help-the-wide-at-first"], tmp_path) == claims.REPRODUCED
    assert verdict(reported["005-cart-degrades-beyond-its-loops"], tmp_path) == claims.REPRODUCED


def test_loops_on_fresh_and_on_repeated_text(reported, tmp_path):
    left = reported["005-fresh-text-wants-two-loops-at-most"].values
    assert len(left) == 5 and min(x for (x,) in left.values()) > 0
    assert verdict(reported["005-repeated-text-wants-more-loops"], tmp_path) == claims.REPRODUCED


def test_nats_are_those_of_carts_tables(reported):
    """Read off once more, without the functions of the claims."""
    (losses,) = reported_claims.cart_by_loops(runs.cart(), 0, 0)
    wide, narrow = (losses[6][2, width] - losses[10][2, width] for width in (1024, 256))
    assert reported["005-cart-loops-help-the-narrow-in-the-end"].values[""][0] == pytest.approx(narrow - wide)
    printed = {"6 loops": 41.165, "10 loops": 40.714}  # perplexities at width 256 and 1e9 tokens; 40.311 with 8 loops
    eight = {loops: x for loops, (x, *_) in reported["005-cart-wants-eight-loops-when-narrow"].values.items()}
    assert eight == pytest.approx({loops: np.log(x / 40.311) for loops, x in printed.items()})


def test_means_over_more_seeds_have_less_noise():
    table = runs.cart()
    (seeds,) = reported_claims.cart_by_loops(table.assign(loss=table["seeds"]), 0, 0)
    first, *fresh = reported_claims.cart_by_loops(table, 400, 0)
    draws = np.array([one - first for one in fresh])
    three, one = (draws[:, seeds == n].std() for n in (3, 1))
    assert one == pytest.approx(reported_claims.SEED_SD, rel=0.05) and one / three == pytest.approx(
        np.sqrt(3), rel=0.05
    )
