"""Text -> tokens: documents are tokenised once, into one memory-mapped file.

A text has a folder, which is made under another name and renamed when it is whole:

    tokens.bin      the tokens of all documents, one after the other
    ends.npy        where each document ends, in tokens
    spaced.npy      where the tokenizer puts a space before documents: which of them
    tokenizer.json  unless a token is a byte
    meta.json       what the text is, how much of it there is, and checksums

Those of the small files are compared whenever a text is opened. That of the tokens goes into the provenance of a run.
"""

import functools
import itertools
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lib.base import files
from lib.base.errors import InputError
from lib.config import DataConfig, ratio
from lib.text import sources
from lib.text.tokenizer import BPETokenizer, ByteTokenizer, Tokenizer, train_bpe

TOKENIZE_AT_ONCE, CHARACTERS_AT_ONCE = 256, 1 << 22  # documents of at least so many characters are a batch

Progress = Callable[[str, int], None]


# ---- tokens ----------------------------------------------------------------------------------------------------------


class TokenStore:
    """The tokens of a text, memory-mapped, with the bounds of its documents and where they came from. Document i begins
    at token ``start[i]`` and has ``length[i]`` tokens.

    Raises OSError, ValueError, KeyError or TypeError where the folder does not hold what was written."""

    def __init__(self, path: Path):
        self.path = path
        self.meta = files.read_checked(path / "meta.json")
        for name, digest in self.meta["sha256"].items():
            if files.digest(path / name) != digest:
                raise ValueError(f"{name} has changed since it was written")
        ends = np.load(path / "ends.npy")
        self._tokens = np.asarray(np.memmap(path / "tokens.bin", dtype=self.meta["dtype"], mode="r"))
        if [len(ends), ends[-1], len(self._tokens)] != [self.meta[name] for name in ("documents", "tokens", "tokens")]:
            raise ValueError("tokens.bin is not as long as it was")
        self.length = np.diff(ends, prepend=0)
        self.start = ends - self.length
        spaced = path / "spaced.npy"
        #: whether a document's tokens begin with a space that is none of its text
        self.spaced = np.load(spaced) if spaced.exists() else np.zeros(len(ends), dtype=bool)
        own = path / "tokenizer.json"
        self.tokenizer: Tokenizer = BPETokenizer(own) if own.exists() else ByteTokenizer()

    def split(self, val_fraction: float) -> tuple[np.ndarray, np.ndarray]:
        """Indices of the training and the validation documents: a share of val_fraction is held out."""
        index = np.arange(len(self.length))
        held_out = _held_out(index, val_fraction)
        if not held_out.any():
            held_out[-1:] = True
        return index[~held_out], index[held_out]

    def tokens(self, document: int, start: int, stop: int) -> np.ndarray:
        """Tokens start .. stop - 1 of a document."""
        first = self.start.item(document)
        return self._tokens[first + start : first + stop]


def token_store(cfg: DataConfig, cache: Path, progress: Progress = lambda what, count: None) -> TokenStore:
    """The tokens of cfg's text, read from the cache or made there. Where another process is making them, waits for that
    one; a start that broke off begins again."""
    cfg, on_hub = cfg.known(), sources.on_hub(cfg.source)
    if not on_hub:
        here = sources.content_here(cfg.source, cfg.subset, cfg.field, cfg.tokenizer)
        if here != cfg.content:
            raise InputError(
                f"data.content: states {cfg.content}, but {cfg.source} has {here}, install the version that is pinned "
                "(make env) of a package, or leave content empty"
            )
    path = cache / f"{cfg.content}-{_tokenizer_name(cfg)}-{cfg.max_bytes or 'all'}.tokens"
    with files.lock(cache / f".{path.name}.lock", stays=False):
        store = None
        if path.exists():
            with files.set_aside_if_unreadable(path, "tokens", "made"):
                store = TokenStore(path)
        if store is None:
            _make(cfg, path, progress)
            store = TokenStore(path)
    source = store.meta["source"]
    if on_hub and source != cfg.source:
        raise InputError(f"data.content: {cfg.content} was made from {source}, not {cfg.source}, leave it empty")
    return store


# ---- the tokenizer ---------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=8)
def tokenizer_of(cfg: DataConfig, cache: Path) -> Tokenizer:
    """The tokenizer of cfg's text; bytes are known without reading it."""
    return ByteTokenizer() if cfg.tokenizer == "bytes" else token_store(cfg, cache).tokenizer


def _tokenizer_name(cfg: DataConfig) -> str:
    """The tokenizer's part of a store's name. A trained tokenizer depends on which documents are for training."""
    if cfg.tokenizer.startswith("bpe-"):
        share = ratio(cfg.val_fraction)
        return f"{cfg.tokenizer}-{cfg.val_fraction if share.numerator == 1 else share}".replace("/", "of")
    return "file" if cfg.tokenizer.endswith(".json") else cfg.tokenizer


