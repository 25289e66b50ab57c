"""Text -> tokens -> packed rows -> batches.

Documents are tokenised once into memory-mapped shards. An epoch's text is cut into pieces of at most one row, shuffled,
and packed best fit first into rows of context + 1 tokens that begin with BOS (001, App. "Hyperparameters", after Ding
et al.). Which tokens row i holds follows from the tokens, the context and the seed alone.
"""

import bisect
import collections
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from lib import files, seeds
from lib.config import DataConfig
from lib.errors import DiskFull, InputError
from lib.text import Documents, content_id
from lib.tokenizer import BPETokenizer, ByteTokenizer, train_bpe

SHARD_TOKENS = 1 << 25
TOKENIZE_AT_ONCE = 256  # documents
BUFFER = 1000  # pieces that best fit chooses from
REMEMBERED = 1 << 14  # planned rows that are kept

Progress = Callable[[str, int], None]


def _silent(what: str, count: int) -> None:
    pass


# ---- tokens ----------------------------------------------------------------------------------------------------------


class TokenStore:
    """The tokens of a text, memory-mapped, with the bounds of its documents and where they came from."""

    def __init__(self, path: Path, tokenizer):
        self.path, self.tokenizer = path, tokenizer
        self.meta = json.loads((path / "meta.json").read_text())
        names = [f"{i:05d}" for i in range(self.meta["shards"])]
        dtype = np.dtype(self.meta["dtype"])
        self.shards = [np.memmap(path / f"{name}.bin", dtype=dtype, mode="r") for name in names]
        ends = [np.load(path / f"{name}.ends.npy") for name in names]
        if any(len(shard) != end[-1] for shard, end in zip(self.shards, ends, strict=True)):
            raise ValueError("a shard is not as long as its documents")
        # document i lies in shard[i], from start[i] on, length[i] tokens long
        self.shard = np.concatenate([np.full(len(e), i) for i, e in enumerate(ends)])
        self.start = np.concatenate([np.concatenate([[0], e[:-1]]) for e in ends])
        self.length = np.concatenate([np.diff(e, prepend=0) for e in ends])

    def split(self, val_fraction: float) -> tuple[np.ndarray, np.ndarray]:
        """Indices of the training and the validation documents: every 1/val_fraction-th document is held out."""
        index = np.arange(len(self.length))
        held_out = _held_out(index, val_fraction)
        if not held_out.any():
            held_out[-1:] = True
        return index[~held_out], index[held_out]

    def tokens(self, document: int, start: int, stop: int) -> np.ndarray:
        begin = self.start[document]
        return self.shards[self.shard[document]][begin + start : begin + stop]


def token_store(cfg: DataConfig, cache: Path, progress: Progress = _silent) -> TokenStore:
    """The tokens of cfg's text, read from the cache or made there. An interrupted start continues where it stopped."""
    name = f"{cfg.content}-{_tokenizer_name(cfg)}-{cfg.max_bytes or 'all'}"
    path = cache / name
    if not _on_hub(cfg):
        here = content_id(cfg.source, cfg.subset, cfg.field, cfg.tokenizer)
        if here != cfg.content:
            raise InputError(f"data.content: states {cfg.content}, but {cfg.source} has {here}, leave content empty")
    with files.lock(cache / f".{name}.lock"):
        tokenizer = _tokenizer(cfg, cache, progress)
        try:
            if not (path / "meta.json").exists():
                _tokenize(cfg, tokenizer, path, progress)
            store = TokenStore(path, tokenizer)
            if _on_hub(cfg) and store.meta["source"] != cfg.source:
                made_from = store.meta["source"]
                raise InputError(
                    f"data.content: {cfg.content} was made from {made_from}, not {cfg.source}, leave it empty"
                )
            return store
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, InputError | DiskFull):
                raise
            aside = files.set_aside(path)
            print(f"the tokens in {path.name} cannot be read ({error}): set aside as {aside.name}, made again")
        _tokenize(cfg, tokenizer, path, progress)
        return TokenStore(path, tokenizer)


def _on_hub(cfg: DataConfig) -> bool:
    """A dataset that is not a folder here: its text cannot be hashed, its name has to do."""
    return cfg.source.startswith("hf:") and not Path(cfg.source.removeprefix("hf:")).is_dir()


def _tokenizer_name(cfg: DataConfig) -> str:
    """What decides the tokens beside the text: a trained tokenizer has seen the training documents alone."""
    if cfg.tokenizer.startswith("bpe-"):
        return f"{cfg.tokenizer}-{cfg.val_fraction}"
    return "file" if cfg.tokenizer.endswith(".json") else cfg.tokenizer


