"""Records: finished runs without weights and what was measured on them, in a few Parquet files that any reader opens.

    runs.parquet/<part>.parquet       a row a run: its key, every field of its config, how it ended and who made it
    curves.parquet/<part>.parquet     a row a logged step, at reduced resolution
    measured.parquet/<part>.parquet   a row a measured number

    weights/<key>-<digest>.safetensors   of the few runs that notebooks open

A part is the three files of one name, a hash of all that they hold. It is never changed: two people's parts are merged
by copying what is not there, and one that is damaged no longer has its name. What several parts have is read from the
first of them by name.
"""

import functools
import hashlib
import json
import math
import os
import shutil
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lib.base import files
from lib.base.errors import InputError
from lib.config import RunConfig
from lib.store.columns import CURVES, ENDS, MADE_BY, MEASURED, WHO, Column
from lib.store.numbers import Number, check, flat, nested
from lib.store.result import STATUSES, RunResult

if TYPE_CHECKING:
    import pyarrow as pa

TABLES = ("curves", "measured", "runs")  # in the order in which a part is written: it is there once its runs are
POINTS = 100  # of a curve
WEIGHTS, DIGITS = "weights", 16  # the folder of kept weights, and how much of a digest is in their names
SUMMARY, MADE = "summary.", "provenance."  # what names of columns begin with


class Measured(NamedTuple):
    """A measurement as it is kept: ``case`` is what was measured, ``measured`` its numbers and lists by name."""

    function: str
    key: str
    case: dict[str, Any]
    measured: dict[str, Any]
    provenance: dict[str, Any]


