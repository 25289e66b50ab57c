"""Packed rows equal a slow reference, are the same for every worker, and train on every token equally often."""

import hashlib
import json
from collections import Counter

import numpy as np
import pytest

from lib.base.errors import InputError
from lib.data import rows as data
from lib.data.rows import Packer, Rows, ngram_entropy, training_rows, validation_batch
from lib.data.tokens import token_store
from lib.text.tokenizer import ByteTokenizer
from tests.runs import text_config as config


def test_the_split_is_by_document(tmp_path, letters):
    store = token_store(config(source=str(letters), val_fraction=0.1), tmp_path)
    train, val = store.split(0.1)
    assert len(val) == 4 and not set(train) & set(val) and len(train) + len(val) == 40
    tokens = training_rows(config(source=str(letters)), store, 0).batch(0, 200).ravel()
    train_letters, (_, val_default) = {chr(t) for t in tokens if t < 250}, store.split(0.05)
    assert train_letters.isdisjoint(chr(65 + i) for i in val_default)


@pytest.mark.parametrize(("tokenizer", "expected"), [("bytes", "6b961d4b7e182a66"), ("bpe-600", "96afc504cecdc862")])
def test_rows_are_those_that_runs_were_trained_on(tmp_path, tokenizer, expected):
    cfg = config(context=128, tokenizer=tokenizer, max_bytes=3_000_000, val_rows=128)
    store = token_store(cfg, tmp_path)
    rows = training_rows(cfg, store, 7).batch(0, 500), validation_batch(cfg, store)
    assert hashlib.sha256(b"".join(part.astype("<i4").tobytes() for part in rows)).hexdigest()[:16] == expected


def slow_packing(lengths, context, seed, rows, buffer_size=data.BUFFER):
    """Best fit and crop by searching a list, written from the description alone."""
    pieces = []
    for document, length in enumerate(lengths):
        pieces += [(document, s, min(s + context, length)) for s in range(0, length, context)]
    buffer_size = min(buffer_size, max(1, len(pieces) // 16))
    epoch, queue, buffer, packed = 0, [], [], []
    for _ in range(rows):
        row, room = [], context + 1
        while room > 1:
            while len(buffer) < buffer_size:
                if not queue:
                    order = data.seeds.stream("order", seed, epoch).permutation(len(pieces))
                    queue, epoch = [pieces[i] for i in order], epoch + 1
                buffer.append(queue.pop(0))  # arrival order
            fitting = [p for p in buffer if p[2] - p[1] + 1 <= room]
            if fitting:
                largest = max(p[2] - p[1] for p in fitting)
                piece = next(p for p in fitting if p[2] - p[1] == largest)  # the oldest of them
                buffer.remove(piece)
            else:
                # of the shortest the one that arrived last comes first in the fast version's order
                shortest = min(p[2] - p[1] for p in buffer)
                source = [p for p in buffer if p[2] - p[1] == shortest][-1]
                buffer.remove(source)
                piece = (source[0], source[1], source[1] + room - 1)
                buffer.append((source[0], source[1] + room - 1, source[2]))
            row.append(piece)
            room -= piece[2] - piece[1] + 1
        packed.append(row)
    return packed


@pytest.mark.parametrize("seed", [3, 4, 5])
@pytest.mark.parametrize(("context", "longest"), [(8, 40), (16, 16), (32, 5), (64, 400)])
def test_packing_equals_a_slow_reference(monkeypatch, context, longest, seed):
    monkeypatch.setattr(data, "BUFFER", 12)
    lengths = np.random.default_rng(context + seed).integers(1, longest + 1, size=30)
    packer = Packer(lengths, context, seed)
    assert [packer.row(i) for i in range(120)] == slow_packing(lengths.tolist(), context, seed, 120, 12)


@pytest.mark.parametrize("context", [8, 33])
def test_rows_hold_the_pieces_that_were_planned(tmp_path, letters, context):
    store = token_store(config(source=str(letters)), tmp_path)
    documents = np.arange(3, 37, 2)
    rows = Rows(store, documents, context, seed=1)
    plan = slow_packing(store.length[documents].tolist(), context, 1, 60)
    for index, pieces in enumerate(plan):
        expected = []
        for document, start, stop in pieces:
            text = letters.read_text().split("\n\n")[documents[document]].encode()
            expected += [ByteTokenizer.bos, *text[start:stop]]
        expected += [ByteTokenizer.bos] * (context + 1 - len(expected))
        assert rows.batch(index, index + 2)[0].tolist() == expected


def test_every_token_is_trained_on_equally_often(letters, tmp_path):
    store = token_store(config(source=str(letters)), tmp_path)
    rows = Rows(store, np.arange(40), context=16, seed=0)
    epochs = 30
    pieces = [piece for i in range(rows.per_epoch * epochs) for piece in rows.packer.row(i)]
    seen = Counter((document, t) for document, start, stop in pieces for t in range(start, stop))
    counts = np.array([seen[d, t] for d in range(40) for t in range(store.length[d])])
    assert abs(counts.mean() - epochs) < 1
    assert counts.min() >= epochs - 3 and counts.max() <= epochs + 3


def test_any_worker_gets_the_same_rows(tmp_path, monkeypatch):
    cfg = config()
    store = token_store(cfg, tmp_path)
    together = training_rows(cfg, store, seed=1).batch(0, 24)
    for count in (2, 3):
        parts = [training_rows(cfg, store, seed=1) for _ in range(count)]
        for index in range(24):
            assert (parts[index % count].batch(index, index + 1) == together[index]).all()
    assert (training_rows(cfg, store, seed=1).batch(16, 24) == together[16:]).all()
    monkeypatch.setattr(data, "REMEMBERED", 5)
    forgetful = training_rows(cfg, store, seed=1)
    assert (forgetful.batch(16, 24) == together[16:]).all() and (forgetful.batch(0, 24) == together).all()
    assert (training_rows(cfg, store, seed=2).batch(0, 24) != together).any()


def test_a_corpus_shorter_than_a_row_is_one_line(tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("one\n\ntwo")
    cfg = config(source=str(path))
    store = token_store(cfg, tmp_path / "cache")
    with pytest.raises(InputError, match=r"data.source: .* 3 tokens for training, less than one row of 32"):
        training_rows(cfg, store, seed=0)
    with pytest.raises(InputError, match=r"data.val_fraction: the 3 held-out tokens"):
        validation_batch(cfg, store)


def test_ngram_entropies_against_closed_forms(tmp_path):
    path = tmp_path / "ab.jsonl"
    # abab...: each letter half of the time, and each decided by the one before it
    path.write_text("\n".join(json.dumps({"text": "ab" * 500}) for _ in range(2)))
    store = token_store(config(source=str(path)), tmp_path / "cache")
    both = np.arange(2)
    assert ngram_entropy(store, both, 1) == pytest.approx(np.log(2))
    assert ngram_entropy(store, both, 2) == pytest.approx(0, abs=1e-12)


def test_the_default_text_has_the_entropies_of_english(tmp_path):
    store = token_store(config(max_bytes=None), tmp_path)
    train, _ = store.split(0.05)
    assert ngram_entropy(store, train, 1) == pytest.approx(3.04, abs=0.01)
    assert ngram_entropy(store, train, 2) == pytest.approx(2.37, abs=0.01)
    with pytest.raises(InputError, match="none or too many"):
        ngram_entropy(store, train, 4)