def _tokenizer(cfg: DataConfig, cache: Path, progress: Progress):
    if cfg.tokenizer == "bytes":
        return ByteTokenizer()
    if cfg.tokenizer.endswith(".json"):
        return BPETokenizer(Path(cfg.tokenizer))
    path = cache / f"{cfg.content}-{_tokenizer_name(cfg)}-{cfg.max_bytes or 'all'}.json"
    if not path.exists():
        progress(f"training {cfg.tokenizer}", 0)
        with files.replacing(path) as draft:
            train_bpe(_training_documents(cfg, progress), int(cfg.tokenizer.removeprefix("bpe-")), draft)
    return BPETokenizer(path)


def _held_out(index, val_fraction: float):
    """Whether document ``index`` is for validation."""
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


def _tokenize(cfg: DataConfig, tokenizer, path: Path, progress: Progress) -> None:
    """Writes shard after shard; state.json, written after each, says where the next one begins."""
    path.mkdir(parents=True, exist_ok=True)
    dtype = np.uint16 if tokenizer.vocab_size <= 2**16 else np.uint32
    state = {"shards": 0, "documents": 0, "bytes": 0, "tokens": 0, "cursor": None}
    if (path / "state.json").exists():
        state = json.loads((path / "state.json").read_text())
    documents = Documents(cfg.source, cfg.subset, cfg.field, state["cursor"])
    parts: list[np.ndarray] = []
    texts: list[str] = []
    size = 0

    def flush():
        nonlocal parts, size
        name = f"{state['shards']:05d}"
        with files.replacing(path / f"{name}.bin") as draft:
            np.concatenate(parts).astype(dtype).tofile(draft)
        with files.replacing(path / f"{name}.ends.npy") as draft, draft.open("wb") as file:
            np.save(file, np.cumsum([len(part) for part in parts]))
        state.update(shards=state["shards"] + 1, documents=state["documents"] + len(parts), cursor=documents.cursor())
        state["tokens"] += size
        files.write_json(path / "state.json", state)
        parts, size = [], 0

    def encode():
        nonlocal size
        encoded = tokenizer.encode_batch(texts)
        state["bytes"] += sum(len(text.encode()) for text in texts)
        parts.extend(encoded)
        size += sum(len(part) for part in encoded)
        progress("tokenising", sum(len(text) for text in texts))
        texts.clear()

    for document in _bounded(cfg, documents, state["bytes"]):
        texts.append(document)
        if len(texts) == TOKENIZE_AT_ONCE:
            encode()
        if size >= SHARD_TOKENS:
            flush()
    encode()
    if parts:
        flush()
    if not state["tokens"]:
        raise InputError(f"data.source: {cfg.source} holds no text, give a file with at least two documents")
    if state["documents"] < 2:
        raise InputError(
            f"data.source: {cfg.source} is a single document and cannot be split for validation, "
            "separate documents by blank lines or lines <|endoftext|>"
        )
    provenance = {
        "source": cfg.source if _on_hub(cfg) else Path(cfg.source).name,
        **cfg.model_dump(include={"subset", "content", "tokenizer"}),
    }
    files.write_json(path / "meta.json", {
        **{name: state[name] for name in ("shards", "documents", "bytes", "tokens")},
        "dtype": np.dtype(dtype).name,
        "vocab_size": tokenizer.vocab_size,
        **provenance,
    })  # fmt: skip


# ---- rows ------------------------------------------------------------------------------------------------------------

Piece = tuple[int, int, int]  # document, start, stop: tokens of one document