def _make_tokenizer(cfg: DataConfig, path: Path, progress: Progress) -> Tokenizer:
    """The tokenizer that cfg names, written to ``path`` unless a token is a byte."""
    if cfg.tokenizer == "bytes":
        return ByteTokenizer()
    if cfg.tokenizer.endswith(".json"):
        shutil.copyfile(cfg.tokenizer, path)
        return BPETokenizer(Path(cfg.tokenizer))
    progress(f"training {cfg.tokenizer}", 0)
    train_bpe(_training_documents(cfg, progress), int(cfg.tokenizer.removeprefix("bpe-")), path)
    return BPETokenizer(path)


def _held_out(index: Any, val_fraction: float) -> Any:
    """Whether document ``index``, or each of an array of them, is for validation: as evenly as they can be, so that of
    any number of documents the share is right to one of them. Of 1/n it is every n-th."""
    of, every = ratio(val_fraction).as_integer_ratio()
    first = (every - 1) // (2 * of)  # half of a distance, for a document in the middle of each
    return (index + first) * of % every >= every - of


def _training_documents(cfg: DataConfig, progress: Progress) -> Iterator[str]:
    """The documents that ``TokenStore.split`` will train on: of a text too short to hold one out, all but the last."""
    some_held_out = False
    for index, (document, following) in enumerate(itertools.pairwise(itertools.chain(_documents(cfg), [None]))):
        progress("reading text for the tokenizer", len(document or ""))
        held_out = _held_out(index, cfg.val_fraction)
        some_held_out |= held_out
        if document is not None and not held_out and (some_held_out or following is not None):
            yield document


def _documents(cfg: DataConfig) -> Iterator[str]:
    """The documents of cfg's text up to its ``max_bytes``."""
    read = 0
    for document in sources.documents(cfg.source, cfg.subset, cfg.field):
        if cfg.max_bytes is not None and read >= cfg.max_bytes:
            return
        read += len(document.encode())
        yield document


# ---- tokenising ------------------------------------------------------------------------------------------------------


def _make(cfg: DataConfig, path: Path, progress: Progress) -> None:
    """Makes the folder of a text's tokens. Raises InputError where the text cannot be split for validation."""
    for draft in path.parent.glob(f".{path.name}.*.tmp"):
        files.remove(draft)  # of a process that was killed while it wrote
    with files.replacing(path) as draft:
        draft.mkdir()
        meta = _write(cfg, _make_tokenizer(cfg, draft / "tokenizer.json", progress), draft, progress)
        sums = {file.name: files.digest(file) for file in draft.iterdir() if file.name != "tokens.bin"}
        files.write_checked(draft / "meta.json", {**meta, "sha256": sums})


def _write(cfg: DataConfig, tokenizer: Tokenizer, folder: Path, progress: Progress) -> dict[str, Any]:
    """Writes tokens and ends of documents; returns what meta.json says of them."""
    dtype = np.dtype(np.uint16 if tokenizer.vocab_size <= 2**16 else np.uint32)
    lengths: list[int] = []
    spaced: list[bool] = []
    size, checksum = 0, 0
    with (folder / "tokens.bin").open("wb") as file:
        for texts in _in_batches(_documents(cfg)):
            encoded = tokenizer.encode_batch(texts)
            raw = np.concatenate(encoded).astype(dtype).tobytes()
            file.write(raw)
            checksum = zlib.crc32(raw, checksum)
            numbers = itertools.count(len(lengths))
            spaced += map(functools.partial(_begins_with_a_space, cfg, tokenizer), numbers, texts, encoded)
            lengths += map(len, encoded)
            read = sum(len(text.encode()) for text in texts)
            size += read
            progress("tokenising", read)
    ends = np.cumsum(np.array(lengths, dtype=np.int64))
    if len(ends) < 2:
        raise InputError(
            f"data.source: {cfg.source} holds {len(ends) or 'no'} document, give two at least, one of them for "
            "validation, separated by blank lines or lines <|endoftext|>"
        )
    np.save(folder / "ends.npy", ends)
    if any(spaced):
        np.save(folder / "spaced.npy", np.array(spaced))
    return {
        "documents": len(ends),
        "bytes": size,
        "tokens": int(ends[-1]),
        "crc32": checksum,
        "dtype": dtype.name,
        "vocab_size": tokenizer.vocab_size,
        "source": cfg.source if sources.on_hub(cfg.source) else Path(cfg.source).name,
        **cfg.model_dump(include={"subset", "content", "tokenizer"}),
        "revision": sources.revision(cfg.source),
    }


def _begins_with_a_space(cfg: DataConfig, tokenizer: Tokenizer, number: int, text: str, tokens: np.ndarray) -> bool:
    """Whether the tokens hold one more space than the document. Raises InputError unless they hold all else of it, and
    nothing more."""
    if isinstance(tokenizer, ByteTokenizer):
        return False
    held, raw = tokenizer.text(tokens), text.encode()
    if held not in (raw, b" " + raw):
        raise InputError(
            f"data.tokenizer: {cfg.tokenizer} does not keep the text, of the {len(raw)} bytes of document {number} its "
            f"tokens hold {len(held)} or others, give one that loses and changes nothing"
        )
    return held != raw


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
