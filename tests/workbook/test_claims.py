"""A verdict follows from the interval over seeds, and the notebook that the ledger names reports each claim."""

import math

import pytest
import yaml

from lib.base.errors import InputError
from lib.base.statistics import mean_and_interval
from lib.workbook import claims
from lib.workbook.claims import CONTRADICTED, INCOMPARABLE, REPRODUCED, UNJUDGED, UNRESOLVED, verdict
from tests.cases import claim
from tests.workbooks import ROOT


@pytest.mark.parametrize(
    ("values", "profile", "expected"),
    [
        ([1.0, 1.1, 0.9], "cpu", REPRODUCED),
        ([-1.0, -1.1, -0.9], "gpu", CONTRADICTED),
        ([1.0, -1.0, 0.5], "cpu", UNRESOLVED),
        ([5.0], "paper", UNRESOLVED),  # one seed decides nothing
        ([1.0, math.nan, 1.0], "cpu", UNRESOLVED),
        ([0.0, 0.0, 0.0], "cpu", UNRESOLVED),
        ([1.0, 1.1, 0.9], "smoke", UNJUDGED),
    ],
)
def test_orderings_are_judged_by_the_sign_of_the_interval(values, profile, expected):
    assert verdict(claim(), mean_and_interval(values)[1:], profile) == expected
    assert verdict(claim("shape"), mean_and_interval(values)[1:], profile) == expected


@pytest.mark.parametrize(
    ("values", "profile", "scale_free", "expected"),
    [
        ([0.40, 0.41, 0.39], "cpu", True, REPRODUCED),
        ([0.60, 0.61, 0.59], "cpu", True, CONTRADICTED),
        ([0.1, 0.9, 0.4], "cpu", True, UNRESOLVED),
        ([0.40, 0.41, 0.39], "cpu", False, INCOMPARABLE),
        ([0.40, 0.41, 0.39], "paper", False, REPRODUCED),
    ],
)
def test_values_are_judged_where_the_scale_allows(values, profile, scale_free, expected):
    assert (
        verdict(claim("value", value=0.40, scale_free=scale_free), mean_and_interval(values)[1:], profile) == expected
    )


def test_a_report_is_written_once_by_its_notebook(tmp_path):
    finding = claims.report(claim(), "n", [1.0, 1.1, 0.9], [1, 2, 3], "cpu", tmp_path, "octaves", "a note")
    assert finding.verdict == REPRODUCED and claims.findings(tmp_path) == {"x": finding}
    with pytest.raises(InputError, match="gives it to 'n', not to 'm'"):
        claims.report(claim(), "m", [1.0], [1], "cpu", tmp_path, "", "")
    with pytest.raises(InputError, match="2 numbers for 1 seeds"):
        claims.report(claim(), "n", [1.0, 2.0], [1], "cpu", tmp_path, "", "")
    for per in ("budget", "width"):  # each of which is of all seeds
        assert claims.report(claim(), "n", [1.0, 2.0], [1], "cpu", tmp_path, "", "", per=per).measured == [1.0, 2.0]


def test_the_ledger_is_complete_and_well_formed():
    ledger = claims.ledger(ROOT / "params" / "claims.yaml")
    notebooks = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    for entry in ledger.values():
        assert entry.id.startswith(entry.paper + "-") and entry.statement.endswith(".") and entry.where
        assert entry.notebook is None or entry.notebook in notebooks
    assert sum(entry.paper == "001" for entry in ledger.values()) >= 50


def test_each_claim_of_a_notebook_is_reported_by_it():
    """And each that the paper's own runs decide by the notebook that has these, too."""
    for entry in claims.ledger(ROOT / "params" / "claims.yaml").values():
        mentions = {p.stem for p in (ROOT / "notebooks").glob("*.ipynb") if f'\\"{entry.id}\\"' in p.read_text()}
        expected = [entry.notebook, "published_runs" if entry.published else None]
        assert mentions == {*filter(None, expected)}, entry.id


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ([{"id": "a"}], "missing"),
        ([{**claim().__dict__}, {**claim().__dict__}], "stands there twice"),
        ([{**claim("value").__dict__}], "value with a value"),
        ([{**claim().__dict__, "colour": "red"}], "colour"),
    ],
)
def test_a_bad_ledger_is_one_line(tmp_path, entries, says):
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump(entries))
    with pytest.raises(InputError, match=says):
        claims.ledger(path)


def test_a_ledger_that_is_mended_is_read_anew(tmp_path):
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump([{**claim().__dict__}]))
    before = claims.ledger(path)
    path.write_text(yaml.safe_dump([{**claim().__dict__, "statement": "mended"}]))
    (mended,) = claims.ledger(path).values()
    assert mended.statement == "mended" and [*before.values()] == [claim()]
