"""Text -> tokens: documents are tokenised once, into memory-mapped shards.

A large text has parts. The tokens of a part follow from its text and the tokenizer alone, so that several processes,
and machines that see the same folder, each make some of the parts.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, MutableSequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lib.base import files, processes
from lib.base.errors import DiskFull, InputError
from lib.config import DataConfig
from lib.data import shards
from lib.text.sources import Documents, content_id
from lib.text.sources import parts as text_parts
from lib.text.tokenizer import BPETokenizer, ByteTokenizer, Tokenizer, train_bpe

SHARD_TOKENS = 1 << 25
TOKENIZE_AT_ONCE, CHARACTERS_AT_ONCE = 256, 1 << 22  # documents of at least so many characters are a batch
ALONE = 1 << 26  # characters that a process tokenises before it starts others

Progress = Callable[[str, int], None]
Cursor = dict[str, Any]  # of a source
Encoded = tuple[np.ndarray, np.ndarray, int]  # tokens of some texts, how many each has, and their bytes


def _silent(what: str, count: int) -> None:
    pass


# ---- tokens ----------------------------------------------------------------------------------------------------------


class TokenStore:
    """The tokens of a text, memory-mapped, with the bounds of its documents and where they came from.

    ``shards`` are the arrays of all parts, one part after the other; a part begins with a shard of its own. Document i
    begins at token ``start[i]``, counted as if every shard before it were full, and has ``length[i]`` tokens.
    """

    def __init__(self, path: Path, tokenizer: Tokenizer):
        self.path, self.tokenizer = path, tokenizer
        self.meta = files.read_checked(path / "meta.json")
        self._size = self.meta["shard_tokens"]
        places: list[tuple[Path, int]] = []
        starts, lengths = [], []
        for part in self.meta["parts"]:
            folder = path / part["folder"]
            ends = shards.ends(folder, part["shards"])
            if [len(ends), ends[-1] if len(ends) else 0] != [part["documents"], part["tokens"]]:
                raise ValueError("a shard is not as long as its documents")
            lengths.append(np.diff(ends, prepend=0))
            starts.append(len(places) * self._size + ends - lengths[-1])
            places += [(folder, number) for number in range(len(part["shards"]))]
        self.shards = shards.Mapped(places, np.dtype(self.meta["dtype"]))
        self.start, self.length = np.concatenate(starts), np.concatenate(lengths)

    def split(self, val_fraction: float) -> tuple[np.ndarray, np.ndarray]:
        """Indices of the training and the validation documents: every 1/val_fraction-th document is held out."""
        index = np.arange(len(self.length))
        held_out = _held_out(index, val_fraction)
        if not held_out.any():
            held_out[-1:] = True
        return index[~held_out], index[held_out]

    def tokens(self, document: int, start: int, stop: int) -> np.ndarray:
        """Tokens start .. stop - 1 of a document, also where they lie in several shards."""
        shard, at = divmod(self.start.item(document) + start, self._size)
        if start < stop <= start + self._size - at:
            return self.shards[shard][at : at + stop - start]
        if stop <= start:
            return np.zeros(0, self.shards.dtype)
        border = start + self._size - at
        return np.concatenate([self.shards[shard][at:], self.tokens(document, border, stop)])


def token_store(cfg: DataConfig, cache: Path, progress: Progress = _silent, jobs: int | None = None) -> TokenStore:
    """The tokens of cfg's text, read from the cache or made there. An interrupted start continues where it stopped.

    ``jobs`` processes make them (one a core when None); whoever asks for a dataset meanwhile, on any machine that sees
    the cache, makes parts of it too. Shards whose checksums do not hold are named, set aside and made again.
    """
    cfg = cfg.known()
    name = f"{cfg.content}-{_tokenizer_name(cfg)}-{cfg.max_bytes or 'all'}"
    path = cache / name
    if not _on_hub(cfg):
        here = content_id(cfg.source, cfg.subset, cfg.field, cfg.tokenizer)
        if here != cfg.content:
            raise InputError(f"data.content: states {cfg.content}, but {cfg.source} has {here}, leave content empty")
    jobs = processes.spare() if jobs is None else processes.processes(jobs)
    with files.lock(cache / f".{name}.lock"):
        text = _Text(cfg, _tokenizer(cfg, cache, progress), path, SHARD_TOKENS)
        store = _opened(text)
        parts = text.parts() if store is None else []
    while store is None:
        _tokenize(text, parts, progress, jobs)
        with files.lock(cache / f".{name}.lock"):
            if not (path / "meta.json").exists():
                _finish(text, parts)
            store = _opened(text)
    return store


def _opened(text: "_Text") -> TokenStore | None:
    """The finished store, its damaged shards made again; None where there is no store, or it cannot be read."""
    path, cfg = text.path, text.cfg
    if not (path / "meta.json").exists():
        return None
    try:
        meta = files.read_checked(path / "meta.json")
        if _on_hub(cfg) and meta["source"] != cfg.source:
            raise InputError(
                f"data.content: {cfg.content} was made from {meta['source']}, not {cfg.source}, leave it empty"
            )
        if "shard_tokens" not in meta:
            raise ValueError("an earlier layout")
        _mend(text, meta)
        return TokenStore(path, text.tokenizer)
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError | DiskFull):
            raise
        aside = files.set_aside(path)
        print(f"the tokens in {path.name} cannot be read ({error}): set aside as {aside.name}, made again")
        return None


def _mend(text: "_Text", meta: dict[str, Any]) -> None:
    """Compares every shard with its checksums and makes those again that differ."""
    for index, part in enumerate(meta["parts"]):
        folder, records = text.path / part["folder"], part["shards"]
        for number in shards.damaged(folder, records, processes.spare()):
            batches = functools.partial(_batches, text, Part(folder, index, len(meta["parts"]), meta["revision"]))
            aside = shards.mend(folder, meta["shard_tokens"], number, records[number], batches)
            how = f"damaged: set aside as {' and '.join(aside)}" if aside else "missing"
            print(f"shard {number:05d} in {folder.relative_to(text.path.parent)} was {how}, made again")


def _on_hub(cfg: DataConfig) -> bool:
    """A dataset that is not a folder here: its text cannot be hashed, its name has to do."""
    return cfg.source.startswith("hf:") and not Path(cfg.source.removeprefix("hf:")).is_dir()


def _tokenizer_name(cfg: DataConfig) -> str:
    """The tokenizer's part of a store's name. A trained tokenizer depends on which documents are for training."""
    if cfg.tokenizer.startswith("bpe-"):
        return f"{cfg.tokenizer}-{cfg.val_fraction}"
    return "file" if cfg.tokenizer.endswith(".json") else cfg.tokenizer


def _tokenizer(cfg: DataConfig, cache: Path, progress: Progress) -> Tokenizer:
    if cfg.tokenizer == "bytes":
        return ByteTokenizer()
    if cfg.tokenizer.endswith(".json"):
        return BPETokenizer(Path(cfg.tokenizer))
    path = cache / f"{cfg.content}-{_tokenizer_name(cfg)}-{cfg.max_bytes or 'all'}.json"
    checksum = path.with_suffix(".sha256")
    if path.exists() and checksum.exists() and files.digest(path).encode() != checksum.read_bytes():
        aside = files.set_aside(path)
        print(f"the tokenizer {path.name} has changed since it was trained: set aside as {aside.name}, trained again")
    if not path.exists():
        progress(f"training {cfg.tokenizer}", 0)
        with files.replacing(path) as draft:
            train_bpe(_training_documents(cfg, progress), int(cfg.tokenizer.removeprefix("bpe-")), draft)
            with files.replacing(checksum) as beside:
                beside.write_bytes(files.digest(draft).encode())
    return BPETokenizer(path)


def _held_out(index: Any, val_fraction: float) -> Any:
    """Whether document ``index``, or each of an array of them, is for validation."""
    every = round(1 / val_fraction)
    return index % every == every // 2


def _training_documents(cfg: DataConfig, progress: Progress) -> Iterator[str]:
    """The documents that ``TokenStore.split`` will train on: of a text too short to hold one out, all but the last."""
    waiting, some_held_out = None, False
    for index, document in enumerate(_bounded(cfg, Documents(cfg.source, cfg.subset, cfg.field), 0)):
        progress("reading text for the tokenizer", len(document))
        if _held_out(index, cfg.val_fraction):
            some_held_out = True
            continue
        if waiting is not None:
            yield waiting
        waiting = document
    if some_held_out and waiting is not None:
        yield waiting


def _bounded(cfg: DataConfig, documents: Documents, total: int) -> Iterator[str]:
    for document in documents:
        if cfg.max_bytes is not None and total >= cfg.max_bytes:
            return
        total += len(document.encode())
        yield document


# ---- tokenising ------------------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """One of ``count`` parts of a text, the folder of its shards, and the revision of its dataset."""

    folder: Path
    index: int = 0  # type: ignore[assignment]  # a tuple has methods of these names, which nobody calls
    count: int = 1  # type: ignore[assignment]
    revision: str | None = None

    @property
    def lock(self) -> Path:
        return self.folder.parent / f".{self.folder.name}.part.lock"


@dataclasses.dataclass(frozen=True)
class _Text:
    """A text that becomes tokens in the folder ``path``; it may be handed to other processes."""

    cfg: DataConfig
    tokenizer: ByteTokenizer | BPETokenizer
    path: Path
    shard_tokens: int

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.uint16 if self.tokenizer.vocab_size <= 2**16 else np.uint32)

    def parts(self) -> list[Part]:
        """What can be made at the same time: a dataset has up to MAX_PARTS parts; any other text, and one that is cut
        at max_bytes, is a single one. The first who asks notes them, so that all processes mean the same parts."""
        if not self.cfg.source.startswith("hf:") or self.cfg.max_bytes is not None:
            return [Part(self.path)]
        note = self.path / "parts.json"
        if not note.exists():
            count, revision = text_parts(self.cfg.source, self.cfg.subset)
            files.write_checked(note, {"parts": count, "revision": revision})
        try:
            noted = files.read_checked(note)
        except ValueError as error:
            raise InputError(f"data.source: {note} is damaged ({error}), remove {self.path} to read it anew") from None
        count, revision = noted["parts"], noted["revision"]
        if count == 1:
            return [Part(self.path, revision=revision)]
        return [Part(self.path / f"{index:05d}", index, count, revision) for index in range(count)]


def _tokenize(text: _Text, parts: list[Part], progress: Progress, jobs: int) -> None:
    """Makes every part that no other process or machine is making, then what those have left unfinished."""
    if len(parts) >= jobs:  # a part for each process; else one process reads, and all encode
        with _Helpers(text, parts, progress, jobs) as helpers:
            for part in parts:
                _make(text, part, helpers.report, wait=False)
            helpers.wait()
    for part in parts:
        _make(text, part, progress, jobs)


def _make(text: _Text, part: Part, progress: Progress, jobs: int = 1, wait: bool = True) -> None:
    """Makes what is missing of a part. Where another process is making it, waits for that one, or without ``wait``
    leaves the part to it."""
    with files.lock(part.lock, wait) as mine:
        if not mine:
            return
        try:
            shards.state(part.folder)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            aside = files.set_aside(part.folder)
            print(f"the tokens in {part.folder.name} cannot be read ({error}): set aside as {aside.name}, made again")
        batches = functools.partial(_batches, text, part, progress=progress, jobs=jobs)
        shards.write(part.folder, text.shard_tokens, batches)


def _batches(
    text: _Text, part: Part, place: dict[str, Any], progress: Progress = _silent, jobs: int = 1
) -> Iterator[shards.Batch]:
    """The documents of a part from a place on, as tokens."""
    cfg = text.cfg
    documents = Documents(cfg.source, cfg.subset, cfg.field, place["cursor"], (part.index, part.count), part.revision)
    bounded = _bounded(cfg, documents, place["bytes"])
    taken = ((texts, documents.cursor()) for texts in _in_batches(bounded))
    for texts, cursor, (tokens, lengths, size) in _encoded(text, taken, jobs):
        progress("tokenising", sum(map(len, texts)))
        yield shards.Batch(tokens, lengths, size, cursor)


def _in_batches(documents: Iterator[str]) -> Iterator[list[str]]:
    texts, characters = [], 0
    for document in documents:
        texts.append(document)
        characters += len(document)
        if len(texts) == TOKENIZE_AT_ONCE or characters >= CHARACTERS_AT_ONCE:
            yield texts
            texts, characters = [], 0
    if texts:
        yield texts


def _encoded(
    text: _Text, taken: Iterator[tuple[list[str], Cursor]], jobs: int
) -> Iterator[tuple[list[str], Cursor, Encoded]]:
    """(texts, cursor, their tokens) for each of ``taken``, in order. This process encodes the first ALONE characters,
    ``jobs`` others the rest."""
    characters = 0
    for texts, cursor in taken:
        yield texts, cursor, _encode(text, texts)
        characters += sum(map(len, texts))
        if jobs > 1 and characters > ALONE and not isinstance(text.tokenizer, ByteTokenizer):
            break
    else:
        return
    with processes.pool(jobs, _begin_encoding, text) as pool:
        waiting: collections.deque[tuple[list[str], Cursor, concurrent.futures.Future[Encoded]]] = collections.deque()
        for texts, cursor in taken:
            waiting.append((texts, cursor, pool.submit(_encode_here, texts)))
            if len(waiting) > 4 * jobs:
                texts, cursor, future = waiting.popleft()
                yield texts, cursor, future.result()
        for texts, cursor, future in waiting:
            yield texts, cursor, future.result()


def _encode(text: _Text, texts: list[str]) -> Encoded:
    """All tokens one after the other, how many each text has, and their bytes."""
    encoded = text.tokenizer.encode_batch(texts)
    tokens = np.concatenate(encoded).astype(text.dtype)
    return tokens, np.array([len(part) for part in encoded]), sum(len(text.encode()) for text in texts)


_text: _Text  # in a process that encodes for another: what it encodes


def _begin_encoding(text: _Text) -> None:
    global _text
    _text = text


def _encode_here(texts: list[str]) -> Encoded:
    return _encode(_text, texts)


class _Helpers(contextlib.ExitStack):
    """``jobs`` - 1 processes that make other parts beside this one. They start once this one has made ALONE characters,
    so that a small text starts none, and end with the block."""

    def __init__(self, text: _Text, parts: list[Part], progress: Progress, jobs: int):
        super().__init__()
        self.arguments, self.progress, self.jobs = (text, parts), progress, jobs
        self.alone, self.reported = 0, 0  # characters, of this process and of the helpers
        self.futures: list[concurrent.futures.Future[None]] = []

    def report(self, what: str, count: int) -> None:
        """Passes on the progress of this process, and what the helpers have made since."""
        self.progress(what, count)
        self.alone += count
        if self.jobs > 1 and self.alone > ALONE and not self.futures:
            self.done = processes.start().Array("q", self.jobs - 1, lock=False)  # characters that each has made
            pool = self.enter_context(processes.pool(self.jobs - 1, _begin_helping, self.done))
            self.futures = [pool.submit(_help, slot, *self.arguments) for slot in range(self.jobs - 1)]
        self._collect()

    def _collect(self) -> None:
        if self.futures:
            now = sum(self.done)
            self.progress("tokenising", now - self.reported)
            self.reported = now
        for future in self.futures:
            if future.done():
                future.result()

    def wait(self) -> None:
        """Returns when the helpers have nothing left to do."""
        while concurrent.futures.wait(self.futures, 0.5).not_done:
            self._collect()
        self._collect()


_done: MutableSequence[int]  # in a helper: the characters that each of them has made


def _begin_helping(done: MutableSequence[int]) -> None:
    global _done
    _done = done


def _help(slot: int, text: _Text, parts: list[Part]) -> None:
    def report(what: str, count: int) -> None:
        _done[slot] += count

    for part in parts:
        _make(text, part, report, wait=False)


def _finish(text: _Text, parts: list[Part]) -> None:
    """Puts the parts together: meta.json, written last, says that they are a store."""
    cfg, written = text.cfg, [shards.state(part.folder) for part in parts]
    sums = {name: sum(part["next"][name] for part in written) for name in ("documents", "bytes", "tokens")}
    if not sums["tokens"]:
        raise InputError(f"data.source: {cfg.source} holds no text, give a file with at least two documents")
    if sums["documents"] < 2:
        raise InputError(
            f"data.source: {cfg.source} is a single document and cannot be split for validation, "
            "separate documents by blank lines or lines <|endoftext|>"
        )
    files.write_checked(
        text.path / "meta.json",
        {
            **sums,
            "shard_tokens": text.shard_tokens,
            "dtype": text.dtype.name,
            "vocab_size": text.tokenizer.vocab_size,
            "source": cfg.source if _on_hub(cfg) else Path(cfg.source).name,
            **cfg.model_dump(include={"subset", "content", "tokenizer"}),
            "revision": parts[0].revision,
            "parts": [
                {
                    "folder": str(part.folder.relative_to(text.path)),
                    "documents": state["next"]["documents"],
                    "tokens": state["next"]["tokens"],
                    "shards": state["shards"],
                }
                for part, state in zip(parts, written, strict=True)
            ],
        },
    )
