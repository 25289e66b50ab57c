"""The records' index is what the notebooks' plans say, and the card has every column."""

import subprocess
import sys
from types import SimpleNamespace

import pandas as pd
import pyarrow.parquet
import pytest

from lib.store import records
from lib.store.result import TABLES
from lib.sweep.measurements import Asked, measure
from lib.sweep.training import sweep
from lib.workbook import index, plans
from lib.workbook.documents import CARD
from tests.cases import Case, squared
from tests.runs import several
from tests.workbooks import ROOT


@pytest.mark.parametrize("profile", index.PROFILES)
def test_the_index_of_the_records_is_that_of_the_plans(plans_once, profile, monkeypatch):
    there = pd.read_parquet(CARD.parent / profile / index.NAME)
    plans.planned(profile)
    monkeypatch.setattr(records, "of", lambda folder: SimpleNamespace(keys=there["key"]))  # which they are: below
    pd.testing.assert_frame_equal(index.index(profile), there)
    assert [*there] == [one.name for one in index.columns()["index"]]


ROWS = """
import numpy, pandas
from lib.config import RunConfig
from lib.store import records
from lib.workbook import index, places

for profile in index.PROFILES:
    folder = places.RECORDS / profile
    runs = records.table(folder)
    assert [RunConfig.of_row(row).key for row in runs.to_dict("records")] == [*runs["key"]]
    assert RunConfig.of_row(runs.iloc[0]).key == runs["key"][0]
    rows = pandas.read_parquet(folder / index.NAME).drop_duplicates("key")
    both = rows.merge(runs, on="key", suffixes=("", "_done"), how="outer").query("status == 'finished'")
    assert (both["tokens"] == both["tokens_done"]).all() and (both["r"] == both["model.mean_loops"]).all()
"""


def test_every_committed_run_is_in_the_index_and_its_row_is_its_config():
    subprocess.run([sys.executable, "-c", ROWS], check=True, cwd=ROOT)


def test_the_card_has_every_column_of_a_part(store, tmp_path):
    measure(squared, [Case(x=2)], store, jobs=1)
    runs = sweep(several(1), store, jobs=1).results
    records.add(tmp_path, runs, [Asked(squared, Case(x=2)).found(store)])
    every = index.columns()
    for name, listed in ((name, every[name]) for name in TABLES):
        (part,) = (tmp_path / f"{name}.parquet").iterdir()
        there = {*pyarrow.parquet.read_schema(part).names}
        assert there == {one.name for one in listed if not one.name.endswith("...")}
        assert all(one.says and "|" not in one.says for one in listed)
