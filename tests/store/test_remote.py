"""A run or checkpoint sent to a URL is found and gone on with by another machine, and broken sending loses none."""

import json
import pickle

import pytest

from lib.base.errors import InputError
from lib.store.remote import LAST, Remote
from lib.store.runs import RunStore
from lib.train.loop import train
from tests.runs import small_run, stopped


@pytest.fixture
def url(tmp_path):
    return (tmp_path / "bucket" / "folder").as_uri()


def machine(tmp_path, name, url):
    """The store of one of several machines that share nothing but a URL."""
    return RunStore(tmp_path / name / "runs", remote=url)


def test_a_run_of_one_machine_is_found_by_another(tmp_path, url):
    cfg = small_run()
    one, two = machine(tmp_path, "one", url), machine(tmp_path, "two", url)
    trained = train(cfg, one)
    found = two.find(cfg)
    assert found.path == two.path / cfg.key and found.metrics.keys() == trained.metrics.keys()
    assert (found.path / "model.safetensors").read_bytes() == (trained.path / "model.safetensors").read_bytes()
    again = train(cfg, two, progress=lambda step, loss: pytest.fail("it was trained again"))
    assert again.summary == trained.summary


def test_a_run_that_broke_off_on_one_machine_goes_on_on_another(tmp_path, url):
    cfg = small_run()
    whole = train(cfg, RunStore(tmp_path / "alone" / "runs"))
    stopped(cfg, machine(tmp_path, "one", url))
    steps = []
    two = machine(tmp_path, "two", url)
    result = train(cfg, two, progress=lambda step, loss: steps.append(step))
    assert steps == [4, 5, 6] and result.metrics["loss"] == whole.metrics["loss"]
    assert sorted(path.name for path in (tmp_path / "bucket" / "folder").iterdir()) == [cfg.key]  # no checkpoint left


def gone(*arguments):
    raise InputError("STORE: the network is gone")


def test_a_run_whose_sending_broke_off_is_sent_when_it_is_asked_for_again(tmp_path, url, monkeypatch):
    cfg, one = small_run(train={"steps": 2}), machine(tmp_path, "one", url)
    with monkeypatch.context() as patch, pytest.raises(InputError, match=r"^STORE: the network is gone$"):
        patch.setattr(Remote, "send_run", gone)
        train(cfg, one)
    two = machine(tmp_path, "two", url)
    assert two.find(cfg) is None
    train(cfg, one, progress=lambda step, loss: pytest.fail("it was trained again"))
    assert two.find(cfg) is not None


def test_a_checkpoint_that_is_older_or_damaged_does_not_replace_ones_own(tmp_path, url, capsys):
    cfg, one = small_run(), machine(tmp_path, "one", url)
    for sent in (b"half a checkpo", None):
        stopped(cfg, one, at=5)
        there = tmp_path / "bucket" / "folder" / one.partial(cfg.key).name
        if sent:
            there.write_bytes(sent)
    steps = []
    train(cfg, one, progress=lambda step, loss: steps.append(step))
    assert steps == [5, 6] and "damaged" not in capsys.readouterr().out


def test_a_checkpoint_that_cannot_be_sent_does_not_end_a_run(tmp_path, url, monkeypatch, capsys):
    cfg, one = small_run(), machine(tmp_path, "one", url)
    monkeypatch.setattr(Remote, "send", gone)
    monkeypatch.setattr(Remote, "send_run", lambda self, path: None)
    assert train(cfg, one, checkpoint_seconds=0.0).status == "finished"
    assert capsys.readouterr().out.count("STORE: the network is gone") == 5


def test_a_run_is_there_when_its_last_file_is(tmp_path, url):
    cfg = small_run(train={"steps": 2})
    train(cfg, machine(tmp_path, "one", url))
    last = tmp_path / "bucket" / "folder" / cfg.key / LAST
    kept = last.read_text()
    last.unlink()
    two = machine(tmp_path, "two", url)
    assert two.find(cfg) is None and not (two.path / cfg.key).exists()
    last.write_text(kept)
    assert two.find(cfg) is not None


def test_the_first_to_finish_is_kept(tmp_path, url):
    cfg = small_run(train={"steps": 2})
    first = train(cfg, RunStore(tmp_path / "one" / "runs"))
    Remote(url).send_run(first.path)
    other = json.loads((first.path / LAST).read_text())
    (first.path / LAST).write_text(json.dumps({**other, "status": "diverged"}))
    Remote(url).send_run(first.path)
    assert machine(tmp_path, "two", url).find(cfg).status == "finished"


def test_it_goes_to_another_process_by_its_url(url):
    remote = Remote(url)
    remote.remove("nothing")
    assert pickle.loads(pickle.dumps(remote)) == remote


@pytest.mark.parametrize("url", ["nowhere://bucket", "s3://", "file:///proc/nowhere"])
def test_a_url_that_nobody_answers_is_one_line(url, tmp_path):
    with pytest.raises(InputError, match=rf"^STORE: {url} cannot be reached \([^\n]*\), mend it, or install[^\n]*$"):
        RunStore(tmp_path / "runs", remote=url).find(small_run())
