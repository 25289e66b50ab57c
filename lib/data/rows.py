"""Tokens -> packed rows -> batches.

An epoch's text is cut into pieces of at most one row, shuffled, and packed best fit first into rows of context + 1
tokens that begin with BOS (001, App. "Hyperparameters", after Ding et al.). Which tokens row i holds follows from the
tokens, the context and the seed alone.
"""

import bisect
import collections
import itertools
import math
from collections.abc import Iterator

import numpy as np

from lib.base import seeds
from lib.base.errors import InputError
from lib.config import DataConfig
from lib.data.tokens import TokenStore as TokenStore
from lib.data.tokens import token_store as token_store

BUFFER = 1000  # pieces that best fit chooses from
BITS = 48  # for the number of a piece's arrival
REMEMBERED = 1 << 14  # planned rows that are kept

Piece = tuple[int, int, int]  # document, start, stop: tokens of one document


class Packer:
    """Plans rows of context + 1 tokens, each beginning with BOS, none of it padding.

    Every piece is preceded by BOS. A row takes pieces from a buffer, which is refilled after each: the largest that
    fits; where none fits, the shortest is cropped, and its rest goes back into the buffer. The buffer holds BUFFER
    pieces, but no more than a sixteenth of an epoch: pieces that fit badly gather there, and must not wait for epochs.
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
        self._next = self._arrived = 0  # the row that would be planned next, and how many pieces came
        self._recent: collections.deque[list[Piece]] = collections.deque(maxlen=REMEMBERED)
        self._arrivals = self._pieces()
        self._buffer: list[int] = []  # (length << BITS) - arrival, sorted: the oldest of a length comes last
        self._waiting: dict[int, Piece] = {}  # the piece behind each of these

    def _pieces(self) -> Iterator[Piece]:
        for epoch in itertools.count():
            order = seeds.stream(self.purpose, self.seed, epoch).permutation(len(self.document))
            for first in range(0, len(order), 4096):
                some = order[first : first + 4096]
                yield from zip(*(of[some].tolist() for of in (self.document, self.start, self.stop)), strict=True)

    def _put(self, piece: Piece) -> None:
        self._arrived += 1
        key = (piece[2] - piece[1] << BITS) - self._arrived
        bisect.insort(self._buffer, key)
        self._waiting[key] = piece

    def row(self, index: int) -> list[Piece]:
        """The pieces of row ``index``. Rows are planned in order; for one no longer kept, from the first on."""
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
            fitting = bisect.bisect_left(self._buffer, room - 1 << BITS)
            piece = self._waiting.pop(self._buffer.pop(fitting - 1 if fitting else 0))
            if not fitting:
                document, start, stop = piece
                piece = (document, start, start + room - 1)
                self._put((document, start + room - 1, stop))
            row.append(piece)
            room -= 1 + piece[2] - piece[1]
        return row


class Rows:
    """Packed rows of one split of a text; a row is the same on every machine, in any order of asking."""

    def __init__(self, store: TokenStore, documents: np.ndarray, context: int, seed: int, purpose: str = "order"):
        self.store, self.context = store, context
        self.documents = documents[store.length[documents] > 0]
        lengths = store.length[self.documents]
        #: rows in one epoch, every piece counted with its BOS
        self.per_epoch = int((lengths.sum() + (-(-lengths // context)).sum()) // (context + 1))
        self.packer = Packer(lengths, context, seed, purpose)

    def batch(self, start: int, stop: int) -> np.ndarray:
        """Rows start .. stop - 1 as [B, context + 1]."""
        # a place that is left over stays a BOS, as after every piece: its target is "this ends here"
        rows = np.full((stop - start, self.context + 1), self.store.tokenizer.bos, dtype=np.int64)
        for index, row in enumerate(rows, start):
            at = 1
            for document, first, last in self.packer.row(index):
                row[at : at + last - first] = self.store.tokens(self.documents.item(document), first, last)
                at += 1 + last - first
        return rows


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
    rows, count = _validation_rows(cfg, store)
    return rows.batch(0, count)


def added_spaces(cfg: DataConfig, store: TokenStore) -> int:
    """How many targets of ``validation_batch`` begin with a space that the tokenizer put before a document."""
    if not store.spaced.any():
        return 0
    rows, count = _validation_rows(cfg, store)
    begun = [document for row in range(count) for document, start, _ in rows.packer.row(row) if start == 0]
    return int(store.spaced[rows.documents[begun]].sum())


def _validation_rows(cfg: DataConfig, store: TokenStore) -> tuple[Rows, int]:
    _, val = store.split(cfg.val_fraction)
    rows = Rows(store, val, cfg.context, seed=0, purpose="validation") if store.length[val].any() else None
    if rows is None or not rows.per_epoch:
        raise InputError(
            f"data.val_fraction: the {store.length[val].sum()} held-out tokens do not fill one row of {cfg.context}, "
            "raise it, give more text or lower context"
        )
    return rows, min(cfg.val_rows, rows.per_epoch)


def check_ngrams(n: int, vocab_size: int) -> None:
    """Raises InputError where ``ngram_entropy`` could not count."""
    if n < 1 or n * math.log2(vocab_size) > 24:
        raise InputError(
            f"limit_ngram: {n}-grams of {vocab_size} tokens are none or too many, use 1 or a smaller vocabulary"
        )


def ngram_entropy(store: TokenStore, documents: np.ndarray, n: int) -> float:
    """Empirical entropy of a token given the n - 1 before it, in nats: n = 1 unigram, n = 2 bigram.

    A model that knows these counts alone reaches this loss. Raises InputError where the table of counts is too large to
    be an estimate of anything.
    """
    size = store.tokenizer.vocab_size
    check_ngrams(n, size)
    counts = np.zeros(size**n)
    for document in documents:
        tokens = store.tokens(document, 0, store.length[document]).astype(np.int64)
        found = max(0, len(tokens) - n + 1)  # n-grams in the document, each as a number of n digits
        grams = sum(tokens[i : i + found] * size ** (n - 1 - i) for i in range(n))
        np.add.at(counts, grams, 1.0)  # as a float numpy is fast
    counts = counts.reshape(-1, size)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return float(-(counts * np.log(np.where(share > 0, share, 1))).sum() / counts.sum())
