"""Tokenizers of every kind hold a text to the byte, or they are refused, and bits per byte are those of the text."""

import pytest
import tokenizers
import torch
from tokenizers import decoders, models, normalizers, pre_tokenizers

from lib.data.rows import added_spaces, validation_batch
from lib.data.tokens import token_store
from lib.model.looped import LoopedLM
from lib.text.tokenizer import _byte_of
from lib.train.evaluate import validate
from tests.lines import one_line
from tests.models import config
from tests.runs import text_config

WORDS = ["the", "▁", "▁the", "é", "h", "e", "t"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SPECIAL = ["<unk>", "<s>", "</s>"]
DOCUMENTS = [f"the thé\n{'the ' * (3 + i)}€" for i in range(30)]


def vocabulary(*pieces):
    return {piece: number for number, piece in enumerate([*SPECIAL, *pieces])}


def sentencepiece(prepends=False):
    merges = [("t", "h"), ("th", "e"), ("▁", "the")]
    known = vocabulary(*BYTES, *dict.fromkeys([*WORDS, "th"]))
    model = tokenizers.Tokenizer(models.BPE(known, merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    steps = [normalizers.Prepend("▁")] if prepends else []
    model.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    model.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return model


def unigram(scheme="never", falls_back=True):
    scores = [(piece, -10.0) for piece in vocabulary(*BYTES)] + [(piece, -1.0) for piece in WORDS]
    model = tokenizers.Tokenizer(models.Unigram(scores, 0, falls_back))
    model.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    model.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return model


def byte_level(space=False):
    model = tokenizers.Tokenizer(models.BPE(vocabulary(*_byte_of()), []))
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    model.decoder = decoders.ByteLevel()
    return model


def added():
    model = byte_level()
    model.add_tokens(["thé", "the the"])
    return model


def lower():
    model = byte_level()
    model.normalizer = normalizers.Replace("t", "T")
    return model


def words(kind, **options):
    model = tokenizers.Tokenizer(kind(vocabulary("the", "th", "##é", "##e"), unk_token="<unk>", **options))
    model.pre_tokenizer = pre_tokenizers.Whitespace()
    return model


KEPT = {"byte-level": byte_level, "sentencepiece": sentencepiece, "unigram": unigram, "added tokens": added}
SPACED = {
    "sentencepiece": lambda: sentencepiece(prepends=True),
    "unigram": lambda: unigram("always"),
    "byte-level": lambda: byte_level(space=True),
}
LOST = {
    "unknown": lambda: unigram(falls_back=False),
    "changed": lower,
    "wordpiece": lambda: words(models.WordPiece),
    "wordlevel": lambda: words(models.WordLevel),
}


def stored(tmp_path, model, documents=DOCUMENTS):
    model.add_special_tokens(SPECIAL)
    model.save(str(tmp_path / "t.json"))
    (tmp_path / "a.txt").write_text("\n<|endoftext|>\n".join(documents), encoding="utf-8")
    cfg = text_config(source=str(tmp_path / "a.txt"), tokenizer=str(tmp_path / "t.json"), val_fraction=0.2, context=16)
    return cfg, token_store(cfg, tmp_path / "cache")


@pytest.mark.parametrize("name", KEPT)
def test_token_bytes_are_those_of_every_document(tmp_path, name):
    _, store = stored(tmp_path, KEPT[name]())
    sums = [store.tokenizer.token_bytes[store.tokens(i, 0, n)].sum() for i, n in enumerate(store.length)]
    assert sums == [len(text.encode()) for text in DOCUMENTS] and not store.spaced.any()


@pytest.mark.parametrize("name", SPACED)
def test_a_space_before_a_document_is_no_byte_of_it(tmp_path, name):
    """Where documents have no space of their own, all spaces of the rows are such; uniform logits cost log2(V)."""
    cfg, store = stored(tmp_path, SPACED[name](), [f"Q{'thé' * (3 + i)}€" for i in range(30)])
    batch = validation_batch(cfg, store)
    texts = [store.tokenizer.text(row) for row in batch]
    model = LoopedLM(config(vocab_size=512))
    torch.nn.init.zeros_(model.embed.weight)
    found = validate(model, batch, store.tokenizer.token_bytes, added_bytes=added_spaces(cfg, store))
    tokens = (store.tokenizer.token_bytes[batch] > 0).sum()
    size = sum(len(text.replace(b" ", b"")) for text in texts)
    assert b" " in b"".join(texts)
    assert found["val_bpb"] == pytest.approx(9 * tokens / size, rel=1e-5)


@pytest.mark.parametrize("name", LOST)
def test_what_loses_or_changes_text_is_refused(tmp_path, name):
    with one_line("t.json does not keep the text", "bytes of document 0", starts="data.tokenizer: "):
        stored(tmp_path, LOST[name]())


def test_what_cannot_tokenise_a_text_is_refused(tmp_path):
    with one_line("cannot tokenise the text", starts="data.tokenizer: "):
        stored(tmp_path, tokenizers.Tokenizer(models.WordLevel(vocabulary("the"), unk_token="?")))
