"""Records: finished runs without weights and what was measured on them, in a few Parquet files that any reader opens.

    runs.parquet/<part>.parquet       a row a run: its key, every field of its config, how it ended and who made it
    curves.parquet/<part>.parquet     a row a logged step, at reduced resolution
    measured.parquet/<part>.parquet   a row a measured number

    weights/<key>-<digest>.safetensors   of the few runs that notebooks open

A part is the three files of one name, a hash of all that they hold. It is never changed: two people's parts are merged
by copying what is not there, and one that is damaged no longer has its name. All parts together are one data set, in
which what several of them have is read from the first by name.
"""

import functools
import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lib.base import files
from lib.base.errors import InputError
from lib.config import RunConfig
from lib.store.columns import MADE, MEASURED, SUMMARY, TABLES, WHO, config_kinds, row_types, schema
from lib.store.numbers import Number, flat, nested
from lib.store.result import STATUSES, RunResult

if TYPE_CHECKING:
    import pyarrow as pa

POINTS = 100  # of a curve
WEIGHTS, DIGITS = "weights", 16  # the folder of kept weights, and how much of a digest is in their names


class Measured(NamedTuple):
    """A measurement as it is kept: ``case`` is what was measured, ``measured`` its numbers and lists by name."""

    function: str
    key: str
    case: dict[str, Any]
    measured: dict[str, Any]
    provenance: dict[str, Any]


