"""A permutation's p-value is what counting all signs gives; an outcome errs as seldom as it says, and knows too few."""

import itertools

import numpy as np
import pytest

from lib.workbook import claims
from lib.workbook.claims import TOO_FEW, p_above, p_below
from tests.cases import claim

NOISES = {"normal": (), "standard_t": (3,)}  # the second has heavy tails


def opinion(rows, kind="ordering", effect=0.5, **fields):
    return claims.second_opinion(claim(kind, effect=effect, **fields), "", rows)


def around(mean, n=8, spread=0.1, k=1):
    """k rows of n numbers with this mean."""
    scatter = np.linspace(-spread, spread, n)
    return {f"{row}": (mean + scatter).tolist() for row in range(k)}


def test_all_signs_are_counted():
    values = [0.3, -0.1, 0.5, 0.2]
    means = [np.dot(signs, values) for signs in itertools.product((1, -1), repeat=4)]
    assert p_above(values) == np.mean([mean >= sum(values) - 1e-12 for mean in means]) == 2 / 16
    assert p_above([1.0] * 6) == 1 / 64 and p_above([-1.0] * 6) == 1.0
    assert p_above([3.0, 3.1, 2.9], at=2.0) == 1 / 8 and p_above([0.0, 0.0]) == 1.0
    assert p_below([3.0, 3.1, 2.9], at=4.0) == 1 / 8 and p_below(values) == p_above([-x for x in values])


def test_many_numbers_are_sampled_and_agree_with_the_count():
    random = np.random.default_rng(0)
    values = random.normal(0.4, 1.0, 13)
    signs = 1 - 2 * (np.arange(2**13)[:, None] >> np.arange(13) & 1)
    exact = np.mean(signs @ values >= values.sum() - 1e-12)
    assert p_above(values) == pytest.approx(exact, abs=4 * np.sqrt(exact / 4096))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("k", "n"), [(1, 6), (2, 8), pytest.param(10, 10, marks=pytest.mark.long)])
def test_it_errs_at_most_one_time_in_forty_either_way(noise, k, n):
    """Without any effect: never absent, as any effect matters here."""
    random, trials = np.random.default_rng([k, n]), 600
    rows = [dict(enumerate(getattr(random, noise)(*NOISES[noise], size=(k, n)))) for _ in range(trials)]
    found = [opinion(row, effect=1e-9) for row in rows]
    most = 0.025 + 3 * np.sqrt(0.025 * 0.975 / trials)
    assert found.count("reproduced") / trials <= most and found.count("contradicted") / trials <= most
    tie = [opinion(row, "tie", effect=1e-9) for row in rows]
    assert tie.count("reproduced") == 0 and tie.count("contradicted") / trials <= 2 * most  # two ends


def test_what_each_kind_asks():
    ordering = {1.0: "reproduced", 0.2: "absent here", -0.2: "absent here", -1.0: "contradicted"}
    assert {mean: opinion(around(mean)) for mean in ordering} == ordering  # 0.2 is above 0, and too little to matter
    bound = {0.2: "reproduced", -0.2: "contradicted", 0.0: "not resolved"}
    assert {mean: opinion(around(mean), "bound") for mean in bound} == bound
    tie = {0.2: "reproduced", 0.5: "not resolved", -0.8: "contradicted"}
    assert {mean: opinion(around(mean), "tie") for mean in tie} == tie
    value = {1.7: "reproduced", 1.3: "contradicted"}
    assert {mean: opinion(around(mean), "value", value=2.0) for mean in value} == value
    assert opinion(around(9.3), "value", value=10.0) == "reproduced"  # within 10 %
    assert opinion(around(1.3), "value", value=2.0, uncertainty=0.9) == "reproduced"


def test_all_of_them_is_one_outcome():
    rows = around(1.0, n=10, k=3)
    assert opinion(rows) == "reproduced"
    assert opinion(rows | {"last": around(0.0, n=10)["0"]}) == "absent here"
    assert opinion(rows | {"last": around(0.0, n=10)["0"]}, "bound") == "not resolved"
    assert opinion(rows | {"last": around(-1.0, n=10)["0"]}) == "contradicted"
    assert opinion(rows | {"last": [np.nan] * 10}) == "not resolved"


def test_too_few_say_so():
    assert opinion(around(1.0, n=5)) == TOO_FEW and opinion({}) == TOO_FEW
    assert opinion(around(1.0, n=6)) == "reproduced" and opinion(around(-1.0, n=6)) == "contradicted"
    wrong = around(1.0, n=6, k=2) | {"last": around(-1.0, n=6)["0"]}
    assert opinion(around(1.0, n=6, k=3)) == "reproduced"
    assert opinion(wrong) == TOO_FEW  # 2^-6 is above a third of 2.5 %
