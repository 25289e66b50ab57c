"""Records: finished runs without weights and what was measured on them, in a few Parquet files that any reader opens.

    runs.parquet/<part>.parquet       a row a run: its key, every field of its config, how it ended and who made it
    curves.parquet/<part>.parquet     a row a logged step, at reduced resolution
    measured.parquet/<part>.parquet   a row a measured number

    weights/<key>-<digest>.safetensors   of the few runs that notebooks open

A part is the three files of one name, a hash of all that they hold. It is never changed: two people's parts are merged
by copying what is not there, and one that is damaged no longer has its name. All parts together are one data set, in
which what several of them have is read from the first by name.
"""

import collections
import functools
import hashlib
import itertools
import json
import math
import shutil
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from lib.base import files
from lib.base.errors import InputError, first_line
from lib.config import RunConfig
from lib.store.result import MADE, POINTS, SUMMARY, TABLES, WHO, RunResult, check, row_types, schema

if TYPE_CHECKING:
    import pandas
    import pyarrow.parquet

Names = tuple[str, ...]  # the key of a run, or the function and the key of a measurement
Check = Callable[[Any], object]  # raises ValueError for what is not to be believed
SHOWN = 3  # rows of a table that are left out, each in a line; a last line says that there are more
RESTORE = f"restore its files in {', '.join(f'{table}.parquet' for table in TABLES)}, or remove them"
WEIGHTS, DIGITS = "weights", 16  # the folder of kept weights, and how much of a digest is in their names

NESTED = "/"  # between the names of a measured number
KINDS: dict[type, str] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "text",
    types.NoneType: "none",
    # which are empty
    dict: "no names",
    list: "no items",
}


class Measured(NamedTuple):
    """A measurement as it is kept: ``case`` is what was measured, ``measured`` its numbers and lists by name."""

    function: str
    key: str
    case: dict[str, Any]
    measured: dict[str, Any]
    provenance: dict[str, Any]