class Curve(Mapping[str, list[Any]]):
    """What one run followed: a column of numbers a quantity, each read when it is asked for."""

    def __init__(self, records: "Records", key: str):
        self._records, self._key = records, key

    def __getitem__(self, name: str) -> list[Any]:
        column = self._records.followed(self._key, name)
        if column is None:
            raise KeyError(name)
        return column

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._records.quantities if self._records.followed(self._key, name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Records:
    """The parts of a folder, of which no more is read than is asked for. Raises InputError for a damaged one, which
    nobody can make again here."""

    def __init__(self, folder: Path, names: Sequence[str]):
        parts = [_read_part(folder, name) for name in names]
        self._tables = {table: _dataset([part[table] for part in parts]) for table in TABLES if parts}
        self.rows: dict[str, dict[str, Any]] = {}  # of runs, by key
        for row in self._tables["runs"].to_table().to_pylist() if parts else ():
            self.rows.setdefault(row["key"], row)
        self.quantities = [name for name in self._tables["curves"].schema.names if name != "key"] if parts else []
        self._results: dict[str, RunResult] = {}
        self._columns: dict[str, pa.Array] = {}

    def run(self, key: str) -> RunResult | None:
        """The run of that key; None where there is no record of it. Raises InputError for one that cannot be read."""
        if key in self.rows and key not in self._results:
            try:
                self._results[key] = self._run(key)
            except ValueError as error:
                raise InputError(f"records: run {key} cannot be read ({error}), remove its part") from None
        return self._results.get(key)

    def _run(self, key: str) -> RunResult:
        row = self.rows[key]
        config: dict[str, dict[str, Any]] = {part: {} for part in RunConfig.model_fields}
        for name, kinds in config_kinds().items():
            value = row.get(name)
            if value is not None:  # what is empty, or did not exist yet, has its default
                part, field = name.split(".")
                is_number = "int" in kinds and isinstance(value, str) and value.isdigit()
                config[part][field] = int(value) if is_number else value
        found = RunConfig(**config)
        if found.key != key or row["status"] not in STATUSES:
            raise ValueError(f"the config of run {key} is that of run {found.key}")
        return RunResult(found, row["status"], _under(SUMMARY, row), Curve(self, key), _under(MADE, row))

    def followed(self, key: str, quantity: str) -> list[Any] | None:
        """A column of a run's curve; None where it did not follow that."""
        if quantity not in self._columns and quantity in self.quantities:
            column = self._tables["curves"].to_table(columns=[quantity])[quantity]
            self._columns[quantity] = column.combine_chunks()
        if quantity not in self._columns or key not in self._curves:
            return None
        start, length = self._curves[key]
        values = self._columns[quantity].slice(start, length)
        return None if values.null_count == length else values.to_pylist()

    @functools.cached_property
    def _curves(self) -> dict[str, tuple[int, int]]:
        """Key of a run -> where its rows begin, how many there are."""
        return {key: place for (key,), place in self._places("curves", "key").items()}

    @functools.cached_property
    def measured(self) -> dict[tuple[str, ...], tuple[int, int]]:
        """(function, key) of a measurement -> where its rows begin, how many there are."""
        return self._places("measured", "measurement", "key")

    def _places(self, table: str, *names: str) -> dict[tuple[str, ...], tuple[int, int]]:
        """What rows of a table have under these names -> where they begin, how many there are. They lie side by side;
        of those that several parts have it is the first part's."""
        if not self._tables:
            return {}
        rows = self._tables[table].to_table(columns=["__fragment_index", *names]).unify_dictionaries().to_pandas()
        first = rows.drop_duplicates()
        lengths = np.diff(first.index, append=len(rows)).tolist()
        keys = zip(*(first[name].tolist() for name in names), strict=True)
        found: dict[tuple[str, ...], tuple[int, int]] = {}
        for key, start, length in zip(keys, first.index.tolist(), lengths, strict=True):
            found.setdefault(key, (start, length))
        return found

    @functools.cached_property
    def _numbers(self) -> "pa.Table":
        return self._tables["measured"].to_table().combine_chunks()

    def measurement(self, function: str, key: str) -> Measured | None:
        if (function, key) not in self.measured:
            return None
        rows = self._numbers.slice(*self.measured[function, key])
        (first,) = rows.slice(0, 1).to_pylist()
        numbers = map(Number, *(rows[name].to_pylist() for name in Number._fields))
        return Measured(function, key, json.loads(first["case"]), nested(numbers), _under(MADE, first))


def _read_part(folder: Path, name: str) -> dict[str, bytes]:
    """Table -> the bytes of its file. Raises InputError where they are not what the part's name says."""
    try:
        contents = {table: path_of(folder, table, name).read_bytes() for table in TABLES}
        problem = "" if _name(contents) == name else "its three files have changed since they were written"
    except OSError as error:
        problem = str(error)
    if problem:
        raise InputError(
            f"records: part {name}.parquet of {folder} cannot be read ({problem}), restore its files in "
            f"{', '.join(f'{table}.parquet' for table in TABLES)}, or remove them"
        )
    return contents


def _dataset(contents: Iterable[bytes]) -> Any:
    """The files of a table as one. Words that stand in many rows are numbered, which is less to hold."""
    import pyarrow as pa
    import pyarrow.dataset

    words = ["key", *(column.name for column in MEASURED if column.kind == "text"), *(MADE + name for name in WHO)]
    layout = pyarrow.dataset.ParquetFileFormat(dictionary_columns=words)
    fragments = [layout.make_fragment(pa.py_buffer(content)) for content in contents]
    whole = pa.unify_schemas([fragment.physical_schema for fragment in fragments])
    return pyarrow.dataset.FileSystemDataset(fragments, whole, layout)


def path_of(folder: Path, table: str, name: str) -> Path:
    return folder / f"{table}.parquet" / f"{name}.parquet"


def of(folder: Path) -> Records:
    """The records of a folder, which are read once: parts do not change."""
    return _records(folder, tuple(_names(folder)))


_records = functools.lru_cache(maxsize=32)(Records)


def _names(folder: Path) -> list[str]:
    """Of its parts, in the order in which they are read."""
    try:
        return sorted(name.removesuffix(".parquet") for name in os.listdir(folder / "runs.parquet") if name[0] != ".")
    except FileNotFoundError:
        return []


def run_of(case: Mapping[str, Any]) -> str | None:
    """The key of the run that a case is of, where it is of one."""
    return case.get("run", case.get("subject"))


def add(folder: Path, runs: Sequence[RunResult], measured: Sequence[Measured]) -> tuple[int, int]:
    """Keeps those that are no record yet, in a new part; returns how many runs and measurements these were. What a
    process that was killed left of a part goes."""
    with files.lock(folder / ".lock"):
        there, names = of(folder), _names(folder)
        for path in folder.glob("*.parquet/*"):
            if path.stem not in names:
                files.remove(path)
        runs = [run for run in runs if run.key not in there.rows]
        measured = [one for one in measured if (one.function, one.key) not in there.measured]
        if runs or measured:
            write(folder, runs, measured)
        return len(runs), len(measured)


def keep_weights(folder: Path, key: str, weights: Path) -> None:
    """Keeps a run's weights beside its record, unless they are there."""
    path = folder / WEIGHTS / f"{key}-{files.digest(weights)[:DIGITS]}.safetensors"
    if not path.exists():
        with files.replacing(path) as draft:
            shutil.copyfile(weights, draft)


def find_weights(folder: Path, key: str) -> Path | None:
    """The weights that were kept of a run. Raises InputError where they have changed since."""
    for path in sorted((folder / WEIGHTS).glob(f"{key}-*.safetensors")):
        if not path.stem.endswith(f"-{files.digest(path)[:DIGITS]}"):
            raise InputError(f"records: {path} has changed since it was written, restore it, or remove it")
        return path
    return None


# ---- writing ---------------------------------------------------------------------------------------------------------


def write(folder: Path, runs: Sequence[RunResult], measured: Sequence[Measured]) -> str:
    """Writes a part; returns its name."""
    curves = {run.key: reduced(run.metrics) for run in runs}
    rows = {
        "runs": [_run_row(run) for run in runs],
        "curves": [row for key, curve in curves.items() for row in _curve_rows(key, curve)],
        "measured": [row for one in measured for row in _measured_rows(one)],
    }
    followed = [name for curve in curves.values() for name in curve]
    contents = {table: _bytes(rows[table], schema(table, followed)) for table in TABLES}
    name = _name(contents)
    for table in TABLES:
        with files.replacing(path_of(folder, table, name)) as draft:
            draft.write_bytes(contents[table])
    return name


def _name(contents: Mapping[str, bytes]) -> str:
    digests = [hashlib.sha256(contents[table]).hexdigest() for table in TABLES]
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:16]


