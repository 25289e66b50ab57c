"""How many bytes of text a token stands for: 001, App. "Tokenizer Training"."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from lib.config import DataConfig
from lib.data.rows import TokenStore, token_store

if TYPE_CHECKING:
    import tiktoken

ENCODED_AT_ONCE = 64  # documents


def of_tokens(store: TokenStore, documents: np.ndarray) -> float:
    """Bytes per token of tokenised documents, given by their indices."""
    lengths = store.tokenizer.token_bytes
    text = sum(int(lengths[store.tokens(i, 0, store.length[i])].sum()) for i in documents)
    return text / int(store.length[documents].sum())


def of_encoder(encode: Callable[[list[str]], list[Any]], store: TokenStore, documents: np.ndarray) -> float:
    """Bytes per token of somebody else's tokenizer on documents of a store of bytes. encode: texts -> their tokens."""
    text = tokens = 0
    for start in range(0, len(documents), ENCODED_AT_ONCE):
        chosen = documents[start : start + ENCODED_AT_ONCE]
        texts = [store.tokenizer.decode(store.tokens(i, 0, store.length[i])) for i in chosen]
        text += sum(len(words.encode()) for words in texts)
        tokens += sum(map(len, encode(texts)))
    return text / tokens


def table(data: DataConfig, sizes: list[int], encodings: list[str], cache: Path) -> pd.DataFrame:
    """One row a tokenizer: its vocabulary, its bytes per token on training and on validation documents, and ``own``.
    That is True for BPEs of these sizes, which are trained on the training documents, and False for tiktoken's
    ``encodings``. These come over the network: their numbers are nan where they cannot be loaded."""
    rows = []
    for size in sizes:
        # no tokenizer here is a file, so that the text's content, where it is stated, is that of each
        store = token_store(data.replace(tokenizer=f"bpe-{size}", content=data.content), cache)
        train, val = (of_tokens(store, documents) for documents in store.split(data.val_fraction))
        rows.append({"tokenizer": f"bpe-{size}", "vocabulary": size, "train": train, "validation": val, "own": True})
    text = token_store(data.replace(tokenizer="bytes", content=data.content), cache)
    for name in encodings:
        encoding = load_tiktoken(name)
        row = {"tokenizer": name, "vocabulary": np.nan, "train": np.nan, "validation": np.nan, "own": False}
        if encoding is not None:
            row["vocabulary"] = encoding.n_vocab
            for column, documents in zip(("train", "validation"), text.split(data.val_fraction), strict=True):
                row[column] = of_encoder(encoding.encode_ordinary_batch, text, documents)
        rows.append(row)
    return pd.DataFrame(rows)


def load_tiktoken(name: str) -> "tiktoken.Encoding | None":
    """An encoding of tiktoken's by its name; where it cannot be had, None and one printed line."""
    import requests
    import tiktoken

    try:
        return tiktoken.get_encoding(name)
    except (requests.RequestException, OSError, ValueError) as error:
        print(f"{name}: tiktoken cannot load it here ({type(error).__name__}), left out")
        return None