class Curve(Mapping[str, list[Any]]):
    """What one run followed: a column of numbers a quantity, each read when it is asked for, from ``length`` rows of a
    part. Raises InputError for one that cannot be."""

    def __init__(self, part: "Part", key: str):
        self._part, self._key = part, key

    def __getitem__(self, name: str) -> list[Any]:
        return self._part.followed(self._key, name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._part.quantities if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Part:
    """The three files of one name, of which no more is read than is asked for. What cannot be believed is left out, and
    ``say`` is told why, and in which row it stands, counted from 0. Raises an error where the files are no part."""

    def __init__(self, folder: Path, name: str, say: Callable[[str], None]):
        self._name, self._say = f"part {name}.parquet of {folder}", say
        contents = {table: path_of(folder, table, name).read_bytes() for table in TABLES}
        if _name(contents) != name:
            raise ValueError("its three files have changed since they were written")
        self._tables = {table: _opened(table, content) for table, content in contents.items()}
        self._rows = self._tables["runs"].read().to_pylist()
        self.quantities = [name for name in self._tables["curves"].schema_arrow.names if name != "key"]
        self._columns: dict[str, pyarrow.Array] = {}
        self._read: dict[Names, Any] = {}
        self._left_out = collections.Counter[str]()
        by = {"runs": ["key"], "curves": ["key"], "measured": ["measurement", "key"]}
        self.places = {table: self._find_places(table, names) for table, names in by.items()}
        if lost := self.places["curves"].keys() - self.places["runs"].keys():
            say(f"records: {self._name}: curves of {len(lost)} runs are there that are not in its runs, {RESTORE}")

    def _find_places(self, table: str, names: list[str]) -> dict[Names, tuple[int, int]]:
        """Of each run or measurement the first of its rows, and how many lie there together; 0 where others are among
        them, or a run has several."""
        rows = self._tables[table].read(columns=names).to_pandas()
        if nameless := np.flatnonzero(rows.isna().any(axis=1)).tolist():
            raise ValueError(f"row {nameless[0]} of {table} has no name")
        most = 1 if table == "runs" else len(rows)
        groups = rows.reset_index().groupby(names, sort=False, observed=True)
        spans = groups["index"].agg(["min", "max", "size"]).reset_index().itertuples(index=False, name=None)
        return {tuple(of): (first, n if last - first < n <= most else 0) for *of, first, last, n in spans}

    def find(self, table: str, *names: str, check: Check = bool) -> Any:
        """The run, or the measurement, of these names; None where it is not there, or not to be believed."""
        if names in self.places[table]:
            start, length = self.places[table][names]
            try:
                if not length:
                    raise ValueError("it stands in several places")
                if names not in self._read:
                    read: Callable[..., Any] = self._run if table == "runs" else self._measurement
                    self._read[names] = read(*names, start, length)
                check(self._read[names])
                return self._read[names]
            except Exception as error:  # whatever the rows of somebody else raise
                del self.places[table][names]
                self._left_out[table] += 1
                row = f"row {start} of {table}, {' '.join(map(str, names))}, is"
                what = row if self._left_out[table] <= SHOWN else f"more of {table} are"
                if self._left_out[table] <= SHOWN + 1:
                    self._say(f"records: {self._name}: {what} left out ({first_line(error)}), {RESTORE}")
        return None

    def _run(self, key: str, start: int, length: int) -> RunResult:
        row = self._rows[start]
        found = RunConfig.of_row({name: row.get(name) for name in row_types()})
        if row.get("data.source") is None or not found.data.content or found.key != key:
            raise ValueError("its config is not that of its key")
        run = RunResult(found, row["status"], _under(SUMMARY, row), Curve(self, key), _under(MADE, row))
        check(run)
        return run

    def followed(self, key: str, quantity: str) -> list[Any]:
        """A column of a run's curve. Raises KeyError where it did not follow that, InputError for a damaged one."""
        if quantity not in self.quantities:
            raise KeyError(quantity)
        try:
            if quantity not in self._columns:
                self._columns[quantity] = self._tables["curves"].read(columns=[quantity])[quantity].combine_chunks()
            values = self._columns[quantity].slice(*self.places["curves"].get((key,), (0, 0)))
            if 0 < values.null_count < len(values):
                raise ValueError("some steps are empty")
        except Exception as error:  # whatever the file of somebody else raises
            what = f"records: {quantity} of {key}: {first_line(error)}"
            raise InputError(f"{what}, in {self._name}, {RESTORE}") from None
        if values.null_count == len(values):
            raise KeyError(quantity)
        return cast(list[Any], values.to_pylist())

    @functools.cached_property
    def _numbers(self) -> "pyarrow.Table":
        return self._tables["measured"].read().combine_chunks()

    def _measurement(self, function: str, key: str, start: int, length: int) -> Measured:
        rows = self._numbers.slice(start, length)
        numbers = [*map(Number, *(rows[name].to_pylist() for name in Number._fields))]
        of_all = rows.drop_columns([*Number._fields])
        (first,) = of_all.slice(0, 1).to_pylist()
        case, made_by, measured = json.loads(first["case"]), _under(MADE, first), nested(numbers)
        if max(len(column.unique()) for column in of_all) > 1 or [*flat(measured)] != numbers:
            raise ValueError("its rows do not belong together")
        if not isinstance(case, dict) or run_of(case) != first["run"]:
            raise ValueError("its case is not that of its run")
        if unknown := [name for name in WHO if not isinstance(made_by.get(name), str)]:
            raise ValueError(f"{unknown[0]} is {made_by.get(unknown[0])!r:.80}")
        return Measured(function, key, case, measured, made_by)


class Records:
    """The parts of a folder. What of them is damaged, which nobody can make again here, is left out and said once: a
    line of ``problems``."""

    def __init__(self, folder: Path, names: Sequence[str]):
        self._parts: list[Part] = []
        self.problems: list[str] = []
        for name in names:
            try:
                self._parts.append(Part(folder, name, self._say))
            except Exception as error:  # whatever files of somebody else raise
                self._say(f"records: part {name}.parquet of {folder} cannot be read ({first_line(error)}), {RESTORE}")

    def _say(self, line: str) -> None:
        self.problems.append(line)
        print(line, file=sys.stderr)

    @property
    def keys(self) -> list[str]:
        """Of the runs."""
        return [*dict.fromkeys(key for part in self._parts for (key,) in part.places["runs"])]

    def run(self, key: str) -> RunResult | None:
        """The run of that key; None where there is no record of it."""
        return next((run for part in self._parts if (run := part.find("runs", key))), None)

    def measurement(self, function: str, key: str, check: Check = bool) -> Measured | None:
        """The measurement of these names, unless ``check`` raises an error; None where there is no record of it."""
        return next((kept for part in self._parts if (kept := part.find("measured", function, key, check=check))), None)


def _opened(table: str, content: bytes) -> "pyarrow.parquet.ParquetFile":
    """Raises an error where a column is not what it should be. Words that stand in many rows are numbered, which is
    less to hold."""
    import pyarrow.parquet

    there = pyarrow.parquet.read_schema(pyarrow.py_buffer(content))
    for field in schema(table, there.names if table == "curves" else ()):
        types = [other.type for other in there if other.name == field.name]
        # a field of configs that came later has a default
        if types != [field.type] and (types or field.name not in row_types()):
            raise ValueError(f"{table}.parquet: {field.name} is {types or 'missing'}, not {field.type}")
    words = [field.name for field in there if pyarrow.types.is_string(field.type)]
    return pyarrow.parquet.ParquetFile(pyarrow.py_buffer(content), read_dictionary=words)


def path_of(folder: Path, table: str, name: str) -> Path:
    return folder / f"{table}.parquet" / f"{name}.parquet"


def of(folder: Path) -> Records:
    """The records of a folder, which are read once: parts do not change. They are read in the order of their names."""
    names = {path.stem for table in TABLES for path in (folder / f"{table}.parquet").glob("[!.]*.parquet")}
    return _records(folder, tuple(sorted(names)))


_records = functools.lru_cache(maxsize=32)(Records)


def table(folder: Path, name: str = "runs") -> "pandas.DataFrame":
    """One of TABLES of a folder, a run or a measurement once, with the columns of ``RunStore.frame``: ``val_loss`` for
    ``summary.val_loss``. ``RunConfig.of_row`` makes a row of runs a config again."""
    import pandas

    parts = [pandas.read_parquet(path) for path in sorted((folder / f"{name}.parquet").glob("[!.]*.parquet"))]
    by = {"runs": ["key"], "curves": ["key", "step"], "measured": ["measurement", "key", "quantity", "i", "j"]}
    whole = pandas.concat(parts, ignore_index=True).drop_duplicates(by[name], ignore_index=True)
    return whole.rename(columns=lambda column: column.removeprefix(SUMMARY))


def run_of(case: Mapping[str, Any]) -> str | None:
    """The key of the run that a case is of, where it is of one."""
    return case.get("run", case.get("subject"))


def budget_of(label: Iterable[Any]) -> float | None:
    """The FLOPs that a run's label names, if it names any: no other number in one is as large."""
    return next((float(x) for x in label if isinstance(x, int | float) and x >= 1e6), None)


def add(folder: Path, runs: Sequence[RunResult], measured: Sequence[Measured]) -> tuple[int, int]:
    """Keeps those that are no record yet, in a new part; returns how many runs and measurements these were. What a
    process that was killed left of a part goes."""
    with files.lock(folder / ".lock"):
        there = of(folder)
        for path in folder.glob("*.parquet/*"):
            if not path_of(folder, "runs", path.stem).exists():
                files.remove(path)
        runs = [run for run in runs if there.run(run.key) is None]
        measured = [one for one in measured if there.measurement(one.function, one.key) is None]
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
    path = min((folder / WEIGHTS).glob(f"{key}-*.safetensors"), default=None)
    if path and not path.stem.endswith(f"-{files.digest(path)[:DIGITS]}"):
        raise InputError(f"records: {path} has changed since it was written, restore it, or remove it")
    return path


# ---- writing ---------------------------------------------------------------------------------------------------------


def write(folder: Path, runs: Sequence[RunResult], measured: Sequence[Measured]) -> str:
    """Writes a part; returns its name."""
    curves = {run.key: reduced(run.metrics) for run in runs}
    rows = {
        "runs": [_run_row(run) for run in runs],
        "curves": [  # a quantity that was not measured in a step is nan there; one that a run does not have is empty
            {"key": key, **dict(zip(curve, step, strict=True))}
            for key, curve in curves.items()
            for step in zip(*curve.values(), strict=True)
        ],
        "measured": [row for one in measured for row in _measured_rows(one)],
    }
    contents = {table: _bytes(rows[table], schema(table, itertools.chain(*curves.values()))) for table in TABLES}
    name = _name(contents)
    for table in TABLES:
        files.write(path_of(folder, table, name), contents[table])
    return name


def _name(contents: Mapping[str, bytes]) -> str:
    digests = [hashlib.sha256(contents[table]).hexdigest() for table in TABLES]
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:16]


