"""A bad text or tokenizer is refused in one line with a remedy, and stays as it is.

More damaged ones stand in text/test_sources.py and text/test_tokenizer.py.
"""

import pytest

from lib.store.runs import RunStore
from lib.train.loop import load_data
from tests.lines import everything, one_line
from tests.runs import small_run

PROSE = "a few words of text, and then some more of them\n\n" * 200


TEXTS = [
    # file, what is in it (None: nothing there; {}: a folder), other fields of the data, words
    ("a.txt", {}, {}, "data.source:", "a.txt is no file", "check the path"),
    ("a.txt", "\n \n\n", {}, "data.source:", "holds no text", "give a file"),
    ("a.txt", "one document", {}, "data.source:", "single document", "separate documents"),
    ("a.txt", PROSE, {"subset": "en"}, "data.subset:", "leave it empty"),
    ("a.txt", PROSE, {"field": "body"}, "data.field:", "no columns", "leave 'body' out"),
    ("a.jsonl", '{"n": ' + "1" * 5000 + "}", {}, "data.source:", "line 1 is not JSON", "mend it"),
    # the same for tokenizers, of a text that is whole
    ("t.json", None, "tokenizer", "data.tokenizer:", "t.json does not exist", "check the path"),
    ("t.model", "x", "tokenizer", "tokenizer:", "is not known", "use 'bytes', 'bpe-SIZE'"),
]


@pytest.mark.parametrize(("name", "content", "fields", "words"), [(n, c, f, w) for n, c, f, *w in TEXTS])
def test_a_text(tmp_path, name, content, fields, words):
    path = tmp_path / "given" / name
    path.parent.mkdir()
    if content == {}:
        path.mkdir()
    elif content is not None:
        path.write_text(content)
    data = {"tokenizer": str(path)} if fields == "tokenizer" else {"source": str(path), **fields}
    before, store = everything(path.parent), RunStore(tmp_path / "runs")
    with one_line(*words):
        load_data(small_run(data=data), store)
    assert everything(path.parent) == before and not store.path.exists()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"source": "/dev/zero"}, ["data.source: '/dev/zero'", ".txt"]),
        ({"source": "hf:"}, ["data.source: 'hf:' names no dataset", "use hf:NAME"]),
        ({"source": "hf:tests/no such"}, ["data.source: the dataset 'tests/no such'", "check its name"]),
        ({"source": "sotu", "max_bytes": 1}, ["data.source: sotu is a single document", "separate documents"]),
        ({"content": "0" * 16}, ["data.content: states 0000000000000000", "leave content empty"]),
    ],
)
def test_a_name_of_a_text(tmp_path, monkeypatch, data, words):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    store = RunStore(tmp_path / "runs")
    with one_line(*words):
        load_data(small_run(data=data), store)
    assert not store.path.exists()
