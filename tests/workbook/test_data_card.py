"""The data card and its Croissant metadata describe every column, and Croissant's validator and loader accept it."""

import itertools
import json

import mlcroissant
import pytest
import yaml

from lib.store import records
from lib.sweep.measurements import Asked, measure
from lib.sweep.training import sweep
from lib.workbook import audit, claims, data_card, parameters, places, report, verdicts
from tests.cases import Case, squared
from tests.runs import several
from tests.workbooks import ROOT, a_notebook


@pytest.fixture
def folder(store, tmp_path):
    """Two parts with their card."""
    measure(squared, [Case(x=2)], store, jobs=1)
    first, second = sweep(several(2), store, jobs=1).results
    records.add(tmp_path / "records", [first], [])
    records.add(tmp_path / "records", [second], [Asked(squared, Case(x=2)).found(store)])
    data_card.write(tmp_path / "records", "smoke")
    return tmp_path / "records"


def test_the_validator_accepts_the_metadata_and_the_loader_reads_the_rows(folder):
    dataset = mlcroissant.Dataset(str(folder / "croissant.json"))
    assert not dataset.metadata.ctx.issues.errors and not dataset.metadata.ctx.issues.warnings
    runs = list(dataset.records("runs"))
    assert {row["runs/key"].decode() for row in runs} == records.of(folder).runs.keys()
    assert {row["runs/model.width"] for row in runs} == {32}
    steps = [row["curves/step"] for row in itertools.islice(dataset.records("curves"), 3)]
    assert steps == [1, 2, 3]
    (row,) = dataset.records("measured")
    assert row["measured/value"] == 4.0 and row["measured/quantity"] == b"/square"


def test_the_card_has_a_line_for_every_column(folder):
    text = (folder / "README.md").read_text()
    for listed in data_card.columns(folder).values():
        for one in listed:
            assert f"| `{one.name}` | {one.kind} | {one.says} |" in text and one.says and "|" not in one.says
    assert text.startswith("# Records of the smoke profile\n\n") and "PROFILE=smoke" in text and "\n\n\n" not in text


def test_a_further_part_changes_neither(folder, store):
    before = [(folder / name).read_text() for name in ("README.md", "croissant.json")]
    records.add(folder, sweep(several(3), store, jobs=1).results, [])
    data_card.write(folder, "smoke")
    assert [(folder / name).read_text() for name in ("README.md", "croissant.json")] == before


def test_once_a_profile_is_judged_its_verdicts_are_listed_and_read(store, tmp_path):
    """By the report, which writes them; before it nothing speaks of them."""
    outputs, folder = tmp_path / "outputs", tmp_path / "outputs" / "records" / "cpu"
    records.add(folder, sweep(several(2), store, jobs=1).results, [])
    data_card.write(folder, "cpu")
    assert not [name for name in ("README.md", "croissant.json") if "verdicts" in (folder / name).read_text()]
    a_notebook("instability", outputs).claim("001-base-state-explodes", [1.0, 1.1, 1.2], [1, 2, 3], "decades")
    a_notebook("published_runs", outputs).claim_of_published("000-phi", [0.459], (0.43, 0.49), "phi")
    assert report.build(outputs, "cpu") == []

    card = (folder / "README.md").read_text()
    assert "before these runs were trained:\n1 reproduced.\n" in card
    assert card.index("## verdicts.parquet") < card.index("`verdicts.json`") and "\n\n\n" not in card
    for one in verdicts.COLUMNS:
        assert f"| `{one.name}` | {one.kind} | {one.says} |" in card
    dataset = mlcroissant.Dataset(str(folder / "croissant.json"))
    assert not dataset.metadata.ctx.issues.errors and not dataset.metadata.ctx.issues.warnings
    assert {*verdicts.NAMES} <= {one.id for one in dataset.metadata.distribution}
    published, trained = dataset.records("verdicts")
    assert (published["verdicts/claim"], trained["verdicts/claim"]) == (b"000-phi", b"001-base-state-explodes")
    assert trained["verdicts/seeds"] == [1, 2, 3] and published["verdicts/seeds"] == []
    printed = claims.ledger(places.LEDGER)["000-phi"].value
    assert published["verdicts/value"] == printed
    assert len(list(dataset.records("runs"))) == 2


def test_what_is_committed_of_desk_says_the_same_everywhere():
    """The verdicts beside the records, the card, the citation and the ledger, whose rules they were judged by."""
    folder = ROOT / "outputs" / "records" / "desk"
    rows = json.loads((folder / "verdicts.json").read_text())["verdicts"]
    ledger = claims.ledger(places.LEDGER)
    for row in rows:
        claim, published = ledger[row["claim"]], row["profile"] == claims.PUBLISHED
        assert (row["kind"], row["estimand"], row["statement"]) == (claim.kind, claim.estimand, claim.statement)
        assert published or (row["effect"], row["replicates"]) == (claim.effect, claim.replicates), claim.id
        if not published:
            given = parameters.of_profile("desk", claim.notebook)
            then = {name: value for name, value in row["parameters"].items() if name in given and name != "jobs"}
            assert then == json.loads(json.dumps({name: given[name] for name in then})), claim.id
    ours = {row["claim"] for row in rows if row["profile"] == "desk"}
    assert ours == {claim.id for claim in ledger.values() if claim.notebook}
    said, abstract = data_card.counted(folder, "desk"), yaml.safe_load((ROOT / "CITATION.cff").read_text())["abstract"]
    assert said and said in abstract and said in (folder / "README.md").read_text()
    audited = audit.told(folder)
    assert " agree on " in audited and " rule: " in audited
    assert audited in (folder / "README.md").read_text() and audited in (ROOT / "README.md").read_text()