class Curve(Mapping[str, list[Any]]):
    """What one run followed: a column of numbers a quantity, each read when it is asked for."""

    def __init__(self, part: "Part", key: str):
        self._part, self._key = part, key

    def __getitem__(self, name: str) -> list[Any]:
        column = self._part.followed(self._key, name)
        if column is None:
            raise KeyError(name)
        return column

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._part.quantities if self._part.followed(self._key, name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Part:
    """One part, of which no more is read than is asked for. Raises ValueError where it does not hold what its name
    says."""

    def __init__(self, folder: Path, name: str):
        import pyarrow as pa
        import pyarrow.parquet

        raw = {table: path_of(folder, table, name).read_bytes() for table in TABLES}
        if _name(raw) != name:
            raise ValueError("its three files have changed since they were written, or are not all of this part")
        self._place = folder, name
        self._files = {
            table: pyarrow.parquet.ParquetFile(pa.BufferReader(raw[table]), read_dictionary=_words(table))
            for table in TABLES
        }
        self.runs = {row["key"]: row for row in self._files["runs"].read().to_pylist()}  # as fast as a hundred alone
        self.quantities = [name for name in self._files["curves"].schema_arrow.names if name != "key"]
        self._found: dict[str, RunResult] = {}
        self._columns: dict[str, pa.ChunkedArray] = {}

    def __reduce__(self) -> Any:
        """Another process reads it anew."""
        return _part, self._place

    def run(self, key: str) -> RunResult:
        if key not in self._found:
            self._found[key] = self._run(key)
        return self._found[key]

    def _run(self, key: str) -> RunResult:
        row = self.runs[key]
        config: dict[str, dict[str, Any]] = {part: {} for part in RunConfig.model_fields}
        for (part, field), kind in _fields().items():
            value = row.get(f"{part}.{field}")
            if value is not None:  # what is empty, or did not exist yet, has its default
                config[part][field] = int(value) if kind is MIXED and value.isdigit() else value
        found = RunConfig(**config)
        if found.key != key or row["status"] not in STATUSES:
            raise ValueError(f"the config of run {key} is that of run {found.key}")
        return RunResult(found, row["status"], _under(SUMMARY, row), Curve(self, key), _under(MADE, row))

    @functools.cached_property
    def _curve_of(self) -> dict[Any, tuple[int, int]]:
        return _stretches(self._files["curves"].read(["key"]))

    def followed(self, key: str, quantity: str) -> list[Any] | None:
        """A column of a run's curve; None where it did not follow that."""
        if quantity not in self._columns and quantity in self.quantities:
            self._columns[quantity] = self._files["curves"].read([quantity])[quantity]
        start, length = self._curve_of.get(key, (0, 0))
        column = self._columns[quantity].slice(start, length) if quantity in self._columns else None
        return None if column is None or column.null_count == length else column.to_pylist()

    @functools.cached_property
    def _measured(self) -> "pa.Table":
        return self._files["measured"].read()

    @functools.cached_property
    def measured(self) -> dict[Any, tuple[int, int]]:
        """(function, key) of each measurement -> where its numbers are."""
        return _stretches(self._measured.select(["measurement", "key"]))

    def measurement(self, function: str, key: str) -> Measured:
        rows = self._measured.slice(*self.measured[function, key])
        (first,) = rows.slice(0, 1).to_pylist()
        numbers = map(Number._make, zip(*(rows[name].to_pylist() for name in Number._fields), strict=True))
        return Measured(function, key, json.loads(first["case"]), nested(numbers), _under(MADE, first))

    def rows(self, of_run: Mapping[str, "Part"], every: Sequence["Part"]) -> dict[str, "pa.Table"]:
        """Table -> its rows that are read from this part. of_run: key -> the part that a run is read from."""
        import pyarrow as pa
        import pyarrow.parquet

        folder, name = self._place
        own = {key for key in self.runs if of_run[key] is self}
        numbers = {}
        for function, key in self.measured:
            run = run_of(json.loads(self._measured["case"][self.measured[function, key][0]].as_py()))
            holders = [part for part in every if (function, key) in part.measured]
            best = of_run.get(run or "")
            numbers[function, key] = (best if best in holders else holders[0]) is self
        tables = {table: pyarrow.parquet.read_table(path_of(folder, table, name)) for table in TABLES}
        names = {table: rows["key"].to_pylist() for table, rows in tables.items()}
        pairs = zip(tables["measured"]["measurement"].to_pylist(), names["measured"], strict=True)
        chosen = {table: [key in own for key in keys] for table, keys in names.items()}
        chosen["measured"] = [numbers[pair] for pair in pairs]
        return {table: rows.filter(pa.array(chosen[table], pa.bool_())) for table, rows in tables.items()}


def _words(table: str) -> list[str]:
    """Columns whose few words are read once, and then by number, which takes a hundredth of the time."""
    words = [one.name for one in MEASURED if one.kind == "text"]
    return {"curves": ["key"], "measured": [*words, *(MADE + name for name in WHO)], "runs": []}[table]


def path_of(folder: Path, table: str, name: str) -> Path:
    return folder / f"{table}.parquet" / f"{name}.parquet"


def parts(folder: Path) -> list[Part]:
    """All parts of a folder's records. Raises InputError for a damaged one, which nobody can make again here, and for
    records of an earlier form."""
    _check_form(folder)
    return _parts(folder)


@functools.lru_cache(maxsize=4096)
def _check_form(folder: Path) -> None:
    """Once: runs are looked for one by one."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name == "measured" or (path / "checksums.json").exists():
            raise InputError(f"records: {path} has the form of an earlier version, run make migrate once, or remove it")


def _parts(folder: Path) -> list[Part]:
    try:
        names = os.listdir(folder / "runs.parquet")
    except FileNotFoundError:
        return []
    return [_part(folder, Path(name).stem) for name in sorted(names) if name.endswith(".parquet")]


@functools.lru_cache(maxsize=4096)
def _part(folder: Path, name: str) -> Part:
    """Read once: it does not change."""
    try:
        return Part(folder, name)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"records: part {name}.parquet of {folder} cannot be read ({error}), restore its files in "
            f"{', '.join(f'{table}.parquet' for table in TABLES)}, or remove them"
        ) from None


def find(folder: Path, key: str) -> RunResult | None:
    """The run of that key; None where there is no record of it. Raises InputError for one that cannot be read."""
    part = next((part for part in parts(folder) if key in part.runs), None)
    try:
        return None if part is None else part.run(key)
    except ValueError as error:
        raise InputError(f"records: run {key} of {folder} cannot be read ({error}), remove its part") from None


def find_measured(folder: Path, function: str, key: str) -> Measured | None:
    """From the part that its run is read from, where that has it: what two machines measured is not mixed."""
    every = parts(folder)
    found = [(part, part.measurement(function, key)) for part in every if (function, key) in part.measured]
    for part, one in found:
        if part is next((part for part in every if run_of(one.case) in part.runs), None):
            return one
    return found[0][1] if found else None


def run_of(case: Mapping[str, Any]) -> str | None:
    """The key of the run that a case is of, where it is of one."""
    return case.get("run", case.get("subject"))


def add(folder: Path, runs: Sequence[RunResult], measured: Sequence[Measured]) -> tuple[int, int]:
    """Keeps those that are no record yet, in a new part; returns how many runs and measurements these were. What a
    process that was killed left of a part goes."""
    for one in measured:
        check(one.measured)
    with files.lock(folder / ".lock"):
        there = _parts(folder)
        names = {path.name for path in (folder / "runs.parquet").glob("*.parquet")}
        for path in folder.glob("*.parquet/*"):
            if path.name not in names:
                files.remove(path)
        runs = [run for run in runs if not any(run.key in part.runs for part in there)]
        measured = [one for one in measured if not any((one.function, one.key) in part.measured for part in there)]
        if runs or measured:
            write(folder, runs, measured)
        return len(runs), len(measured)


def compact(folder: Path) -> int:
    """Makes one part of all, with the same rows but for those that several parts have, of which the one that is read
    stays; returns how many parts there were. Killed at any moment it leaves nothing out."""
    import pyarrow as pa

    with files.lock(folder / ".lock"):
        every = _parts(folder)
        if len(every) < 2:
            return len(every)
        names = sorted(path.stem for path in (folder / "runs.parquet").glob("*.parquet"))
        of_run: dict[str, Part] = {}
        for part in every:
            for key in part.runs:
                of_run.setdefault(key, part)
        tables: dict[str, list[pa.Table]] = {table: [] for table in TABLES}
        for part in every:
            for table, rows in part.rows(of_run, every).items():
                tables[table].append(rows)
        whole = _write(
            folder, {table: pa.concat_tables(some, promote_options="default") for table, some in tables.items()}
        )
        for name in reversed(names):  # the last first: what several have is read from the first of those there are
            for table in reversed(TABLES) if name != whole else ():  # its runs first: without them it is no part
                files.remove(path_of(folder, table, name))
        return len(every)


def keep_weights(folder: Path, key: str, weights: Path) -> bool:
    """Keeps a run's weights beside its record, unless they are there. Says whether it did."""
    path = folder / WEIGHTS / f"{key}-{files.digest(weights)[:DIGITS]}.safetensors"
    if path.exists():
        return False
    with files.replacing(path) as draft:
        shutil.copyfile(weights, draft)
    return True


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
    return _write(
        folder, {"runs": _runs_table(runs), "curves": _curves_table(runs), "measured": _measured_table(measured)}
    )


def _write(folder: Path, tables: Mapping[str, "pa.Table"]) -> str:
    raw = {table: _bytes(tables[table]) for table in TABLES}
    name = _name(raw)
    for table in TABLES:
        with files.replacing(path_of(folder, table, name)) as draft:
            draft.write_bytes(raw[table])
    return name


def _name(raw: Mapping[str, bytes]) -> str:
    return hashlib.sha256("".join(hashlib.sha256(raw[table]).hexdigest() for table in TABLES).encode()).hexdigest()[:16]


def _bytes(table: "pa.Table") -> bytes:
    """As a Parquet file. Measured floats rarely repeat: their bytes are split by place and compressed, others are
    numbered."""
    import pyarrow as pa
    import pyarrow.parquet

    floats = [field.name for field in table.schema if pa.types.is_floating(field.type)]
    others = [field.name for field in table.schema if field.name not in floats]
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=19,
        use_dictionary=others,
        use_byte_stream_split=floats,
        write_statistics=False,
    )
    return bytes(sink.getvalue())


