import numpy as np
import pytest

from lib.errors import InputError
from lib.text import Documents
from lib.tokenizer import BPETokenizer, ByteTokenizer, train_bpe

TEXTS = ["Fellow-Citizens of the Senate:", "Grüße, 你好 — and 🎈 too\n\n  indented", "x" * 100, ""]


@pytest.fixture(scope="module")
def bpe(tmp_path_factory):
    path = tmp_path_factory.mktemp("bpe") / "bpe.json"
    train_bpe(list(Documents("sotu"))[:5], 600, path)
    return BPETokenizer(path)


def test_bytes_are_utf8_and_specials_are_bytes_that_utf8_never_uses():
    tokenizer = ByteTokenizer()
    tokens = tokenizer.encode_batch(TEXTS)
    assert [bytes(t.tolist()).decode() for t in tokens] == TEXTS
    assert [tokenizer.decode(t) for t in tokens] == TEXTS
    used = np.concatenate(tokens)
    assert not np.isin(used, [tokenizer.bos, tokenizer.eos, tokenizer.pad]).any()
    for special in (tokenizer.bos, tokenizer.eos, tokenizer.pad):
        with pytest.raises(UnicodeDecodeError):
            bytes([special]).decode()


def test_bpe_has_the_size_asked_for_and_loses_nothing(bpe):
    assert bpe.vocab_size == 600
    assert [bpe.decode(t) for t in bpe.encode_batch(TEXTS)] == TEXTS


def test_token_bytes_add_up_to_the_text(bpe):
    for tokenizer in (bpe, ByteTokenizer()):
        for text, tokens in zip(TEXTS, tokenizer.encode_batch(TEXTS), strict=True):
            assert tokenizer.token_bytes[tokens].sum() == len(text.encode())
        assert tokenizer.token_bytes[tokenizer.bos] == 0


def test_bpe_compresses_and_splits_numbers_in_threes(bpe):
    text = next(iter(Documents("sotu")))
    (tokens,) = bpe.encode_batch([text])
    assert len(tokens) < 0.6 * len(text.encode())
    (number,) = bpe.encode_batch(["1234567"])
    pieces = [bpe.decode([t]) for t in number]
    assert max(len(p) for p in pieces) <= 3


def test_the_same_text_trains_the_same_tokenizer(tmp_path):
    for name in ("a.json", "b.json"):
        train_bpe(list(Documents("sotu"))[:3], 400, tmp_path / name)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_a_bad_tokenizer_file_is_one_line(tmp_path, bpe):
    path = tmp_path / "t.json"
    path.write_text("{}")
    with pytest.raises(InputError, match=r"is not a tokenizer.json"):
        BPETokenizer(path)
    path.write_text(bpe._model.to_str().replace("<|bos|>", "<|begin|>"))
    with pytest.raises(InputError, match="no token to begin a document"):
        BPETokenizer(path)
