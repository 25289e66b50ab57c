"""Every column of a part is described, and every column that is described is there."""

import pandas as pd

from lib.store import records
from lib.store.columns import CURVES, MEASURED


def names(columns, prefix=""):
    return {prefix + one.name for one in columns}


def test_a_part_of_nothing_has_them_too(tmp_path):
    records.write(tmp_path, [], [])
    for table, columns in (("curves", CURVES), ("measured", MEASURED)):
        assert names(columns) <= {*pd.read_parquet(tmp_path / f"{table}.parquet")}