def _bytes(rows: list[dict[str, Any]], columns: "pa.Schema") -> bytes:
    """As a Parquet file. Measured floats rarely repeat: their bytes are split by place and compressed, others are
    numbered."""
    import pyarrow as pa
    import pyarrow.parquet

    floats = [field.name for field in columns if pa.types.is_floating(field.type)]
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(
        pa.Table.from_pylist(rows, columns),
        sink,
        compression="zstd",
        compression_level=19,
        use_dictionary=[name for name in columns.names if name not in floats],
        use_byte_stream_split=floats,
        write_statistics=False,
    )
    return bytes(sink.getvalue())


def _run_row(run: RunResult) -> dict[str, Any]:
    row: dict[str, Any] = {"key": run.key, "status": run.status}
    config = run.config.without_paths().model_dump(mode="json")
    for name, kind in row_types().items():
        part, field = name.split(".")
        value = config[part][field]
        row[name] = str(value) if kind == "text" and value is not None else value
    return row | _prefixed(SUMMARY, run.summary) | _prefixed(MADE, run.provenance)


def _prefixed(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """A row's columns of that prefix; what is itself composed is JSON."""
    return {prefix + name: json.dumps(x) if isinstance(x, dict | list) else x for name, x in values.items()}


def _under(prefix: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """What ``_prefixed`` was given."""
    found = {name.removeprefix(prefix): x for name, x in row.items() if name.startswith(prefix) and x is not None}
    return {name: json.loads(x) if isinstance(x, str) and x[:1] in ("{", "[") else x for name, x in found.items()}


def _curve_rows(key: str, curve: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """A quantity that was not measured in a step is nan there; one that a run does not have is empty."""
    steps = zip(*curve.values(), strict=True)
    return [{"key": key, **dict(zip(curve, step, strict=True))} for step in steps]


def reduced(metrics: Mapping[str, list[Any]], points: int = POINTS) -> dict[str, list[Any]]:
    """At most ``points`` rows of a curve.

    The first and the last row stay; then the rows in which most columns were measured, which are those of validations
    and traces, then those of spectra, then the others. Where not all rows of a kind fit, evenly spaced ones do.
    """
    rows = len(metrics.get("step", []))
    measured = [sum(not math.isnan(column[i]) for column in metrics.values()) for i in range(rows)]
    kept = {0, rows - 1} if rows else set()
    for much in sorted(set(measured), reverse=True):
        kind = [i for i in range(rows) if measured[i] == much and i not in kept]
        room = max(0, points - len(kept))
        places = range(len(kind)) if len(kind) <= room else np.linspace(0, len(kind) - 1, room).round().astype(int)
        kept |= {kind[place] for place in places}
    return {name: [column[i] for i in sorted(kept)] for name, column in metrics.items()}


def _measured_rows(one: Measured) -> list[dict[str, Any]]:
    own = {"measurement": one.function, "key": one.key, "run": run_of(one.case), "case": json.dumps(one.case)}
    own |= _prefixed(MADE, {name: one.provenance.get(name) for name in WHO})
    return [own | number._asdict() for number in flat(one.measured)]
