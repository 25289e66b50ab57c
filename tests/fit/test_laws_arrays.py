"""Columns of any kind are the numbers that they say, or one line that names the column; none goes by position."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from lib.fit import fits, isoflop, laws
from lib.fit.laws import floats
from tests.lines import one_line

N = np.geomspace(1e7, 1e9, 8)
TABLE = pd.DataFrame({"N": N, "D": 2e10 / N**0.5, "loss": 2 + 30 * N**-0.3, "r": [1, 2] * 4})
LAW = fits.fit_chinchilla(*TABLE[["N", "D", "loss"]].to_numpy().T)
SOME = np.where(N < 2e7, np.nan, N)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (N.astype(object), N),
        (memoryview(N), N),
        (pd.Series(N).astype("category"), N),
        (pd.Series(N, dtype="Float64").mask(N < 2e7), SOME),
        (np.ma.array(N, mask=N < 2e7), SOME),
        ([Decimal("1.5"), None, pd.NA, "4e8", 2**53 + 2, 10**20], [1.5, np.nan, np.nan, 4e8, 2.0**53 + 2, 1e20]),
    ],
)
def test_columns_are_the_numbers_that_they_say(column, values):
    np.testing.assert_array_equal(floats({"N": column})["N"], values)


BAD = [
    *([*N[:-1], x] for x in ("400M", "n/a", 1e300, 1e-300, 0, -1.0, np.nan, np.inf, None, pd.NA, 10**400, 1j)),
    *(N > 2e7, N * 1j, N.astype("M8[s]"), N.astype("m8[s]"), N[:0], N[:7], N[:, None], [[x] for x in N], [[1], [1, 2]]),
    *(TABLE["N"].rename(lambda i: i + 1), TABLE["N"][::-1], pd.Series([f"{x:g}M" for x in N]), {"N": N}, {1.0}),
]


@pytest.mark.parametrize(
    ("name", "door"),
    [
        ("N", lambda N, D, loss, r: fits.fit_chinchilla(N, D, loss)),
        ("n_rec", lambda N, D, loss, r: fits.fit_joint(0, N, r, D, loss)),
        ("loss", lambda N, D, loss, r: fits.fit_saturation(D, N)),
        ("N", lambda N, D, loss, r: LAW.predict(N, D)),
        ("N", lambda N, D, loss, r: fits.bootstrap(fits.fit_chinchilla, (N, D, loss), range(8))),
        ("x", lambda N, D, loss, r: fits.isoflop_optimum(N, D)),
        ("y", lambda N, D, loss, r: fits.power_law(D, N)),
    ],
)
def test_what_is_no_column_of_positive_numbers_is_named(name, door):
    for column in BAD:
        with one_line(name):
            door(**{**TABLE, "N": column})


def test_what_a_table_lacks_or_holds_that_is_no_number_is_named():
    runs = TABLE.assign(budget=[1e9, 4e9] * 4, width=N**0.5, F=6 * N, inside=True, flops=6 * N)
    doors = {
        lambda t: isoflop.optima(t, ["r"]): ("N", "loss", "F", "width"),
        lambda t: isoflop.parabolas(t, ["r"]): ("N", "loss"),
        lambda t: isoflop.exponent(t, "N"): ("N", "budget"),
        lambda t: isoflop.compute_optimal(LAW, t.assign(n_once=1, n_rec=N), 1, 1e16): ("width", "flops"),
    }
    for door, name in ((door, name) for door, names in doors.items() for name in names):
        for lacks, word in ((runs.drop(columns=name), "is not there"), (runs.assign(**{name: "400M"}), "'400M'")):
            with one_line(word, starts=f"{name}: "):
                door(lacks)


@pytest.mark.parametrize("value", [np.nan, 1e3, "n/a", [0.1, 0.2], 1j])
def test_what_is_held_is_one_number_that_a_law_can_have(value):
    for held in (laws.joint, laws.unified, lambda x: laws.hold(laws.JOINT, alpha=x)):
        with one_line("give" if isinstance(value, str | list | complex) else "lies outside"):
            held(value)
