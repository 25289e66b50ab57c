"""A run is asked once and goes on where it stopped, and a suite's score is the mean of its tasks' with its errors."""

import math

import pandas as pd
import pytest
import torch

from lib.base.errors import InputError
from lib.base.processes import one_thread_on_cpu
from lib.model.looped import LoopedLM
from lib.store.runs import RunStore
from lib.sweep import measurements
from lib.sweep.training import sweep
from lib.tasks import evaluations as asked
from lib.tasks.evaluations import Subject, evaluate, evaluations, load, over_seeds, suite
from lib.tasks.primitives import DEPTH, PROBES
from lib.tasks.scoring import ask
from lib.tasks.suites import CORE, Task
from tests.models import config, official_parcae
from tests.runs import small_run

RUN, OTHER = small_run(), small_run(train={"seed": 1})


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = RunStore(tmp_path_factory.mktemp("store") / "runs")
    sweep([RUN, OTHER], store, jobs=1)
    return store


SOME = [task for task in PROBES | DEPTH if task.name in ("Induction head", "Parity of 4")]


def test_a_run_is_asked_once_and_goes_on_where_it_stopped(store, monkeypatch):
    subjects = [Subject.of_run(RUN), Subject.of_run(OTHER)]
    cases = evaluations(subjects, store, SOME, [0, 1, 2], limit=20)
    assert len(cases) == 12 and len({measurements.key(case) for case in cases}) == 12
    first = measurements.measure(evaluate, cases[:5], store, jobs=1)
    count = []
    monkeypatch.setattr(asked, "ask", lambda *a: count.append(1) or ask(*a))
    found = measurements.measure(evaluate, cases, store, jobs=1)
    assert len(count) == 7 and found[:5] == first
    table = asked.tabulate(cases, found)
    assert {*table.columns} >= {"subject", "task", "shots", "seed", "T", "chance", "accuracy", "loss", "n", "cut"}
    model, tokenizer = load(subjects[0], str(store.path))
    with one_thread_on_cpu():  # as it is measured: sums of bf16 depend on it
        expected = ask(model, tokenizer, SOME[0], asked.examples_of(SOME[0]), 0, 20)[model.cfg.mean_loops]
    assert table.iloc[0].loss == pytest.approx(expected["loss"])
    # the three seeds draw other states, and in front of parities other examples
    assert table[table.subject == RUN.key].groupby("task").loss.nunique().tolist() == [3, 3]


def test_losses_of_whole_prompts_are_those_that_are_averaged(store):
    (case,) = evaluations([Subject.of_run(RUN)], store, SOME[:1], [0], limit=20)
    found, averaged = asked.losses_of_whole_prompts(case), evaluate(case)[str(RUN.model.mean_loops)]
    assert averaged["cut"] == 0 and len({*found["which"]}) == len(found["loss"]) == averaged["n"] == 20
    assert sum(found["loss"]) / 20 == pytest.approx(averaged["loss"])
    (short,) = evaluations([Subject.of_run(RUN)], store, [SOME[0].at(5)], [0], limit=20)
    assert evaluate(short)[str(RUN.model.mean_loops)]["cut"] == 20
    assert asked.losses_of_whole_prompts(short)["which"] == []


def test_a_key_is_of_what_decides_the_numbers(store, tmp_path):
    subject = Subject.of_run(RUN)
    (case,) = evaluations([subject], store, SOME[:1], [0], limit=20)
    (moved,) = evaluations([subject], RunStore(tmp_path / "elsewhere"), SOME[:1], [0], limit=20)
    assert evaluations([subject], store, CORE[:3], [0], source=str(tmp_path)) == []  # what no source has is left out
    assert measurements.key(case) == measurements.key(moved)
    for change in dict(seed=1), dict(limit=21), dict(shots=1), dict(depths=(1,)), dict(content="x"), dict(subject="y"):
        assert measurements.key(case) != measurements.key(case.model_copy(update=change))


