"""The data card and its Croissant metadata describe every column, and Croissant's validator and loader accept it."""

import itertools

import mlcroissant
import pytest

from lib.store import records
from lib.sweep.measurements import Asked, measure
from lib.sweep.training import sweep
from lib.workbook import data_card
from tests.cases import Case, squared
from tests.runs import several


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
    assert {row["runs/key"].decode() for row in runs} == {
        run.key for part in records.parts(folder) for run in map(part.run, part.runs)
    }
    assert {row["runs/model.width"] for row in runs} == {32}
    steps = [row["curves/step"] for row in itertools.islice(dataset.records("curves"), 3)]
    assert steps == [1, 2, 3]
    (row,) = dataset.records("measured")
    assert row["measured/value"] == 4.0 and row["measured/quantity"] == b"/square"


def test_the_card_has_a_line_for_every_column(folder):
    text = (folder / "README.md").read_text()
    for listed in data_card.columns().values():
        for one in listed:
            assert f"| `{one.name}` | {one.kind} | {one.says} |" in text and one.says and "|" not in one.says
    assert text.startswith("# Records of the smoke profile\n\n") and "PROFILE=smoke" in text and "\n\n\n" not in text


def test_a_further_part_changes_neither(folder, store):
    before = [(folder / name).read_text() for name in ("README.md", "croissant.json")]
    records.add(folder, sweep(several(3), store, jobs=1).results, [])
    data_card.write(folder, "smoke")
    assert [(folder / name).read_text() for name in ("README.md", "croissant.json")] == before
