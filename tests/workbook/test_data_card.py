"""The card of the records names every column that a part has, and what is committed of desk fits the ledger."""

import json

import pyarrow.parquet
import yaml

from lib.store import records
from lib.sweep.measurements import Asked, measure
from lib.sweep.training import sweep
from lib.workbook import claims, data_card, findings, parameters, places, verdicts
from tests.cases import Case, squared
from tests.runs import several
from tests.workbooks import ROOT


def test_the_card_has_every_column_of_a_part(store, tmp_path):
    measure(squared, [Case(x=2)], store, jobs=1)
    runs = sweep(several(1), store, jobs=1).results
    records.add(tmp_path, runs, [Asked(squared, Case(x=2)).found(store)])
    for table, listed in data_card.columns().items():
        (part,) = (tmp_path / f"{table}.parquet").iterdir()
        there = {*pyarrow.parquet.read_schema(part).names}
        assert there == {one.name for one in listed if not one.name.endswith("...")}
        assert all(one.says and "|" not in one.says for one in listed)


def test_what_is_committed_of_desk_says_the_same_everywhere():
    """The verdicts beside the records, the citation and the ledger, whose rules they were judged by."""
    ledger, rows = claims.ledger(places.LEDGER), verdicts.committed(findings.RECORDS)["verdicts"]
    for row in rows:
        claim, published = ledger[row["claim"]], row["profile"] == claims.PUBLISHED
        assert (row["kind"], row["estimand"], row["statement"]) == (claim.kind, claim.estimand, claim.statement)
        assert published or (row["effect"], row["replicates"]) == (claim.effect, claim.replicates), claim.id
        if not published:
            given = parameters.at_profile(parameters.kind_of(claim.notebook), "desk").model_dump()
            then = {name: value for name, value in row["parameters"].items() if name in given and name != "jobs"}
            assert then == json.loads(json.dumps({name: given[name] for name in then})), claim.id
    ours = {row["claim"]: row for row in rows if row["profile"] == "desk"}
    assert ours.keys() == {claim.id for claim in ledger.values() if claim.notebook}
    abstract = yaml.safe_load((ROOT / "CITATION.cff").read_text())["abstract"]
    assert findings.counted(ours.values()) in abstract
