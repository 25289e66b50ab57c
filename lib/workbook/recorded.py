"""What committed records say of each run and measurement, as checksums: whoever drew from them sees what has changed.

It reads the files of ``lib/store/records.py``, which says what they hold, without that module: it imports torch.
"""

import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet

#: what names the rows of a table, and what they say: all that runs have, where None stands; a curve is known by its
#: loss, and its run by when and where it was trained
NAMES = {"runs": ["key"], "curves": ["key"], "measured": ["measurement", "key"]}
SAY = {"runs": None, "curves": ["step", "loss"], "measured": ["quantity", "i", "j", "value", "kind", "text"]}


def said(folder: Path) -> dict[str, str]:
    """Key of a run, or name and key of a measurement -> a checksum of what is read of it. It does not depend on which
    part holds it; of what several hold it is that of the one that is read, as ``lib/store/records.py`` says. A part
    that cannot be read says nothing here: who draws from it will name it."""
    parts = sorted(path.stem for path in (folder / "runs.parquet").glob("*.parquet"))
    if not parts:
        return {}
    runs, curves, measured = (pd.concat([_of_part(folder, table, part) for part in parts]) for table in NAMES)
    runs = runs.drop_duplicates("key").set_index("key")
    of_curve = curves.set_index(["key", "part"])["sum"]
    own = of_curve.reindex(pd.MultiIndex.from_arrays([runs.index, runs["part"]]), fill_value=0).to_numpy()
    found = dict(zip(runs.index, _spelt(runs["sum"] + own), strict=True))
    measured = measured.drop_duplicates(["measurement", "key"])
    found |= dict(zip(measured["measurement"] + " " + measured["key"], _spelt(measured["sum"]), strict=True))
    for path in sorted((folder / "weights").glob("*-*")):
        key, _, digest = path.stem.partition("-")
        found[key] = f"{found.get(key, '')} {digest}"
    return found


def _spelt(sums: "pd.Series[int]") -> list[str]:
    return [f"{total:016x}" for total in sums]


def _of_part(folder: Path, table: str, part: str) -> pd.DataFrame:
    """One row a run, curve or measurement of a part: its names, ``sum``, a checksum of its rows, and the ``part``."""
    names, say = NAMES[table], SAY[table]
    try:
        rows = pyarrow.parquet.read_table(
            folder / f"{table}.parquet" / f"{part}.parquet", columns=say and [*names, *say]
        )
    except (OSError, ValueError, KeyError):
        rows = pa.table({name: pa.array([], pa.string()) for name in names})
    total = np.zeros(len(rows), np.uint64)
    for column in sorted({*rows.column_names} - {*names}):
        total += _hashes(rows[column]) * np.uint64(2 * zlib.crc32(column.encode()) + 1)
    frame = rows.select(names).to_pandas().assign(sum=pd.util.hash_array(total), part=part)
    return frame.groupby([*names, "part"], sort=False, dropna=False, as_index=False)["sum"].sum()


def _hashes(column: pa.ChunkedArray) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    """Of values, however wide their type is here; 0 where there is none."""
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        numbers = column.cast(pa.float64()).to_numpy()
        return np.where(np.isnan(numbers), np.uint64(0), pd.util.hash_array(numbers) + np.uint64(1))  # that of 0.0 is 0
    words = ["" if value is None else str(value) for value in column.to_pylist()]
    codes, known = pd.factorize(np.array(words, object))
    hashes = pd.util.hash_array(np.append(known, ""))
    hashes[np.append(known, "") == ""] = 0
    return hashes[codes]
