"""Shards hold every token and document's end, go on where writing was killed, and are mended one by one."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.base import files
from lib.data import shards
from lib.data.shards import START, Batch
from tests.conftest import examples

#: documents of a part: how many tokens each has, in batches
PARTS = st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=4), min_size=1, max_size=8)


@pytest.fixture(autouse=True)
def memory_only(monkeypatch):
    """Hundreds of stores are written here; that a file is on the disk when it gets its name is tested in test_files."""
    monkeypatch.setattr(files, "_sync", lambda path: None)


def batches(lengths: list[list[int]]):
    """A part whose tokens are 0, 1, 2, ...; its cursor is the number of batches taken."""
    starts = np.cumsum([0, *[sum(batch) for batch in lengths]])

    def of(place: dict):
        for i in range((place["cursor"] or {"at": 0})["at"], len(lengths)):
            tokens = np.arange(starts[i], starts[i + 1], dtype=np.uint16)
            yield Batch(tokens, np.array(lengths[i]), 2 * len(tokens), {"at": i + 1})

    return of


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@settings(max_examples=examples(40), deadline=None)
@given(lengths=PARTS, size=st.integers(1, 20))
def test_shards_hold_the_tokens_and_ends_of_all_documents(tmp_path_factory, lengths, size):
    folder = tmp_path_factory.mktemp("part")
    shards.write(folder, size, batches(lengths))
    state = shards.state(folder)
    held = [shard["tokens"] for shard in state["shards"]]
    assert all(n == size for n in held[:-1]) and all(n <= size for n in held)
    mapped = shards.Mapped([(folder, i) for i in range(len(held))], np.dtype(np.uint16))
    tokens = np.concatenate([np.zeros(0, np.uint16), *mapped])
    flat = [n for batch in lengths for n in batch]
    assert tokens.tolist() == list(range(sum(flat)))
    assert shards.ends(folder, state["shards"]).tolist() == np.cumsum(flat).tolist()
    assert state["next"] == {
        "cursor": {"at": len(lengths)},
        "documents": len(flat),
        "bytes": 2 * sum(flat),
        "tokens": sum(flat),
    }
    assert state["done"] and shards.damaged(folder, state["shards"]) == []


@settings(max_examples=examples(40), deadline=None)
@given(lengths=PARTS, size=st.integers(1, 20), killed_after=st.integers(0, 6))
def test_writing_goes_on_where_it_was_killed(tmp_path_factory, lengths, size, killed_after):
    folder = tmp_path_factory.mktemp("part")
    shards.write(folder / "whole", size, batches(lengths))
    write, left = files.write_checked, killed_after

    def killed(path, value):
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        write(path, value)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(files, "write_checked", killed)
        shards.write(folder / "killed", size, batches(lengths))
        raise KeyboardInterrupt
    shards.write(folder / "killed", size, batches(lengths))
    assert content(folder / "killed") == content(folder / "whole")


@settings(max_examples=examples(40), deadline=None)
@given(lengths=PARTS, size=st.integers(1, 20), data=st.data())
def test_a_damaged_shard_is_written_again_and_no_other(tmp_path_factory, lengths, size, data):
    folder = tmp_path_factory.mktemp("part") / "a"
    shards.write(folder, size, batches(lengths))
    before, records = content(folder), shards.state(folder)["shards"]
    number = data.draw(st.integers(0, max(0, len(records) - 1)))
    name = data.draw(st.sampled_from([f"{number:05d}.bin", f"{number:05d}.ends.npy"]))
    if not before.get(name):
        return
    at = data.draw(st.integers(0, len(before[name]) - 1))
    raw = bytearray(before[name])
    raw[at] ^= data.draw(st.integers(1, 255))
    (folder / name).unlink()
    assert shards.damaged(folder, records) == [number]
    (folder / name).write_bytes(data.draw(st.sampled_from([raw, raw[:at]])))
    assert shards.damaged(folder, records) == [number]
    aside = shards.mend(folder, size, number, records[number], batches(lengths))
    assert content(folder) == before
    assert f"a-{name}.corrupt-1" in aside and (folder.parent / f"a-{name}.corrupt-1").exists()


def test_a_shard_whose_text_has_changed_is_not_mended(tmp_path):
    shards.write(tmp_path / "a", 10, batches([[7, 8], [9]]))
    record = shards.state(tmp_path / "a")["shards"][1]
    with pytest.raises(ValueError, match="the text has other tokens than shard 00001 had"):
        shards.mend(tmp_path / "a", 10, 1, record, batches([[7, 8], [2]]))


def test_a_state_that_is_none_is_refused(tmp_path):
    assert shards.state(tmp_path) == {"shards": [], "places": [], "next": START, "done": False}
    for wrong in ("{", json.dumps({"shards": 3}), "[]"):
        (tmp_path / "state.json").write_text(wrong)
        with pytest.raises((ValueError, AttributeError)):
            shards.state(tmp_path)


def test_only_so_many_shards_are_mapped_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "MAPPED", 3)
    shards.write(tmp_path, 1, batches([[20]]))
    mapped = shards.Mapped([(tmp_path, i) for i in range(20)], np.dtype(np.uint16))
    assert [int(shard[0]) for shard in mapped] == list(range(20))
    assert mapped._mapped.cache_info().currsize == 3
