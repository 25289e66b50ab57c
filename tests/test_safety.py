"""Nothing that comes from elsewhere is run or leads out of its place, and the Lab is this machine's alone."""

import gzip
import pickle
import secrets
import tarfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import numpy as np
import psutil
import pytest
import safetensors.torch
import torch

from lib.base.errors import InputError
from lib.model.looped import load_weights
from lib.papers.parcae.parameters import Instability
from lib.store.runs import RunStore
from lib.tasks import files as taskfiles
from lib.tasks.suites import Task
from lib.text.sources import documents
from lib.train.loop import load_data, train
from lib.workbook import notebook
from tests.given import of_profile
from tests.lines import one_line
from tests.processes import lab, until
from tests.runs import small_run


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


@pytest.fixture
def mark(tmp_path):
    """A file that must not come to be."""
    mark = tmp_path / "it-was-run"
    pickle.loads(pickle.dumps(Bomb(mark)))
    assert mark.exists()  # the bomb works
    mark.unlink()
    yield mark
    assert not mark.exists()


def as_pickle(mark, path):
    path.write_bytes(pickle.dumps(Bomb(mark)))


def as_torch(mark, path):
    torch.save({"weight": torch.zeros(2), "more": Bomb(mark)}, path)


def as_numpy(mark, path):
    with path.open("wb") as file:
        np.save(file, np.array([Bomb(mark)], dtype=object), allow_pickle=True)


@pytest.mark.parametrize("write", [as_pickle, as_torch, as_numpy])
@pytest.mark.parametrize("name", ["a.pt", "a.pkl", "model.safetensors", "t.json", "a.txt", "a.jsonl", "a.parquet"])
def test_a_bomb_is_one_line(tmp_path, mark, write, name):
    """As a checkpoint, a tokenizer or a text."""
    path = tmp_path / name
    write(mark, path)
    data = {"tokenizer": str(path)} if name == "t.json" else {"source": str(path)}
    with one_line(name):
        if name in ("a.pt", "a.pkl", "model.safetensors"):
            load_weights(path)
        else:
            load_data(small_run(data=data), RunStore(tmp_path / "runs"))


@pytest.mark.parametrize("write", [as_pickle, as_torch])
def test_a_run_does_not_go_on_from_a_bomb(tmp_path, mark, capsys, write):
    store, cfg = RunStore(tmp_path / "runs"), small_run()
    store.path.mkdir()
    write(mark, store.partial(cfg.key))
    assert train(cfg, store).status == "finished"
    assert "is damaged" in capsys.readouterr().out
    safetensors.torch.load_file(store.path / cfg.key / "model.safetensors")  # is none itself


def as_program(mark, path):
    path.write_text(f"open({str(mark)!r}, 'w')\n")


@pytest.mark.parametrize(("name", "write"), [("t.pkl", as_pickle), ("t.npy", as_pickle), ("dataset.py", as_program)])
def test_a_dataset_that_is_a_bomb_is_not_run(tmp_path, mark, name, write):
    """A folder of files is read by the datasets library, which knows many kinds of them."""
    (tmp_path / "dataset").mkdir()
    write(mark, tmp_path / "dataset" / name)
    with pytest.raises(InputError, match=r"data\.(source|field): "):
        list(documents(f"hf:{tmp_path / 'dataset'}"))


def test_a_yaml_value_that_would_be_run_is_text(mark):
    """papermill -p passes it as text, which is read as YAML where no text is wanted."""
    text = f"!!python/object/apply:os.mknod ['{mark}']"
    with pytest.raises(InputError, match="steps: input should be a valid integer"):
        notebook.start(Instability, of_profile("smoke", "instability") | {"steps": text})


def test_an_archive_in_a_dataset_writes_nothing_outside(tmp_path):
    """Members are streamed: '..', absolute names and links in an archive are names and nothing else."""
    folder = tmp_path / "in" / "dataset"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "train.zip", "w") as archive:
        archive.writestr("../../slipped.jsonl", '{"text": "a"}\n')
        archive.writestr(f"{tmp_path}/absolute.jsonl", '{"text": "b"}\n')
    (tmp_path / "secret.txt").write_text("secret")
    with tarfile.open(folder / "train.tar", "w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            link = tarfile.TarInfo(f"{int.from_bytes(kind)}.txt")
            link.type, link.linkname = kind, str(tmp_path / "secret.txt")
            archive.addfile(link)
    before = sorted(tmp_path.rglob("*"))
    texts = []
    with pytest.raises(InputError, match=r"data\.(source|field): "):  # a tar holds no column of this name
        texts += documents(f"hf:{folder}")
    assert sorted(tmp_path.rglob("*")) == before and "secret" not in "".join(texts)


def test_a_task_file_that_unpacks_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(taskfiles, "MAX_CHARACTERS", 1 << 16)
    for content in (b"{}\n" * (1 << 16), b" " * (1 << 17)):
        (tmp_path / "endless.jsonl.gz").write_bytes(gzip.compress(content))
        with pytest.raises(InputError, match=r"tasks: .*unpacks to 65536 characters or more, give a smaller file"):
            taskfiles.read(Task("endless", files=("endless",)), tmp_path)


# ---- make lab --------------------------------------------------------------------------------------------------------


def status_of(url: str, **headers) -> int:
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=120).status
    except urllib.error.HTTPError as error:
        return error.code


def test_the_lab_is_for_this_machine_and_whoever_has_its_token(tmp_path):
    with lab(tmp_path) as (server, said):
        token = said["token"]
        sockets = psutil.Process(server.pid).net_connections
        (at,) = until(lambda: [one.laddr for one in sockets("inet") if one.status == psutil.CONN_LISTEN])
        assert at.ip == "127.0.0.1" and len(token) >= 40
        contents = f"http://127.0.0.1:{at.port}/api/contents"
        assert status_of(contents) == 403
        assert status_of(f"{contents}?token=") == 403
        assert status_of(contents, Authorization=f"token {secrets.token_hex(24)}") == 403
        assert status_of(contents, Authorization=f"token {token}") == 200