class Packer:
    """Rows of context + 1 tokens, each beginning with BOS, none of it padding.

    Every piece is preceded by BOS. The buffer is refilled after each piece that is taken; the largest that fits goes
    into the row, and where none fits the shortest is cropped and its rest goes back into the buffer. The buffer holds
    BUFFER pieces, of a small text a sixteenth of an epoch: what fits badly gathers there, and must not wait for epochs.
    """

    def __init__(self, lengths: np.ndarray, context: int, seed: int, purpose: str = "order"):
        self.context, self.seed, self.purpose = context, seed, purpose
        # a document longer than a row is cut into pieces that fill rows exactly, and a rest
        counts = -(-lengths // context)
        self.document = np.repeat(np.arange(len(lengths)), counts)
        first = np.concatenate([[0], np.cumsum(counts)[:-1]])
        self.start = (np.arange(len(self.document)) - np.repeat(first, counts)) * context
        self.stop = np.minimum(self.start + context, lengths[self.document])
        self.buffer_size = min(BUFFER, max(1, len(self.document) // 16))
        self._restart()

    def _restart(self) -> None:
        self._next = 0  # the row that would be planned next
        self._recent: collections.deque[list[Piece]] = collections.deque(maxlen=REMEMBERED)
        self._arrivals = self._pieces()
        self._arrived = 0
        self._buffer: list[tuple[int, int, Piece]] = []  # (length, -arrival, piece): the oldest of a length comes last

    def _pieces(self) -> Iterator[Piece]:
        epoch = 0
        while True:
            for i in seeds.stream(self.purpose, self.seed, epoch).permutation(len(self.document)):
                yield int(self.document[i]), int(self.start[i]), int(self.stop[i])
            epoch += 1

    def _put(self, piece: Piece) -> None:
        self._arrived += 1
        bisect.insort(self._buffer, (piece[2] - piece[1], -self._arrived, piece))

    def row(self, index: int) -> list[Piece]:
        """The pieces of row ``index``. Rows are planned in order; for one that is long past planning starts anew."""
        if index < self._next - len(self._recent):
            self._restart()
        while self._next <= index:
            self._recent.append(self._next_row())
            self._next += 1
        return self._recent[index - self._next]

    def _next_row(self) -> list[Piece]:
        row, room = [], self.context + 1
        while room > 1:
            while len(self._buffer) < self.buffer_size:
                self._put(next(self._arrivals))
            fitting = bisect.bisect_right(self._buffer, (room - 1, 1))
            if fitting:
                _, _, piece = self._buffer.pop(fitting - 1)
            else:
                _, _, (document, start, stop) = self._buffer.pop(0)
                piece = (document, start, start + room - 1)
                self._put((document, start + room - 1, stop))
            row.append(piece)
            room -= 1 + piece[2] - piece[1]
        return row


class Rows:
    """Packed rows of one split of a text; ``rows[i]`` is the same on every machine, in any order of asking."""

    def __init__(self, store: TokenStore, documents: np.ndarray, context: int, seed: int, purpose: str = "order"):
        self.store, self.context = store, context
        self.documents = documents[store.length[documents] > 0]
        lengths = store.length[self.documents]
        #: rows in one epoch, every piece counted with its BOS
        self.per_epoch = int((lengths.sum() + (-(-lengths // context)).sum()) // (context + 1))
        self.packer = Packer(lengths, context, seed, purpose)

    def __getitem__(self, index: int) -> np.ndarray:
        row = np.full(self.context + 1, self.store.tokenizer.bos, dtype=np.int64)
        at = 0
        for document, start, stop in self.packer.row(index):
            row[at + 1 : at + 1 + stop - start] = self.store.tokens(self.documents[document], start, stop)
            at += 1 + stop - start
        # where a single place is left over it stays a BOS, as after every piece: its target is "this ends here"
        return row

    def batch(self, start: int, stop: int) -> np.ndarray:
        """Rows start .. stop - 1 as [B, context + 1]."""
        return np.stack([self[index] for index in range(start, stop)])


def training_rows(cfg: DataConfig, store: TokenStore, seed: int) -> Rows:
    train, _ = store.split(cfg.val_fraction)
    if store.length[train].sum() < cfg.context:
        raise InputError(
            f"data.source: {cfg.source} has {store.length[train].sum()} tokens for training, "
            f"less than one row of {cfg.context}, give more text or lower context"
        )
    return Rows(store, train, cfg.context, seed)


def validation_batch(cfg: DataConfig, store: TokenStore) -> np.ndarray:
    """The fixed held-out rows [val_rows, context + 1]; fewer where the held-out text is shorter."""
    _, val = store.split(cfg.val_fraction)
    rows = Rows(store, val, cfg.context, seed=0, purpose="validation") if store.length[val].any() else None
    if rows is None or not rows.per_epoch:
        raise InputError(
            f"data.val_fraction: the {store.length[val].sum()} held-out tokens do not fill one row of {cfg.context}, "
            "raise it, give more text or lower context"
        )
    return rows.batch(0, min(cfg.val_rows, rows.per_epoch))


def ngram_entropy(store: TokenStore, documents: np.ndarray, n: int) -> float:
    """Empirical entropy of a token given the n - 1 before it, in nats: n = 1 unigram, n = 2 bigram.

    What a model reaches that knows nothing but these counts. Raises InputError where the table of counts is too large
    to be an estimate of anything.
    """
    size = store.tokenizer.vocab_size
    if size**n > 2**24:
        raise InputError(f"n: {n}-grams of {size} tokens are too many to count, use n=1 or a smaller vocabulary")
    counts, waiting, held = np.zeros(size**n), [], 0
    for position, document in enumerate(documents, start=1):
        tokens = store.tokens(document, 0, store.length[document]).astype(np.int64)
        waiting.append(sum(tokens[i : max(0, len(tokens) - n + 1) + i] * size ** (n - 1 - i) for i in range(n)))
        held += len(waiting[-1])
        if position == len(documents) or held > size**n:
            # counting costs a pass over all n-grams there could be, so that many documents are counted at once
            counts += np.bincount(np.concatenate(waiting), minlength=size**n)
            waiting, held = [], 0
    counts = counts.reshape(-1, size)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return float(-(counts * np.log(np.where(share > 0, share, 1))).sum() / counts.sum())