def _bytes(rows: list[dict[str, Any]], columns: "pyarrow.Schema") -> bytes:
    """As a Parquet file. Measured floats rarely repeat: their bytes are split by place and compressed, others are
    numbered."""
    import pyarrow.parquet

    floats = [field.name for field in columns if pyarrow.types.is_floating(field.type)]
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(
        pyarrow.Table.from_pylist(rows, columns),
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
    own = {
        "measurement": one.function,
        "key": one.key,
        "run": run_of(one.case),
        "case": json.dumps(one.case),
        **_prefixed(MADE, {name: one.provenance.get(name) for name in WHO}),
    }
    return [own | number._asdict() for number in flat(one.measured)]


# ---- measured numbers, words, lists and tables of them, and names within names, as rows of a table and back ----------


class Number(NamedTuple):
    """A measured number: the names that lead to it, and its place in a list or a table."""

    quantity: str
    i: int | None
    j: int | None
    value: float | None
    kind: str
    text: str | None


#: kind -> what was measured
READ: dict[str, Callable[[Number], Any]] = {
    "int": lambda number: int(cast(float, number.value)),
    "float": lambda number: number.value,
    "bool": lambda number: bool(number.value),
    "text": lambda number: number.text,
    "none": lambda _: None,
    "no names": lambda _: {},
    "no items": lambda _: [],
}


def flat(values: Mapping[str, Any], under: str = "") -> Iterator[Number]:
    """A row for each number of names within names, and of lists or tables of them. Raises InputError for what no table
    holds."""
    if not values:
        yield _number(under, None, None, values)
    for name, value in values.items():
        if NESTED in name:
            raise InputError(f"measured: {name!r} has a {NESTED} in it, which separates names, call it otherwise")
        path = under + NESTED + name
        if isinstance(value, dict):
            yield from flat(value, path)
        elif isinstance(value, list) and value:
            for i, row in enumerate(value):
                cells = enumerate(row) if isinstance(row, list) and row else [(None, row)]
                yield from (_number(path, i, j, x) for j, x in cells)
        else:
            yield _number(path, None, None, value)


def _number(path: str, i: int | None, j: int | None, x: Any) -> Number:
    if isinstance(x, dict | list) and x:
        raise InputError(f"measured: {path!r} is composed too deeply for a table, use lists or tables of numbers")
    kind = next((kind for of, kind in KINDS.items() if isinstance(x, of)), None)  # numpy's floats are floats, too
    if kind is None:
        raise InputError(f"measured: {path!r} is a {type(x).__name__}, use numbers, words, lists and names")
    # a bool is an int
    return Number(path, i, j, float(x) if isinstance(x, int | float) else None, kind, x if isinstance(x, str) else None)


def nested(numbers: Iterable[Number]) -> dict[str, Any]:
    """What ``flat`` was given."""
    found: dict[str, Any] = {}
    for number in numbers:
        if not number.quantity:
            return {}
        x = READ[number.kind](number)
        *outer, name = number.quantity.removeprefix(NESTED).split(NESTED)
        place = found
        for step in outer:
            place = place.setdefault(step, {})
        if number.i is None:
            place[name] = x
        elif number.j:
            place[name][number.i].append(x)
        else:
            place.setdefault(name, []).append(x if number.j is None else [x])
    return found