def _runs_table(runs: Sequence[RunResult]) -> "pa.Table":
    import pyarrow as pa

    dumped = [run.config.without_paths().model_dump(mode="json") for run in runs]
    columns = {"key": pa.array([run.key for run in runs], pa.string())}
    for (part, field), kind in _fields().items():
        columns[f"{part}.{field}"] = _field_column(kind, [config[part][field] for config in dumped])
    columns["status"] = pa.array([run.status for run in runs], pa.string())
    columns |= _columns(SUMMARY, ENDS, [run.summary for run in runs])
    return pa.table(columns | _columns(MADE, MADE_BY, [run.provenance for run in runs]))


MIXED = "numbers or words"


@functools.cache
def _fields() -> dict[tuple[str, str], Any]:
    """(part of a config, its field) -> the type of its values, MIXED for numbers or words."""
    return {
        (part, field): _kind(info.annotation)
        for part, kind in RunConfig.model_fields.items()
        for field, info in typing.cast(Any, kind.annotation).model_fields.items()
    }


def row_types() -> dict[str, str]:
    """Column of a config's field -> what it holds: int, float, bool, text or floats."""
    names = {bool: "bool", int: "int", float: "float", str: "text", MIXED: "text"}
    return {f"{part}.{field}": names.get(kind, "floats") for (part, field), kind in _fields().items()}


