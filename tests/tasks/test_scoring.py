"""A task scores what each answer scores in a row of its own, and a run is asked once and goes on where it stopped."""

import math

import numpy as np
import pandas as pd
import pytest

from lib.base.errors import InputError
from lib.model.looped import LoopedLM
from lib.store.runs import RunStore
from lib.sweep import measurements
from lib.sweep.training import sweep
from lib.tasks import scoring
from lib.tasks.primitives import DEPTH, PROBES
from lib.tasks.scoring import (
    Answer,
    Subject,
    ask,
    encode,
    evaluate,
    evaluations,
    examples_of,
    frame,
    laid_out,
    load,
    over_seeds,
    scores,
    suite,
)  # fmt: skip
from lib.tasks.suites import CORE, Example, Task, prompt
from lib.text.tokenizer import BPETokenizer, ByteTokenizer, train_bpe
from tests.decode.test_continuations import alone
from tests.models import config, randomized
from tests.runs import small_run

BYTES = ByteTokenizer()
RUN, OTHER = small_run(), small_run(train={"seed": 1})
CHOICES = [
    Example((f"The {a} is",), (f"a {a}.", "nothing at all, it seems.", "so so"), i % 3)
    for i, a in enumerate(["cat", "dog", "house", "sea", "sky", "rat"])
]
SCHEMAS = [Example(("Ann met Bea, but Ann", "Ann met Bea, but Bea"), ("left.",), 1), Example(("x", "y"), ("z",), 0)]
TEXTS = [Example(("one, two,",), ("three",)), Example(("a, b,",), ("c",))]


@pytest.fixture(scope="module")
def model():
    return randomized(config("parcae", vocab_size=256, context=128)).eval()


def naive(model, context, continuation, **more):
    """A continuation in a row of its own, byte by byte: its loss and whether it is greedy."""
    return alone(model, [BYTES.bos, *context.rstrip().encode()], (" " + continuation).encode(), **more)


# ---- one task


