"""Texts as other people have them: which documents each is, to the character, and which are refused."""

import datetime
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lib.text.sources import documents
from tests.lines import one_line

BOM, ENDS = b"\xef\xbb\xbf", "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg"  # ends of lines to others
#: name -> what is in the file, and its documents
PLAIN = {
    "lines": ("one\ntwo\n three \nfour", ["one", "two", "three", "four"]),
    "blank lines": ("one\ntwo\n\n\nthree  \n\n  four\n", ["one\ntwo", "three", "four"]),
    "lines of blanks": ("one\n   \ntwo\n\t\n\n\nthree", ["one", "two", "three"]),
    "windows": ("one\r\ntwo\r\n\r\nthree\r\n \r\nfour\r\n", ["one\r\ntwo", "three", "four"]),
    "separators": ("1\n\n2\n  <|endoftext|>  \n\nthree\n<|endoftext|>\n<|endoftext|>\n4", ["1\n\n2", "three", "4"]),
    "a mark in front of a separator": (BOM + b"<|endoftext|>\none\n\ntwo\n<|endoftext|>\n3", ["one\n\ntwo", "3"]),
    "a mark": (BOM + b"one\n\ntwo", ["one", "two"]),
    "other ends of lines": (f"{ENDS}\n\nh \u2028 i\r j\n", [ENDS, "h \u2028 i\r j"]),
    "zeros": (b"a\0b\n\nc\0", ["a\0b", "c\0"]),
    "wide blanks": (
        "\u00fc \U0001f600\n\n\u00a0in between\u00a0\n\nlast\u3000",
        ["\u00fc \U0001f600", "in between", "last"],
    ),
}
LINES = {
    "dates": ('{"text": "2024-01-01"}\n{"text": "2024-01-02"}', ["2024-01-01", "2024-01-02"]),
    "times": ('{"text": "2024-01-01T10:00:00Z"}\n{"text": "12:30"}', ["2024-01-01T10:00:00Z", "12:30"]),
    "words that are values": ('{"text": "1e5"}\n{"text": "true"}\n{"text": "null"}', ["1e5", "true", "null"]),
    "null": ('{"text": "a"}\n{"text": null}\n{"text": "b"}', ["a", "b"]),
    "empty": ('{"text": ""}\n{"text": " "}\n{"text": "b\\n"}', [" ", "b\n"]),
    "other columns": (
        '{"n": 1, "text": "a"}\n{"text": "b", "n": {"x": [1]}}\n{"text": "c", "n": NaN}',
        ["a", "b", "c"],
    ),
    "other ends": ('{"text": "a\u2028b\x85"}\r\n\r\n  \r\n {"text": "\\u0000\\n"} \n', ["a\u2028b\x85", "\0\n"]),
    "a mark": (BOM + b'{"text": "a"}\n{"text": "\\ud83d\\ude00"}', ["a", "\U0001f600"]),
    "a column twice": ('{"text": "a", "text": "b"}\n{"text": "c"}', ["b", "c"]),
}
TEXTS = ["a", "", "b\n", None, "\u2028c", "2024-01-01"]
TABLES = {
    "string": {"text": TEXTS, "n": range(6), "nested": [{"x": [i]} for i in range(6)]},
    "large string": {"text": pa.array(TEXTS, pa.large_string())},
    "string view": {"text": pa.array(TEXTS, pa.string_view())},
    "dictionary": {"text": pa.array(TEXTS).dictionary_encode()},
}
NO_TEXT = {"numbers": [1, 2], "dates": [datetime.date(2024, 1, 1)], "bytes": [b"a"], "lists": [["x"]]}


def put(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


@pytest.mark.parametrize(("file", "name"), [*(("a.txt", n) for n in PLAIN), *(("a.jsonl", n) for n in LINES)])
def test_plain_text_and_json_lines(tmp_path, file, name):
    content, expected = (PLAIN if file == "a.txt" else LINES)[name]
    assert list(documents(put(tmp_path / file, content))) == expected


@pytest.mark.parametrize("row", ['{"other": "x"}', '{"text": 5}', '[{"text": "a"}]'])
def test_a_line_without_text(tmp_path, row):
    with one_line("a.jsonl line 2", "name the right column", starts="data.field: "):
        list(documents(put(tmp_path / "a.jsonl", f'{{"text": "a"}}\n{row}')))


@pytest.mark.parametrize("name", TABLES)
def test_parquet(tmp_path, name):
    pq.write_table(pa.table(TABLES[name]), tmp_path / "a.parquet", row_group_size=2)
    expected = ["a", "b\n", "\u2028c", "2024-01-01"]
    assert list(documents(str(tmp_path / "a.parquet"))) == expected
    assert list(documents(f"hf:{tmp_path}")) == expected or name == "dictionary"  # which datasets reads as a class


@pytest.mark.parametrize("name", NO_TEXT)
def test_a_column_without_text(tmp_path, name):
    pq.write_table(pa.table({"text": NO_TEXT[name]}), tmp_path / "a.parquet")
    for source in (str(tmp_path / "a.parquet"), f"hf:{tmp_path}"):
        with one_line("has no text in 'text'", "name the right column", starts="data.field: "):
            list(documents(source))
    with one_line("has ['text'], name one column of these", starts="data.field: "):
        list(documents(str(tmp_path / "a.parquet"), field="body"))


def test_a_dataset_without_a_split_to_train_on(tmp_path):
    put(tmp_path / "test.jsonl", '{"text": "a"}')
    with one_line("its split 'train'", starts="data.source: "):
        list(documents(f"hf:{tmp_path}"))


def test_two_columns_of_one_name(tmp_path):
    columns = pa.array(["a"]), pa.array(["b"]), pa.array(["c"])
    pq.write_table(pa.Table.from_arrays(columns, names=["text", "text", "c"]), tmp_path / "a.parquet")
    with one_line("name one column of these", starts="data.field: "):
        list(documents(str(tmp_path / "a.parquet")))
    assert list(documents(str(tmp_path / "a.parquet"), field="c")) == ["c"]


def test_several_files_of_a_folder_and_their_nulls(tmp_path):
    for i, rows in enumerate((["a", None], ["", "b"], ["c"])):
        put(tmp_path / f"train-{i}.jsonl", "\n".join(json.dumps({"text": row, "n": {"x": [i]}}) for row in rows))
    assert list(documents(f"hf:{tmp_path}")) == ["a", "b", "c"]
