"""Verdicts as data say what the findings say, in JSON that any reader opens, and nothing of what is not judged."""

import json
import math

import pytest

import lib
from lib.workbook import claims, places, verdicts
from lib.workbook.report import Outputs
from tests.workbooks import a_notebook


@pytest.fixture
def outputs(tmp_path):
    """Findings at cpu of two notebooks, one at smoke, and one on a paper's own runs."""
    folder = tmp_path / "outputs"
    a_notebook("instability", folder).claim("001-base-state-explodes", [1.0, 1.1, 1.2], [1, 2, 3], "decades", "a note")
    a_notebook("instability", folder, "smoke").claim("001-base-state-explodes", [7.0], [1], "decades")
    a_notebook("moe_isoflop", folder).claim("004-base-exponent", [math.nan], [1], "")
    a_notebook("published_runs", folder).claim_of_published("000-phi", [0.459], (0.43, 0.49), "phi")
    return folder


def write(outputs, profile="cpu"):
    """What the report found, as data; None where nothing is written."""
    rows = Outputs(outputs).rows(claims.ledger(places.LEDGER), profile)
    found = [(row.claim, row.finding) for row in rows if row.finding and row.profile in (profile, "published")]
    path = outputs / "report" / "verdicts.json"
    assert verdicts.write(outputs, profile, found, {"compared": 2}) == path.exists()
    return json.loads(path.read_text(), parse_constant=pytest.fail) if path.exists() else None


def test_a_row_is_what_the_finding_and_its_claim_say(outputs):
    by_claim = {row["claim"]: row for row in write(outputs)["verdicts"]}
    assert [(id, row["profile"]) for id, row in by_claim.items()] == [
        ("000-phi", "published"),
        ("001-base-state-explodes", "cpu"),
        ("004-base-exponent", "cpu"),
    ]
    finding = claims.read(outputs / "claims" / "cpu" / "001-base-state-explodes.json")
    row = by_claim[finding.id]
    assert row["verdict"] == finding.verdict == claims.REPRODUCED and row["kind"] == "ordering"
    for name in ("mean", "low", "high", "again"):
        assert row[name] == getattr(finding, name)
    assert row["measured"] == {"": [1.0, 1.1, 1.2]} and row["seeds"] == [1, 2, 3] and row["value"] is None
    assert row["notebook"] == "instability" and row["commit"] == finding.provenance["commit"]
    assert by_claim["000-phi"]["value"] == claims.ledger(places.LEDGER)["000-phi"].value
    nothing = by_claim["004-base-exponent"]
    assert nothing["mean"] is nothing["low"] is nothing["high"] is nothing["again"] is None
    assert nothing["measured"] == {"": [None]}


def test_they_say_what_they_are_and_what_the_last_audit_came_to(outputs):
    said = write(outputs)
    assert [*said["columns"]] == [*said["verdicts"][0]] == [one.name for one in verdicts.COLUMNS]
    assert said["version"].endswith(f"recipe {lib.RECIPE}") and said["profile"] == "cpu"
    assert said["audit"] == {"compared": 2}


def test_of_a_profile_that_is_not_judged_nothing_is_written(outputs):
    write(outputs)
    assert [write(outputs, profile) for profile in claims.NOT_JUDGED] == [None] * len(claims.NOT_JUDGED)


def test_a_damaged_finding_is_left_out(outputs):
    (outputs / "claims" / "cpu" / "001-base-state-explodes.json").write_text("{}")
    assert len(write(outputs)["verdicts"]) == 2
