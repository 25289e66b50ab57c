"""What a room hands a notebook is judged as what the notebook would report itself."""

import pytest

from lib.papers.shared.reported import Reported, compared, exact
from lib.workbook import claims
from tests.workbooks import a_notebook


def test_comparisons_have_their_draws_by_name():
    one = compared("x", {"a": 1.0, "b": 2}, [{"a": 0.9, "b": 1.9}, {"b": 2.1, "a": 1.1}], "nats", "a note")
    assert one == Reported("x", {"a": [1.0], "b": [2.0]}, {"a": [0.9, 1.1], "b": [1.9, 2.1]}, "nats", "a note")


def test_a_notebook_takes_it_as_it_is(tmp_path):
    nb = a_notebook("published_runs", tmp_path)
    draws = [{"": 0.45 + k / 1000} for k in range(11)]
    finding = nb.claim_of_published(*compared("000-phi", {"": 0.455}, draws, "phi", "a note"))
    assert (finding.verdict, finding.unit, finding.note) == (claims.REPRODUCED, "phi", "a note")
    assert (finding.mean, finding.low) == pytest.approx((0.455, 0.45025))
    counted = nb.claim_of_published(*exact("000-no-crossover", {"r = 2": 0.1, "r = 4": -0.2}, "nats"))
    assert counted.verdict == claims.CONTRADICTED and counted.bounds["r = 4"] == (-0.2, -0.2)
