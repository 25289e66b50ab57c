"""Every column of a part is described, and every column that is described is there."""

import pandas as pd

from lib.store import records
from lib.store.columns import CURVES, ENDS, FAMILIES, MADE, MADE_BY, MEASURED, SUMMARY, TABLES, WHO, row_types
from lib.sweep.measurements import Asked, measure
from lib.train.loop import train
from tests.cases import Case, squared
from tests.runs import small_run

SPARSE = {"experts": 4, "active_experts": 2, "mlp": "swiglu"}


def names(columns, prefix=""):
    return {prefix + one.name for one in columns}


def test_a_part_has_the_columns_that_are_described_and_no_others(store, tmp_path):
    runs = [train(small_run(model=model, train={"trace_every": 2}), store) for model in ({}, SPARSE)]
    measure(squared, [Case(x=2)], store, jobs=1)
    records.add(tmp_path, runs, [Asked(squared, Case(x=2)).found(store)])
    tables = {table: pd.read_parquet(tmp_path / f"{table}.parquet") for table in TABLES}
    fields = {"key", "status", *row_types()}
    assert {*tables["runs"]} == fields | names(ENDS, SUMMARY) | names(MADE_BY, MADE)
    further = {*tables["curves"]} - {"key"} - names(CURVES)
    assert further and all(name.startswith((*FAMILIES,)) for name in further)
    assert names(CURVES) <= {*tables["curves"]}
    assert {*tables["measured"]} == names(MEASURED) | {MADE + name for name in WHO}


def test_a_part_of_nothing_has_them_too(tmp_path):
    records.write(tmp_path, [], [])
    for table, columns in (("curves", CURVES), ("measured", MEASURED)):
        assert names(columns) <= {*pd.read_parquet(tmp_path / f"{table}.parquet")}
