"""Columns of any kind are the numbers that they say, or one line that names the column; none goes by position."""

import decimal

import numpy as np
import pandas as pd
import pytest

from lib.fit import fits, frontier, isoflop, laws
from lib.fit.arrays import floats
from tests.lines import one_line

N = np.geomspace(1e7, 1e9, 8)
TABLE = pd.DataFrame({"N": N, "D": 2e10 / N**0.5, "loss": 2 + 30 * N**-0.3}).assign(n_once=N, n_rec=N, r=[1, 2] * 4)
LAW = fits.fit_chinchilla(N, TABLE["D"].to_numpy(), TABLE["loss"].to_numpy())


class Foreign:
    """A column of another library: numpy may ask it for an array."""

    def __array__(self, dtype=None, copy=None):
        return N.astype(dtype or float)


WHOLE = [2**53 + 2, 10**20, 3]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (N.astype(object), N),
        (Foreign(), N),
        (pd.Series(N).astype("category"), N),
        (pd.Series(N, dtype="Float64").mask(N < 2e7), np.where(N < 2e7, np.nan, N)),
        (np.ma.array(N, mask=N < 2e7), np.where(N < 2e7, np.nan, N)),
        ([decimal.Decimal("1.5"), None, pd.NA, "4e8"], [1.5, np.nan, np.nan, 4e8]),
        (WHOLE, [float(x) for x in WHOLE]),
    ],
)
def test_columns_are_the_numbers_that_they_say(column, values):
    np.testing.assert_array_equal(floats({"N": column})["N"], values)


BAD = [
    *([*N[:-1], x] for x in ("400M", "n/a", 1e300, 1e-300, 0, -1.0, np.nan, np.inf, None, pd.NA, 10**400, 1j)),
    *(N > 2e7, N * 1j, N.astype("M8[s]"), N.astype("m8[s]"), N[:0], N[:7], N[:, None], [[x] for x in N]),
    *(TABLE["N"].rename(lambda i: i + 1), TABLE["N"][::-1], pd.Series([f"{x:g}M" for x in N]), {"N": N}, {1.0}),
]
DOORS = {
    "N": lambda t: fits.fit_chinchilla(t["N"], t["D"], t["loss"]),
    "n_eff": lambda t: fits.fit_parcae(t["N"], t["D"], t["loss"]),
    "n_rec": lambda t: fits.fit_joint(0, t["N"], t["r"], t["D"], t["loss"]),
    "loss": lambda t: fits.fit_saturation(t["D"], t["N"]),
    "N ": lambda t: LAW.predict(t["N"], t["D"]),
    " N": lambda t: fits.objective_at(laws.CHINCHILLA, LAW.params, (t["N"], t["D"]), t["loss"]),
    "N  ": lambda t: fits.bootstrap(fits.fit_chinchilla, (t["N"], t["D"], t["loss"]), range(8)),
    "x": lambda t: fits.isoflop_optimum(t["N"], t["D"]),
    "y": lambda t: fits.power_law(t["D"], t["N"]),
}


@pytest.mark.parametrize("name", DOORS)
def test_what_is_no_column_of_positive_numbers_is_named_before_anything_is_computed(name):
    for column in BAD:
        with one_line(name.strip()):
            DOORS[name]({**TABLE, "N": column})


def test_what_a_table_lacks_or_holds_that_is_no_number_is_named():
    runs = TABLE.assign(budget=[1e9, 4e9] * 4, width=N**0.5, F=6 * N, inside=True, flops=6 * N)
    doors = [
        ("budget", lambda t: isoflop.optima(t, ["budget"])),
        *((name, lambda t: isoflop.optima(t, ["budget"])) for name in ("N", "loss", "F")),
        *((name, lambda t: isoflop.parabolas(t, ["budget"])) for name in ("N", "loss")),
        *((name, lambda t: isoflop.exponent(t, "N")) for name in ("N", "budget")),
        *((name, lambda t: frontier.compute_optimal(LAW, t, 1, 1e16)) for name in ("width", "flops")),
    ]
    for name, door in doors:
        with one_line(f"{name}: is no column"):
            door(runs.drop(columns=name))
        if name != "budget":
            with one_line(f"{name}: ", "Unable to parse string '400M'"):
                door(runs.assign(**{name: "400M"}))


@pytest.mark.parametrize("value", [np.nan, np.inf, 17.0, "n/a", [0.1, 0.2], 1j])
def test_what_is_held_is_one_number_that_a_law_can_have(value):
    for held in (laws.joint, laws.unified, lambda x: laws.hold(laws.JOINT, E=-x if x == 17.0 else x)):
        with one_line("give" if isinstance(value, str | list | complex) else "lies outside"):
            held(value)
