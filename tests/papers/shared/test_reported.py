"""What a room hands a notebook is judged as what the notebook would report itself."""

import numpy as np
import pandas as pd
import pytest

from lib.papers.shared.reported import Reported, compared, comparisons, exact, read_off, with_intervals
from lib.workbook import claims
from tests.workbooks import a_notebook


def test_an_estimate_comes_first_and_its_draws_after_it():
    drawn = read_off(lambda x: {"a": x, "b": 2 * x}, [1.0, 0.9, 1.1])
    one = compared("x", drawn | {"c": np.array([3, 4, 5])}, "nats", "a note")
    values, draws = {"a": [1.0], "b": [2.0], "c": [3.0]}, {"a": [0.9, 1.1], "b": [1.8, 2.2], "c": [4.0, 5.0]}
    assert one == Reported("x", values, draws, "nats", "a note")


def test_a_notebook_takes_it_as_it_is(tmp_path):
    nb = a_notebook("published_runs", tmp_path)
    drawn = {"": [0.455, *(0.45 + k / 1000 for k in range(11))]}
    finding = nb.claim_of_published(*compared("000-phi", drawn, "phi", "a note"))
    assert (finding.verdict, finding.unit, finding.note) == (claims.REPRODUCED, "phi", "a note")
    assert (finding.mean, finding.low) == pytest.approx((0.455, 0.45025))
    counted = nb.claim_of_published(*exact("000-no-crossover", {"r = 2": 0.1, "r = 4": -0.2}, "nats"))
    assert counted.verdict == claims.CONTRADICTED and counted.bounds["r = 4"] == (-0.2, -0.2)


def test_intervals_stand_beside_the_columns_that_they_are_of():
    found = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, np.nan]}, index=["x", "y"])
    table = with_intervals(found, [found + k for k in range(-20, 21)])
    assert [*table] == ["a", "a low", "a high", "b", "b low", "b high"]
    assert table.loc["y", ["a", "a low", "a high"]].tolist() == pytest.approx([2, -17, 21])  # of 41, one beyond each
    assert table.loc["x", "b high"] == pytest.approx(22) and table.loc["y", "b":].isna().all()


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