def _kind(annotation: Any) -> Any:
    kinds = set(_types(annotation)) - {types.NoneType}
    return kinds.pop() if len(kinds) == 1 else MIXED


def _types(annotation: Any) -> Iterator[Any]:
    """What an annotation's values are; words are of type str, and pairs of numbers stay pairs."""
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Literal:
        yield from (type(word) for word in arguments)
    elif typing.get_origin(annotation) is tuple or not arguments:
        yield annotation
    else:
        for argument in arguments:
            yield from _types(argument)


def _field_column(kind: Any, values: list[Any]) -> "pa.Array":
    import pyarrow as pa

    if kind is MIXED:
        return pa.array([None if value is None else str(value) for value in values], pa.string())
    of = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
    return pa.array(values, of.get(kind, pa.list_(pa.float64())))


def _columns(prefix: str, known: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> dict[str, "pa.Array"]:
    """Columns of what rows have by name, the ``known`` ones whether or not any row has them; what is itself composed is
    JSON."""
    import pyarrow as pa

    kinds = {column.name: _arrow(column.kind) for column in known}
    flat = [{name: json.dumps(x) if isinstance(x, dict | list) else x for name, x in row.items()} for row in rows]
    names = dict.fromkeys((*kinds, *(name for row in flat for name in row)))
    return {prefix + name: pa.array([row.get(name) for row in flat], kinds.get(name)) for name in names}


def _arrow(kind: str) -> "pa.DataType":
    import pyarrow as pa

    return {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "text": pa.string()}[kind]


def _under(prefix: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """What a row has in the columns that begin so."""
    found = {name.removeprefix(prefix): x for name, x in row.items() if name.startswith(prefix) and x is not None}
    return {name: json.loads(x) if isinstance(x, str) and x[:1] in ("{", "[") else x for name, x in found.items()}


def _curves_table(runs: Sequence[RunResult]) -> "pa.Table":
    """Curves end to end. A quantity that a run does not have is empty in its rows; one that was not measured in a step
    is nan there."""
    import pyarrow as pa

    curves = [reduced(run.metrics) for run in runs]
    lengths = [len(curve.get("step", [])) for curve in curves]
    known = [column.name for column in CURVES if column.kind == "float"]
    names = dict.fromkeys((*known, *(name for curve in curves for name in curve if name != "step")))
    keys = [run.key for run, length in zip(runs, lengths, strict=True) for _ in range(length)]
    columns = {"key": pa.array(keys, pa.string())}
    columns["step"] = pa.array([step for curve in curves for step in curve.get("step", [])], pa.int32())
    for name in names:
        values = [x for curve, n in zip(curves, lengths, strict=True) for x in curve.get(name, [None] * n)]
        columns[name] = pa.array(values, pa.float32())
    return pa.table(columns)


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


def _measured_table(measured: Sequence[Measured]) -> "pa.Table":
    import pyarrow as pa

    numbers = [(one, number) for one in measured for number in flat(one.measured)]
    rows = [
        {
            "measurement": one.function,
            "key": one.key,
            "run": run_of(one.case),
            "case": json.dumps(one.case),
            **number._asdict(),
        }
        for one, number in numbers
    ]
    who = [column for column in MADE_BY if column.name in WHO]
    return pa.table(_columns("", MEASURED, rows) | _columns(MADE, who, [one.provenance for one, _ in numbers]))


def _stretches(names: "pa.Table") -> dict[Any, tuple[int, int]]:
    """Name -> (where its rows begin, how many there are) of rows that lie side by side; a tuple of them where there are
    several columns of names, which are numbered."""
    columns = [column.combine_chunks() for column in names.columns]
    numbers = [column.indices.to_numpy() for column in columns]
    starts = np.flatnonzero(np.any([np.diff(own, prepend=-1) != 0 for own in numbers], axis=0))
    lengths = np.diff(starts, append=len(names)).tolist()
    words = [np.array(column.dictionary, object)[own[starts]] for column, own in zip(columns, numbers, strict=True)]
    found = zip(*words, strict=True) if len(words) > 1 else words[0]
    return dict(zip(found, zip(starts.tolist(), lengths, strict=True), strict=True))