def test_runs_of_two_texts_at_one_place_are_asked_with_their_own_tokenizers(tmp_path):
    path, store = tmp_path / "text.txt", RunStore(tmp_path / "runs")
    data = dict(source=str(path), tokenizer="bpe-300", max_bytes=None, val_rows=4)
    tokens = []
    for word in ("here", "something"):
        path.write_text("\n\n".join(f"{word} {i} and {word} again " * 20 for i in range(40)))
        run = small_run(model={"vocab_size": 300}, data=data, train={"steps": 1})
        sweep([run], store, jobs=1)
        _, tokenizer = load(Subject.of_run(run), str(store.path))
        tokens.append(len(*tokenizer.encode_batch(["something"])))
    assert tokens[1] < tokens[0]


def test_a_checkpoint_is_asked_like_a_run(store, tmp_path):
    run = Subject.of_run(RUN)
    path = store.find(RUN).path / "model.safetensors"
    checkpoint = Subject.of_checkpoint(path)
    assert checkpoint.model == run.model and checkpoint.key != run.key
    cases = evaluations([run, checkpoint], store, SOME[:1], [0], limit=10)
    one, other = measurements.measure(evaluate, cases, store, jobs=1)
    assert one == other
    LoopedLM(config("parcae", vocab_size=61)).save(tmp_path / "small.safetensors")
    with pytest.raises(InputError, match="tokenizer: bytes has 256 entries, the checkpoint 61"):
        load(Subject.of_checkpoint(tmp_path / "small.safetensors"), "")


def test_checkpoints_that_torch_saved_are_told_by_their_weights(tmp_path):
    keys = set()
    for scale in (1.0, 0.5):
        torch.save({name: scale * t for name, t in official_parcae().items()}, tmp_path / "pytorch_model.bin")
        keys |= {Subject.of_checkpoint(tmp_path).key, Subject.of_checkpoint(tmp_path).key}
    assert len(keys) == 2


def table_of(accuracies, seeds=(0, 1, 2), drawn=True):
    same = dict(subject="s", shots=0, limit=9, T=4, n=100, cut=0, loss_stderr=0.02, accuracy_stderr=0.03, drawn=drawn)
    rows = [
        dict(task=task, seed=seed, chance=chance, loss=2 - accuracy, accuracy=accuracy + 0.01 * seed, **same)
        for task, chance, accuracy in accuracies
        for seed in seeds
    ]
    return pd.DataFrame(rows)


def test_core_is_the_mean_of_centred_accuracies():
    table = over_seeds(table_of([("a", 0.25, 0.39), ("b", 0.0, 0.09), ("c", 0.5, 0.9)]))
    assert table.accuracy.tolist() == pytest.approx([0.40, 0.10, 0.91])
    assert table.centred.tolist() == pytest.approx([0.2, 0.1, 0.82])
    assert table.accuracy_stderr.tolist() == pytest.approx([0.03] * 3)  # seeds ask the same examples
    assert table.centred_stderr.tolist() == pytest.approx([0.04, 0.03, 0.06])
    assert table.accuracy_spread.tolist() == pytest.approx([0.01] * 3)
    (row,) = suite(table, [Task("a"), Task("b"), Task("missing")], "centred").to_dict("records")
    assert row["centred"] == pytest.approx(0.15) and row["tasks"] == 2
    assert row["stderr"] == pytest.approx(math.hypot(0.04, 0.03) / 2)
    assert row["spread"] == pytest.approx(math.hypot(0.01 / 0.75, 0.01) / 2)
    alone = over_seeds(table_of([("a", 0, 0.5)], seeds=[0]))
    assert math.isnan(suite(alone, [Task("a")], "centred").spread[0])
    assert suite(table, [Task("a", shots=1)], "loss").empty  # with examples in front it is another task
    assert math.isnan(over_seeds(table_of([("a", 0, 0.5)], seeds=[0])).loss_spread[0])
    # a task that no seed changes has no spread, and does not hide that of the others
    still = over_seeds(table_of([("b", 0, 0.09)], seeds=[0], drawn=False))
    assert still.loss_spread[0] == 0
    (row,) = suite(pd.concat([table, still.assign(task="d")]), [Task("a"), Task("d")], "centred").to_dict("records")
    assert row["spread"] == pytest.approx(0.01 / 0.75 / 2)
