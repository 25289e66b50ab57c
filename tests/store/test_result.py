"""A finished run is known by its config, and every column of a part that is described is there."""

import pandas as pd

from lib.store import records
from lib.store.result import CURVES, MEASURED, RunResult
from tests.runs import small_run


def test_a_result_is_known_by_its_config():
    assert RunResult(small_run(), "finished", {}, {}, {}).key == small_run().key


def test_a_part_of_nothing_has_every_column(tmp_path):
    records.write(tmp_path, [], [])
    for table, columns in (("curves", CURVES), ("measured", MEASURED)):
        assert {one.name for one in columns} <= {*pd.read_parquet(tmp_path / f"{table}.parquet")}
