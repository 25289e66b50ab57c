"""A slope is the exponent of the power law that was drawn, and one value alone has none."""

import numpy as np
import pandas as pd
import pytest

from lib.papers.shared.slopes import slopes

MEASURED = pd.DataFrame(
    [
        {"rule": rule, "seed": seed, "N": N, "square": 3.0 * N**a if N > 2 else 7.0}
        for rule, a in (("none", 2.0), ("1/N", 0.0))
        for seed in (1, 2)
        for N in (1, 2, 4, 8, 16)
    ]
)


def test_exponents_are_those_of_each_group():
    found = slopes(MEASURED[MEASURED["N"] >= 4], ["rule", "seed"], "square", "N")
    assert [*found.index] == [(rule, seed) for rule in ("none", "1/N") for seed in (1, 2)]
    assert found.tolist() == pytest.approx([2, 2, 0, 0], abs=1e-9)
    assert slopes(MEASURED[MEASURED["N"] == 16], ["rule"], "square", "N").isna().all()  # one point has no slope
    unknown = MEASURED.assign(square=MEASURED["square"].mask(MEASURED["N"] == 8))
    assert np.isnan(slopes(unknown, ["rule", "seed"], "square", "N")).all()
