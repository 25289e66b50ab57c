"""Verdicts as data say what the findings say, in JSON that any reader opens, and nothing of what is not judged."""

import json
import math

import pytest

import lib
from lib.workbook import claims, places, verdicts
from lib.workbook.report import Outputs
from tests.workbooks import a_notebook


def write(outputs, profile):
    """What was found, as data; None where nothing is written."""
    rows = Outputs(outputs).rows(claims.ledger(places.LEDGER), profile)
    found = [(row.claim, row.finding) for row in rows if row.finding and row.profile in (profile, "published")]
    path = outputs / "report" / "verdicts.json"
    assert verdicts.write(outputs, profile, found, {"compared": 2}) == path.exists()
    return json.loads(path.read_text(), parse_constant=pytest.fail) if path.exists() else None


def test_a_row_is_what_the_finding_and_its_claim_say_and_make_ends_with_a_line_of_it(tmp_path, capsys, monkeypatch):
    """Of findings at cpu of three notebooks, one at smoke, and one on a paper's own runs; where they are many, sums."""
    a_notebook("instability", tmp_path).claim("001-base-state-explodes", [1.0, 1.1, 1.2], [1, 2, 3], "decades")
    a_notebook("instability", tmp_path, "smoke").claim("001-base-state-explodes", [7.0], [1], "decades")
    a_notebook("moe_isoflop", tmp_path).claim("004-base-exponent", [math.nan], [1], "")
    a_notebook("usage_weighted", tmp_path).claim("003-excluded-flops", [20.9], [], "%")
    a_notebook("published_runs", tmp_path).claim_of_published("000-phi", [0.459], (0.43, 0.49), "phi")
    said = write(tmp_path, "cpu")
    assert [*said["columns"]] == [*said["verdicts"][0]] == [one.name for one in verdicts.COLUMNS]
    assert said["version"].endswith(f"recipe {lib.RECIPE}")
    assert said["profile"] == "cpu" and said["audit"] == {"compared": 2}
    published, row, _, nothing = said["verdicts"]
    assert (published["claim"], published["profile"]) == ("000-phi", "published")
    assert published["value"] == claims.ledger(places.LEDGER)["000-phi"].value
    finding = claims.read(tmp_path / "claims" / "cpu" / "001-base-state-explodes.json")
    for name in ("profile", "verdict", "mean", "low", "high", "again", "seeds", "measured"):
        assert row[name] == getattr(finding, name)
    assert row["verdict"] == claims.REPRODUCED and row["kind"] == "ordering" and row["value"] is None
    assert row["notebook"] == "instability" and row["commit"] == finding.provenance["commit"]
    assert nothing["mean"] is nothing["low"] is nothing["high"] is nothing["again"] is None
    assert nothing["measured"] == {"": [None]}

    def printed(profile, *notebooks):
        verdicts.main(profile, notebooks, tmp_path)
        return capsys.readouterr().out.splitlines()

    every = ("instability", "published_runs", "moe_isoflop", "usage_weighted")
    lines = printed("cpu", *every)
    assert lines[:2] == [
        "reproduced     000-phi: 0.459 [0.43, 0.49] phi, fragile (on published runs)",
        "reproduced     001-base-state-explodes: 1.1 [0.852, 1.35] decades",
    ]
    assert lines[2:] == [
        "contradicted   003-excluded-flops: 20.9 % (at cpu, counted)",
        "not measured   004-base-exponent",
    ]
    assert printed("cpu", "instability") == lines[1:2]
    monkeypatch.setattr(verdicts, "MANY", 3)
    assert printed("cpu", *every)[2:] == [
        "verdicts   003 at cpu, counted: 1 contradicted",
        "verdicts   004 at cpu: 1 not measured",
    ]
    assert [write(tmp_path, profile) for profile in claims.NOT_JUDGED] == [None] * len(claims.NOT_JUDGED)
    assert printed("smoke", *every) == ["verdicts   none: smoke judges nothing"]
    (tmp_path / "claims" / "cpu" / "001-base-state-explodes.json").write_text("{}")  # damaged
    assert len(write(tmp_path, "cpu")["verdicts"]) == 3