@pytest.mark.parametrize(("examples", "shots"), [(CHOICES, 0), (CHOICES, 1), (SCHEMAS, 0), (TEXTS, 1)])
def test_a_task_scores_what_rows_of_their_own_give(model, examples, shots):
    task = Task("t", shots=shots)
    ((T, found),) = ask(model, BYTES, task, examples, seed=4).items()
    assert model.cfg.mean_loops == T
    right, losses = [], []
    for i, example in enumerate(examples):
        options = prompt(task, examples, i, seed=4)
        each = [naive(model, context, text, state_seed=4) for context, text in options]
        mean = [nll / (len(text.encode()) + 1) for (nll, _), (_, text) in zip(each, options, strict=True)]
        right.append(np.argmin(mean) == example.gold if len(options) > 1 else each[0][1])
        losses.append(mean[example.gold])
    n = len(examples)
    assert found["n"] == n and found["cut"] == 0
    assert found["accuracy"] == pytest.approx(np.mean(right))
    assert found["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert found["loss_stderr"] == pytest.approx(np.std(losses, ddof=1) / math.sqrt(n), rel=1e-4)


def test_greedy_answers_are_exact_matches(model):
    from lib.decode.generation import generate

    (answer,) = generate(model, [[BYTES.bos, *b"one, two,"]], 4)
    text = bytes(answer.tokens).decode("latin-1")
    tokens = [Example(("one, two,",), (text,))]

    class Latin(ByteTokenizer):
        def encode_batch(self, texts):
            return [np.frombuffer(text.encode("latin-1"), dtype=np.uint8) for text in texts]

    assert ask(model, Latin(), Task("t", answer=""), tokens)[model.cfg.mean_loops]["accuracy"] == 1
    other = [tokens[0]._replace(continuations=(text[:3] + chr((ord(text[3]) + 1) % 250),))]
    assert ask(model, Latin(), Task("t", answer=""), other)[model.cfg.mean_loops]["accuracy"] == 0


def two(*nll):
    """Answers of 4 and 2 tokens, 2 and 8 letters, with losses of 1 and 5 by themselves."""
    return [
        Answer(loss, tokens, False, False, text, alone)
        for loss, tokens, text, alone in zip(nll, (4, 2), ("no", "yes, sir"), (1.0, 5.0), strict=True)
    ]


@pytest.mark.parametrize(
    ("norm", "nll", "best"),
    [
        ("token", (4.0, 3.0), 0),
        ("character", (4.0, 3.0), 1),
        ("whole", (4.0, 3.0), 1),
        ("unconditional", (1.0, 4.5), 1),
    ],
)
def test_norms_choose_as_their_names_say(norm, nll, best):
    task = Task("t", norm=norm)
    assert [scores(task, [two(*nll)], [gold])["accuracy"] for gold in (0, 1)] == [best == 0, best == 1]


def test_scores_of_known_numbers():
    found = scores(Task("t"), [two(4.0, 3.0), two(2.0, 8.0)], [0, 1])
    assert found["accuracy"] == 0.5 and found["accuracy_stderr"] == pytest.approx(0.5)
    assert found["loss"] == pytest.approx((4 / 4 + 8 / 2) / 2) and found["loss_stderr"] == pytest.approx(1.5)
    assert found["token_perplexity"] == pytest.approx(math.exp(12 / 6))
    # of a ratio: residuals 4 - 2 * 4 and 8 - 2 * 2 about 2 nats a token, over 6 tokens
    assert found["token_perplexity_stderr"] == pytest.approx(math.exp(2) * math.sqrt(2 * (16 + 16)) / 6)
    assert found["word_perplexity"] == pytest.approx(math.exp(12 / 3))
    assert math.isnan(scores(Task("t"), [two(4.0, 3.0)], [0])["accuracy_stderr"])


def test_a_model_that_blew_up_is_never_right():
    assert scores(Task("t"), [two(math.nan, math.nan)], [0])["accuracy"] == 0


def test_what_is_likely_anyway_counts_less(model):
    task = Task("t", norm="unconditional")
    found = ask(model, BYTES, task, CHOICES)[model.cfg.mean_loops]
    right = []
    for example in CHOICES:
        gains = [naive(model, context, text)[0] - naive(model, "Answer:", text)[0] for context, text in example.options]
        right.append(np.argmin(gains) == example.gold)
    assert found["accuracy"] == pytest.approx(np.mean(right))


def test_a_document_is_read_in_windows_to_its_end(model):
    text = "It was a dark and stormy night. " * 9
    found = ask(model, BYTES, Task("t"), [Example(("",), (text,))])[model.cfg.mean_loops]
    tokens, nll = [BYTES.bos, *text.encode()], 0.0
    n, C = len(text), model.cfg.context
    for at in range(0, n, C):
        end = min(at + C, n)
        given = tokens[max(0, end - C) : at + 1]  # the last window looks back as far as it can
        nll += alone(model, given, tokens[at + 1 : end + 1])[0]
    assert found["token_perplexity"] == pytest.approx(math.exp(nll / n), rel=1e-5)
    assert found["word_perplexity"] == pytest.approx(math.exp(nll / len(text.split())), rel=1e-5)
    assert found["cut"] == 0


def test_prompts_that_are_cut_are_counted(model):
    long = [Example((f"{i} " * 80,), ("x",)) for i in range(3)]
    assert ask(model, BYTES, Task("t"), [*long, *TEXTS])[model.cfg.mean_loops]["cut"] == 3


def test_depths_are_asked_together(model):
    found = ask(model, BYTES, Task("t"), CHOICES, depths=[1, 3])
    assert [*found] == [1, 3]
    assert found[3] == ask(model, BYTES, Task("t"), CHOICES, depths=[3])[3] != found[1]


def test_spaces_before_an_answer_belong_to_it(tmp_path):
    train_bpe(["the cat sat on the mat, the dog sat on the log. " * 50], 300, tmp_path / "t.json")
    bpe = BPETokenizer(tmp_path / "t.json")
    pairs = encode(bpe, [("the cat ", "sat"), ("the cat", " sat"), ("the cat ", "sat on")])
    assert pairs[0] == pairs[1] and pairs[0][0] == pairs[2][0]
    assert bpe.decode(pairs[2][1]) == " sat on"
    with pytest.raises(InputError, match="no token of its own"):
        encode(bpe, [("the", "")])


def test_neighbours_share_their_context():
    pairs = [([1, 2], [3]), ([1, 2], [4, 5]), ([2], [3]), ([1, 2], [6])]
    questions, places = laid_out(pairs, 9, 16)
    assert [question.prefix for question in questions] == [[9, 1, 2], [9, 2], [9, 1, 2]]
    assert places == [[(0, 0)], [(0, 1)], [(1, 0)], [(2, 0)]]


# ---- runs


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
    monkeypatch.setattr(scoring, "ask", lambda *a, real=scoring.ask: count.append(1) or real(*a))
    found = measurements.measure(evaluate, cases, store, jobs=1)
    assert len(count) == 7 and found[:5] == first
    table = frame(cases, found)
    assert {*table.columns} >= {"subject", "task", "shots", "seed", "T", "chance", "accuracy", "loss", "n", "cut"}
    model, tokenizer = load(subjects[0], str(store.path))
    expected = ask(model, tokenizer, SOME[0], examples_of(SOME[0]), 0, 20)[model.cfg.mean_loops]
    assert table.iloc[0].loss == pytest.approx(expected["loss"])
    # the three seeds draw other states, and in front of parities other examples
    assert table[table.subject == RUN.key].groupby("task").loss.nunique().tolist() == [3, 3]


def test_a_key_is_of_what_decides_the_numbers(store, tmp_path):
    (subject,) = [Subject.of_run(RUN)]
    (case,) = evaluations([subject], store, SOME[:1], [0], limit=20)
    (moved,) = evaluations([subject], RunStore(tmp_path / "elsewhere"), SOME[:1], [0], limit=20)
    assert measurements.key(case) == measurements.key(moved)
    for change in (
        dict(seed=1),
        dict(limit=21),
        dict(shots=1),
        dict(depths=(1,)),
        dict(content="x"),
        dict(subject="y"),
    ):
        assert measurements.key(case) != measurements.key(case.model_copy(update=change))


def test_what_a_source_does_not_have_is_left_out(store, tmp_path):
    assert evaluations([Subject.of_run(RUN)], store, CORE[:3], [0], source=str(tmp_path)) == []


def test_a_checkpoint_is_asked_like_a_run(store, tmp_path):
    run = Subject.of_run(RUN)
    path = store.find(RUN).path / "model.safetensors"
    checkpoint = Subject.of_checkpoint(path)
    assert checkpoint.model == run.model and checkpoint.key != run.key
    cases = evaluations([run, checkpoint], store, SOME[:1], [0], limit=10)
    one, other = measurements.measure(evaluate, cases, store, jobs=1)
    assert one == other
    model = LoopedLM(config("parcae", vocab_size=61))
    model.save(tmp_path / "small.safetensors")
    with pytest.raises(InputError, match="tokenizer: bytes has 256 entries, the checkpoint 61"):
        load(Subject.of_checkpoint(tmp_path / "small.safetensors"), "")


# ---- suites


def table_of(accuracies, seeds=(0, 1, 2), drawn=True):
    rows = [
        dict(subject="s", task=task, shots=0, limit=9, seed=seed, T=4, chance=chance, n=100, cut=0, loss=2 - accuracy,
             loss_stderr=0.02, accuracy=accuracy + 0.01 * seed, accuracy_stderr=0.03, drawn=drawn)
        for task, chance, accuracy in accuracies for seed in seeds
    ]  # fmt: skip
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
