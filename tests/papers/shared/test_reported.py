"""What a room hands a notebook is judged as what the notebook would report itself."""

import numpy as np
import pandas as pd
import pytest

from lib.papers.shared.reported import Reported, compared, comparisons, exact, read_off, rests_on, with_intervals
from lib.workbook import claims
from tests.workbooks import a_notebook


def test_an_estimate_comes_first_and_its_draws_after_it():
    drawn = read_off(lambda x: {"a": x, "b": 2 * x}, [1.0, 0.9, 1.1])
    one = compared("x", drawn | {"c": np.array([3, 4, 5])}, "nats", "a note")
    values, draws = {"a": [1.0], "b": [2.0], "c": [3.0]}, {"a": [0.9, 1.1], "b": [1.8, 2.2], "c": [4.0, 5.0]}
    assert one == Reported("x", values, draws, "nats", "a note")


def test_what_an_interval_rests_on_is_read_off_each_seed_and_off_the_coupled_law(tmp_path):
    runs = pd.DataFrame({"seed": [1, 2, 1, 2], "loss": [1.0, 2.0, 3.0, 5.0]})

    def read(of, coupling):  # the first by a law, the second without one
        mean = of["loss"].mean()
        yield compared("000-phi", {"": [mean + 10 * (coupling == "free"), 0.0]}, "phi")
        yield compared("000-no-crossover", {x: [mean, 0.0] for x in ("a", "b") if of["loss"].max() > 4 or x == "a"}, "")

    found = rests_on([*read(runs, 1)], read, runs, [2, 1])
    assert found["000-phi"] == {"by_seed": {"": [3.5, 2.0]}, "by_form": {"": 12.75}}
    by_seed = found["000-no-crossover"].pop("by_seed")
    assert found["000-no-crossover"] == {"by_form": {}} and by_seed["a"] == [3.5, 2.0]
    assert by_seed["b"][0] == 3.5 and np.isnan(by_seed["b"][1])  # seed 1 has none

    def fails(of, coupling):
        return read(of, coupling) if len(of) == 4 else [{}["r = 4"]]

    assert rests_on([*read(runs, 1)], fails, runs, [2, 1]) == {"000-phi": {}, "000-no-crossover": {}}
    nb = a_notebook("recurrence_exponent", tmp_path)
    finding = nb.claim("000-phi", [2.75], [1, 2], "phi", "", [2.0, 3.0], **found["000-phi"])
    assert (finding.by_seed, finding.by_form) == ({"": [3.5, 2.0]}, {"": 12.75})


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
