"""A bad run, record or checkpoint is named in one line with what becomes of it, and nothing of it is lost."""

import contextlib
import json
import shutil

import pytest
import safetensors
import safetensors.torch

from lib.base import files
from lib.config import ModelConfig
from lib.model.looped import LoopedLM
from lib.store.runs import RunStore
from lib.sweep.finished import run_model
from lib.sweep.training import sweep
from lib.train.loop import train
from tests.lines import everything, in_one_line, one_line
from tests.runs import depth_losses, small_run, stopped

CFG = small_run()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A store with one run, and a checkpoint of another, which was stopped in its middle."""
    store = RunStore(tmp_path_factory.mktemp("trained") / "runs")
    train(CFG, store)
    stopped(small_run(train={"seed": 9}), store)
    return store


@pytest.fixture
def run(trained, tmp_path):
    """The folder of a copy of that run, in a store of its own."""
    shutil.copytree(trained.path.parent, tmp_path / "copy")
    return tmp_path / "copy" / "runs" / CFG.key


def resealed(run):
    """Checksums that hold, as if whoever damaged the run had written it: what is wrong has to be told from what it
    says."""
    with contextlib.suppress(OSError, ValueError):  # where result.json itself cannot be read
        fields = json.loads((run / "result.json").read_text())
        sums = fields.get("files", {})
        sums |= {name: files.digest(run / name) for name in sums if (run / name).exists()}
        files.write_checked(run / "result.json", {**fields, "files": sums})


def edited(name, **changes):
    def edit(run):
        (run / name).write_text(json.dumps({**json.loads((run / name).read_text()), **changes}))

    return edit


DAMAGES = [
    (edited("config.json", speed=1), "speed: unknown name"),
    (edited("config.json", train={"seed": 5}), "config.json belongs to another run"),
    (edited("metrics.json", columns={"step": [6], "loss": ["2.5"]}), "other things than numbers"),
    (edited("result.json", summary={"val_loss": -5.0}), "val_loss: input should be greater than or equal to 0"),
    (lambda run: (run / "metrics.json").write_bytes(b"[" * 100_000), "recursion"),
]


@pytest.mark.precision
@pytest.mark.parametrize(("damage", "why"), DAMAGES)
def test_a_damaged_run_is_set_aside_whole(run, capsys, damage, why):
    damage(run)
    resealed(run)
    before = [*everything(run).values()]
    assert RunStore(run.parent).find(CFG) is None
    in_one_line(capsys.readouterr().out, f"run {CFG.key} cannot be read", why, "set aside as", "to be trained again")
    assert [*everything(run.with_name(f"{CFG.key}.corrupt-1")).values()] == before


def integers(run):
    with safetensors.safe_open(run / "model.safetensors", framework="pt") as opened:
        metadata, names = opened.metadata(), opened.keys()
        tensors = {name: opened.get_tensor(name).int() for name in names}
    safetensors.torch.save_file(tensors, run / "model.safetensors", metadata=metadata)


def test_weights_of_a_run_that_do_not_fit(run):
    other = LoopedLM(ModelConfig(width=16))
    for damage, *words in (
        (integers, "weights:", "holds torch.int32", "give a checkpoint"),
        (lambda run: other.save(run / "model.safetensors"), "runs:", "holds another model", "restore it or remove"),
    ):
        damage(run)
        resealed(run)
        before = everything(run)
        with one_line(*words):
            run_model(CFG, RunStore(run.parent))
        assert everything(run) == before


def test_a_checkpoint_of_another_run_is_not_gone_on_with(run, capsys):
    other = small_run(train={"seed": 9})
    shutil.rmtree(run)
    store = RunStore(run.parent)
    store.partial(other.key).rename(store.partial(CFG.key))
    train(CFG, store)
    words = [f"it is one of run {other.key}", "set aside as", "starting anew"]
    in_one_line(capsys.readouterr().out, *words)


HUGE = small_run(model={"width": 2**20, "heads": 2**15})
RUNS = [
    (lambda store: run_model(small_run(train={"seed": 3}), store), "runs: there is no run", "train it"),
    (lambda store: store.named("nope"), "run: 'nope'", "use a whole key"),
    (lambda store: depth_losses([CFG], store, [0]), "loops: 0", "at least 1"),
    (lambda store: sweep([HUGE], store, jobs=1), "model:", "parameters need", "use a smaller width"),
]


@pytest.mark.parametrize(("ask", "words"), [(ask, words) for ask, *words in RUNS])
def test_what_is_asked_of_runs(run, ask, words):
    before = everything(run.parent)
    with one_line(*words):
        ask(RunStore(run.parent))
    assert everything(run.parent) == before
