"""The tokens of one part of a text on disk: shards of one size with checksums, written once, resumed and mended.

    00000.bin       tokens k size, k size + 1, ... of the part; every shard but the last holds exactly ``size``
    00000.ends.npy  where the documents that end in it end, in tokens from the beginning of the part
    state.json      the record of each shard (its tokens and checksums) and the place it can be written again from

A place lies between two batches of documents: the source's cursor, and how many documents, bytes of text and tokens
come before it. Shards are the same wherever writing was interrupted; the cursors of a dataset are not.
"""

import concurrent.futures
import dataclasses
import functools
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lib.base import files

START = {"cursor": None, "documents": 0, "bytes": 0, "tokens": 0}
MAPPED = 256  # shards that are mapped at a time: each costs a file handle


@dataclasses.dataclass(frozen=True)
class Batch:
    """Consecutive documents."""

    tokens: np.ndarray  # of all of them
    lengths: np.ndarray  # tokens of each
    bytes: int  # of their text
    cursor: dict[str, Any]  # of the source, behind them

    def after(self, place: dict[str, Any]) -> dict[str, Any]:
        """The place behind a batch that begins at ``place``."""
        counts = {"documents": len(self.lengths), "bytes": self.bytes, "tokens": len(self.tokens)}
        return {"cursor": self.cursor, **{name: place[name] + n for name, n in counts.items()}}


@dataclasses.dataclass(frozen=True)
class Shard:
    """Some tokens of a part."""

    tokens: np.ndarray
    ends: np.ndarray  # of the documents that end among them, in tokens from the beginning of the part
    place: dict[str, Any]  # from which this shard can be written
    next: dict[str, Any]  # and the next one


def cut(batches: Iterator[Batch], place: dict[str, Any], size: int, number: int = 0) -> Iterator[Shard]:
    """Shards ``number``, ``number`` + 1, ... from batches that begin at ``place``, which is at or before the beginning
    of the first shard."""
    begin, first = number * size, place
    tokens: list[np.ndarray] = []
    ends: list[np.ndarray] = []
    for batch in batches:
        after, skipped = batch.after(place), max(0, begin - place["tokens"])
        end = place["tokens"] + np.cumsum(batch.lengths, dtype=np.int64)
        tokens.append(batch.tokens[skipped:])
        ends.append(end[end > begin] if skipped else end)
        while after["tokens"] >= begin + size:
            held, held_ends = np.concatenate(tokens), np.concatenate(ends)
            # the next shard begins inside this batch, or with the one behind it
            following = place if after["tokens"] > begin + size else after
            begin += size
            yield Shard(held[:size], held_ends[held_ends <= begin], first, following)
            first, tokens, ends = following, [held[size:]], [held_ends[held_ends > begin]]
        place = after
    if any(map(len, tokens)) or any(map(len, ends)):
        yield Shard(np.concatenate(tokens), np.concatenate(ends), first, place)


def state(folder: Path) -> dict[str, Any]:
    """What is written of a part. Raises ValueError, KeyError or TypeError where state.json is damaged."""
    path = folder / "state.json"
    if not path.exists():
        return {"shards": [], "places": [], "next": START, "done": False}
    found = files.read_checked(path)
    if not {"shards", "places", "next", "done"} <= found.keys():
        raise ValueError("state.json is none of a part")
    return found


def write(folder: Path, size: int, batches: Callable[[dict[str, Any]], Iterator[Batch]]) -> None:
    """Writes the shards that are missing. ``batches(place)`` gives a part's documents from a place on."""
    folder.mkdir(parents=True, exist_ok=True)
    for draft in (*folder.glob(".[0-9]*.tmp"), *folder.glob(".state.json.*.tmp")):
        files.remove(draft)  # of a process that was killed while it wrote; other drafts here belong to other locks
    written = state(folder)
    if written["done"]:
        return
    for shard in cut(batches(written["next"]), written["next"], size, len(written["shards"])):
        written["shards"].append(_save(folder, len(written["shards"]), shard))
        written["places"].append(shard.place)
        written["next"] = shard.next
        files.write_checked(folder / "state.json", written)
    files.write_checked(folder / "state.json", {**written, "done": True})


def mend(
    folder: Path, size: int, number: int, record: dict[str, Any], batches: Callable[[dict[str, Any]], Iterator[Batch]]
) -> list[str]:
    """Sets aside what is left of a damaged shard and writes it again; returns the names of what was set aside.

    Raises ValueError if the shard comes out other than it was, or state.json does not say where to begin."""
    places = state(folder)["places"]
    if number >= len(places):
        raise ValueError(f"state.json does not have shard {number:05d}")
    place = places[number]
    aside = [files.set_aside(path, beside=folder).name for path in _paths(folder, number) if path.exists()]
    shard = next(cut(batches(place), place, size, number), None)
    if shard is None or _save(folder, number, shard) != record:
        raise ValueError(f"the text has other tokens than shard {number:05d} had")
    return aside


def damaged(folder: Path, records: list[dict[str, Any]], threads: int = 1) -> list[int]:
    """The numbers of the shards that are not there or do not have the checksums of their records."""

    def whole(number: int) -> bool:
        try:
            return [_stamped_checksum(path) for path in _paths(folder, number)] == records[number]["crc32"]
        except FileNotFoundError:
            return False

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return [number for number, ok in enumerate(pool.map(whole, range(len(records)))) if not ok]


def ends(folder: Path, records: list[dict[str, Any]]) -> np.ndarray:
    """Where the part's documents end."""
    found = [np.load(_paths(folder, number)[1]) for number in range(len(records))]
    return np.concatenate([np.zeros(0, np.int64), *found])


class Mapped:
    """The tokens of shards as arrays, each mapped to memory when it is asked for."""

    def __init__(self, places: list[tuple[Path, int]], dtype: np.dtype):
        """places: the folder and the number of each shard."""
        self.places, self.dtype = places, dtype
        self._mapped = functools.lru_cache(MAPPED)(self._map)

    def _map(self, index: int) -> np.ndarray:
        path = _paths(*self.places[index])[0]
        if not path.stat().st_size:
            return np.zeros(0, self.dtype)
        return np.asarray(np.memmap(path, dtype=self.dtype, mode="r"))

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> np.ndarray:
        return self._mapped(index)


def _paths(folder: Path, number: int) -> tuple[Path, Path]:
    return folder / f"{number:05d}.bin", folder / f"{number:05d}.ends.npy"


def _save(folder: Path, number: int, shard: Shard) -> dict[str, Any]:
    """Writes a shard; returns its record: how many tokens, and the crc32 of both files."""
    buffer = io.BytesIO()
    np.save(buffer, shard.ends)
    contents = shard.tokens.tobytes(), buffer.getvalue()
    for path, content in zip(_paths(folder, number), contents, strict=True):
        with files.replacing(path) as draft:
            draft.write_bytes(content)
    return {"tokens": len(shard.tokens), "crc32": [zlib.crc32(content) for content in contents]}


def _stamped_checksum(path: Path) -> int:
    found = path.stat()
    return _checksum(path, found.st_size, found.st_mtime_ns, found.st_ino)


@functools.lru_cache(1 << 16)
def _checksum(path: Path, *stamp: int) -> int:
    """crc32 of a file, computed once a process: the runs that it trains one after another open the same tokens."""
    return zlib.crc32(path.read_bytes())
