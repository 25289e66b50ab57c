"""Bytes, or a byte-level BPE trained on the text (001, App. Tokenizer), or a tokenizer.json from elsewhere."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from lib.base.errors import InputError
from lib.base.files import need_file

# 001: the split pattern of GPT-4, no normalisation, byte fallback, documents capped at 10,000 characters
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ("<|bos|>", "<|eos|>", "<|pad|>")
BEGINS = ("<|bos|>", "<|begin_of_text|>", "<|begin_text|>", "<|endoftext|>", "<s>")
ENDS = ("<|eos|>", "<|end_of_text|>", "<|end_text|>", "<|endoftext|>", "</s>")
MAX_CHARACTERS = 10_000
BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")  # a piece of models that fall back to bytes
MAX_TRAINING_CHARACTERS = 2_000_000_000


class ByteTokenizer:
    """A token is a byte. The special tokens are bytes that UTF-8 never uses, so that 256 entries suffice."""

    vocab_size, bos, eos, pad = 256, 0xFF, 0xFE, 0xFD

    #: bytes of text behind each token, for bits per byte
    token_bytes = np.ones(256, dtype=np.int64)
    token_bytes[[0xFF, 0xFE, 0xFD]] = 0

    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        return [np.frombuffer(text.encode(), dtype=np.uint8) for text in texts]

    def decode(self, tokens: Iterable[int]) -> str:
        return bytes(t for t in tokens if t < 0xFD).decode("utf-8", errors="replace")


class BPETokenizer:
    """A ``tokenizers`` model from its JSON file; it must know a token that begins a document. A text cannot spell a
    control token. What the file says about cutting, filling and drawing at random is switched off."""

    def __init__(self, path: Path):
        import tokenizers

        need_file("data.tokenizer", path)
        try:
            self._model = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exceptions
            raise InputError(f"data.tokenizer: {path} is not a tokenizer.json ({error}), give one") from None
        _read_whole_texts(self._model)
        self.path, self.vocab_size = path, self._model.get_vocab_size()
        bos, self.eos = self._first_of(BEGINS), self._first_of(ENDS)
        if bos is None:
            raise InputError(f"data.tokenizer: {path} has no token to begin a document, add one of {BEGINS}")
        self.bos = bos
        self._added = {
            token: of.content for token, of in self._model.get_added_tokens_decoder().items() if not of.special
        }
        self._text_of = self._texts(json.loads(self._model.to_str()))
        #: bytes of text behind each token, for bits per byte
        self.token_bytes = np.array(list(map(len, self._text_of)), dtype=np.int64)

    def _first_of(self, names: Iterable[str]) -> int | None:
        return next((token for token in map(self._model.token_to_id, names) if token is not None), None)

    def _texts(self, fields: dict[str, Any]) -> list[bytes]:
        """The text behind each token, as the decoder gives it between others: none behind a control token, and behind
        that of what is unknown."""
        model, around = fields["model"], json.dumps([fields["pre_tokenizer"], fields["decoder"]])
        unknown = model.get("unk_id", self._model.token_to_id(model.get("unk_token") or ""))
        control = {unknown, *self._model.get_added_tokens_decoder()} - self._added.keys()
        byte_of = _byte_of() if "ByteLevel" in around else {}
        falls_back = model.get("byte_fallback") or "ByteFallback" in around
        decoder = self._model.decoder

        def text(token: int) -> bytes:
            piece = self._model.id_to_token(token)
            if piece is None:
                raise InputError(f"data.tokenizer: {self.path} has no entry {token}, number its entries without a gap")
            if token in control:
                return b""
            if byte_of.keys() >= set(piece) and token not in self._added:
                return bytes(map(byte_of.__getitem__, piece))
            if falls_back and BYTE.fullmatch(piece):
                return bytes.fromhex(piece[3:5])
            if token in self._added or decoder is None:
                return piece.encode()
            return decoder.decode(["a", piece, "a"])[1:-1].encode()

        return list(map(text, range(self.vocab_size)))

    def text(self, tokens: np.ndarray) -> bytes:
        """What the tokens hold of a text, to the byte."""
        return b"".join(map(self._text_of.__getitem__, tokens.tolist()))

    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        try:
            encodings = self._model.encode_batch_fast(texts, add_special_tokens=False)
        except Exception as error:  # the library raises bare Exceptions
            raise InputError(f"data.tokenizer: {self.path} cannot tokenise the text ({error}), give another") from None
        return [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]

    def decode(self, tokens: Iterable[int]) -> str:
        return self._model.decode([int(t) for t in tokens], skip_special_tokens=True)


Tokenizer = ByteTokenizer | BPETokenizer


def _read_whole_texts(model: Any) -> None:
    """Makes tokens a function of the text, of all of it: switches off what the file says about batches of inputs and
    about drawing at random, and lets no text spell a control token, as one is whose name begins or ends documents."""
    model.no_truncation()
    model.no_padding()
    if hasattr(model.model, "dropout"):
        model.model.dropout = None
    model.add_special_tokens([name for name in (*SPECIAL, *BEGINS, *ENDS) if model.token_to_id(name) is not None])
    model.encode_special_tokens = True


def _byte_of() -> dict[str, int]:
    """The byte that each character of the byte-level alphabet stands for: printable ones stand for themselves, the
    others are counted from U+0100 on (GPT-2)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


def train_bpe(documents: Iterable[str], vocab_size: int, path: Path) -> None:
    """Train a byte-level BPE and write its JSON to path. The same documents give the same file."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    model = tokenizers.Tokenizer(models.BPE(byte_fallback=True))
    model.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    model.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=list(SPECIAL), initial_alphabet=list(_byte_of()), show_progress=False
    )
    model.train_from_iterator(_capped(documents), trainer)
    model.save(str(path))


def _capped(documents: Iterable[str]) -> Iterable[str]:
    total = 0
    for document in documents:
        # of a long document the tokenizer sees the beginning, so that no document weighs too much
        yield document[:MAX_CHARACTERS]
        total += min(len(document), MAX_CHARACTERS)
        if total >= MAX_TRAINING_CHARACTERS:
            return
