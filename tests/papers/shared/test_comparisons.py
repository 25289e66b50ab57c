"""A table's columns become comparisons that are named, with the seeds in the order asked for."""

import pandas as pd
import pytest

from lib.papers.shared.comparisons import comparisons


def test_a_column_is_a_comparison():
    table = pd.DataFrame({"looped": [1.0, 2.0], "moe": [3.0, 4.0]}, index=[7, 5])
    assert comparisons(table, [5, 7]) == {"looped": [2.0, 1.0], "moe": [4.0, 3.0]}
    assert comparisons(table["looped"], [5, 7]) == [2.0, 1.0]  # the only one has no name
    with pytest.raises(KeyError):
        comparisons(table, [5, 6])


def test_levels_name_their_values():
    table = pd.DataFrame([[1.0, 2.0]], index=[1], columns=pd.MultiIndex.from_tuples([(1, 2), (4, 1)], names=["L", "N"]))
    assert comparisons(table, [1]) == {"L = 1, N = 2": [1.0], "L = 4, N = 1": [2.0]}
    assert comparisons(table[4], [1]) == {"N = 1": [2.0]}
    assert [*comparisons(table.set_axis([2.5e8, 0.1], axis=1).rename_axis(columns="C"), [1])] == [
        "C = 2.5e+08",
        "C = 0.1",
    ]
