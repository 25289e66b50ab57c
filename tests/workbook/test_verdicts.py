"""Verdicts as data say what the findings say, in two files that any reader opens, and nothing of what is not judged."""

import json
import math

import pyarrow.parquet
import pytest

import lib
from lib.base import files
from lib.workbook import claims, report, verdicts
from tests.workbooks import ROOT, a_notebook


@pytest.fixture
def outputs(tmp_path):
    """Findings at cpu of two notebooks, one at smoke, one on a paper's own runs, and an audit of cpu."""
    folder = tmp_path / "outputs"
    a_notebook("instability", folder).claim("001-base-state-explodes", [1.0, 1.1, 1.2], [1, 2, 3], "decades", "a note")
    a_notebook("instability", folder, "smoke").claim("001-base-state-explodes", [7.0], [1], "decades")
    a_notebook("moe_isoflop", folder).claim("004-base-exponent", [math.nan], [1], "")
    a_notebook("published_runs", folder).claim_of_published("000-phi", [0.459], (0.43, 0.49), "phi")
    said = {"seed": 0, "minutes": 5.0, "runs": 9, "drawn": 2, "provenance": {"commit": "c", "device": "d", "cpu": "e"}}
    compared = [{"key": key * 16, "same_class": key == "a", "complaint": "" if key == "a" else "off"} for key in "ab"]
    files.write_checked(folder / "audits" / "cpu.json", {**said, "compared": compared})
    return folder


def write(outputs, profile) -> str:
    """What the report found, as data."""
    rows = report.Outputs(outputs).rows(claims.ledger(ROOT / "params" / "claims.yaml"), profile)
    return verdicts.write(outputs, profile, report.judged(rows, profile))


def test_a_row_is_what_the_finding_and_its_claim_say(outputs):
    assert write(outputs, "cpu") == "verdicts   3 as data in outputs/report/"
    read = json.loads((outputs / "report" / "verdicts.json").read_text())
    by_claim = {row["claim"]: row for row in read["verdicts"]}
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
    assert by_claim["000-phi"]["value"] == claims.ledger(ROOT / "params" / "claims.yaml")["000-phi"].value


def test_what_is_no_number_is_empty_and_the_json_is_strict(outputs):
    write(outputs, "cpu")
    text = (outputs / "report" / "verdicts.json").read_text()

    def refuse(word):
        raise AssertionError(word)

    (row,) = [one for one in json.loads(text, parse_constant=refuse)["verdicts"] if one["claim"] == "004-base-exponent"]
    assert row["mean"] is row["low"] is row["high"] is row["again"] is None and row["measured"] == {"": [None]}


def test_both_files_say_the_same_and_where_they_come_from(outputs):
    write(outputs, "cpu")
    read = json.loads((outputs / "report" / "verdicts.json").read_text())
    table = pyarrow.parquet.read_table(outputs / "report" / "verdicts.parquet")
    nested = [
        {name: json.loads(x) if name in verdicts.NESTED else x for name, x in row.items()} for row in table.to_pylist()
    ]
    assert nested == read["verdicts"]
    assert table.column_names == [*read["columns"]] == [one.name for one in verdicts.COLUMNS]
    assert {field.name: field.metadata[b"says"].decode() for field in table.schema} == read["columns"]
    metadata = {name.decode(): value for name, value in table.schema.metadata.items()}
    for name in ("form", "version", "profile", "audit"):
        assert json.loads(metadata[name]) == read[name]
    assert read["version"].endswith(f"recipe {lib.RECIPE}") and read["profile"] == "cpu"
    assert (read["audit"]["compared"], read["audit"]["agree"]) == (2, 1)
    assert read["audit"]["complaints"] == {"b" * 16: "off"}


def test_they_lie_beside_the_records_where_there_are_some(outputs):
    (outputs / "records" / "cpu").mkdir(parents=True)
    assert "and outputs/records/cpu/" in write(outputs, "cpu")
    for name in verdicts.NAMES:
        assert (outputs / "records" / "cpu" / name).read_bytes() == (outputs / "report" / name).read_bytes()


def test_those_beside_the_records_stay_where_they_say_the_same_or_more(outputs):
    """A clone has no change in it after a report by another machine, nor after one notebook alone."""
    records = outputs / "records" / "cpu"
    records.mkdir(parents=True)
    write(outputs, "cpu")
    first = (records / "verdicts.json").read_bytes()
    almost = [1.0, 1.1 + 1e-9, 1.2]
    a_notebook("moe_isoflop", outputs).claim("004-base-exponent", [0.5], [1], "")  # a value of the paper's scale
    a_notebook("instability", outputs).claim("001-base-state-explodes", almost, [1, 2, 3], "decades", "b")
    assert write(outputs, "cpu") == "verdicts   3 as data in outputs/report/"
    (outputs / "claims" / "cpu" / "001-base-state-explodes.json").unlink()
    assert write(outputs, "cpu") == "verdicts   2 as data in outputs/report/"
    assert (records / "verdicts.json").read_bytes() == first != (outputs / "report" / "verdicts.json").read_bytes()
    a_notebook("instability", outputs).claim("001-base-state-explodes", [1.0, 1.2, 1.2], [1, 2, 3], "decades")
    assert "and outputs/records/cpu/" in write(outputs, "cpu")
    assert (records / "verdicts.json").read_bytes() != first
    assert "and outputs" not in write(outputs, "cpu")
    audited = files.read_checked(outputs / "audits" / "cpu.json")
    files.write_checked(outputs / "audits" / "cpu.json", audited | {"seed": 1})
    assert "and outputs/records/cpu/" in write(outputs, "cpu")
    (outputs / "audits" / "cpu.json").unlink()  # a clone has none
    assert "and outputs" not in write(outputs, "cpu")


def test_an_audit_stays_with_the_verdicts_that_are_renewed_where_none_was_made(outputs):
    (outputs / "records" / "cpu").mkdir(parents=True)
    write(outputs, "cpu")
    (outputs / "audits" / "cpu.json").unlink()  # a clone has none
    a_notebook("instability", outputs).claim("001-base-state-explodes", [2.0, 2.1, 2.2], [1, 2, 3], "decades", "a note")
    assert write(outputs, "cpu").endswith("outputs/records/cpu/")
    renewed = json.loads((outputs / "records" / "cpu" / "verdicts.json").read_text())
    assert (renewed["audit"]["compared"], renewed["audit"]["agree"]) == (2, 1)


@pytest.mark.parametrize("profile", claims.NOT_JUDGED)
def test_of_a_profile_that_is_not_judged_nothing_is_written(outputs, profile):
    write(outputs, "cpu")
    (outputs / "records" / profile).mkdir(parents=True)
    assert write(outputs, profile) == f"verdicts   none are written: the {profile} profile is not judged"
    assert not list(outputs.rglob("verdicts.*"))


def test_a_damaged_finding_is_left_out(outputs):
    (outputs / "claims" / "cpu" / "001-base-state-explodes.json").write_text("{}")
    assert write(outputs, "cpu").startswith("verdicts   2 ")


def test_the_documents_have_the_schema():
    assert verdicts.schema() in (ROOT / "docs" / "verdicts.md").read_text()
