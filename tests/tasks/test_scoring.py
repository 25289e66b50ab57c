"""A task scores what each answer scores in a row of its own, and each norm chooses as its name says."""

import math

import numpy as np
import pytest

from lib.base.errors import InputError
from lib.tasks.scoring import Answer, ask, encode, fitting, scores
from lib.tasks.suites import Example, Task, prompt
from lib.text.tokenizer import BPETokenizer, ByteTokenizer, train_bpe
from tests.decode.test_continuations import alone
from tests.models import config, randomized

BYTES = ByteTokenizer()
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


@pytest.mark.parametrize(("norm", "best"), [("token", 0), ("character", 1), ("whole", 1), ("unconditional", 1)])
def test_norms_choose_as_their_names_say(norm, best):
    nll = (1.0, 4.5) if norm == "unconditional" else (4.0, 3.0)
    found = [scores(Task("t", norm=norm), [two(*nll)], [gold])["accuracy"] for gold in (0, 1)]
    assert found == [best == 0, best == 1]


def test_scores_of_known_numbers():
    found = scores(Task("t"), [two(4.0, 3.0), two(2.0, 8.0)], [0, 1])
    assert found["accuracy"] == 0.5 and found["accuracy_stderr"] == pytest.approx(0.5)
    assert found["loss"] == pytest.approx((4 / 4 + 8 / 2) / 2) and found["loss_stderr"] == pytest.approx(1.5)
    assert found["token_perplexity"] == pytest.approx(math.exp(12 / 6))
    # of a ratio: residuals 4 - 2 * 4 and 8 - 2 * 2 about 2 nats a token, over 6 tokens
    assert found["token_perplexity_stderr"] == pytest.approx(math.exp(2) * math.sqrt(2 * (16 + 16)) / 6)
    assert found["word_perplexity"] == pytest.approx(math.exp(12 / 3))
    assert math.isnan(scores(Task("t"), [two(4.0, 3.0)], [0])["accuracy_stderr"])
    assert scores(Task("t"), [two(math.nan, math.nan)], [0])["accuracy"] == 0  # a model that blew up is never right


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


def test_what_fits_is_what_is_not_cut(model):
    task, context = Task("t", shots=1), model.cfg.context
    lengths = [context - 20, context - 19, context - 18, 8]  # of a question; before it come 16 tokens, after it 3
    examples = [Example(("x" * n,), ("y.",)) for n in lengths]
    long = [Example((f"{i} " * 80,), ("x",)) for i in range(3)]
    assert ask(model, BYTES, Task("t"), [*long, *TEXTS])[model.cfg.mean_loops]["cut"] == 3
    for k in (1, 2, 3, 4):
        own = [Example(("a" * 4,), ("bb",)), *examples[k - 1 : k]]
        asked = ask(model, BYTES, task, own)[model.cfg.mean_loops]
        assert len(own) - asked["cut"] == len(fitting(BYTES, task, own, 0, context))
    options = [Example(("x" * 100,), ("y", "z" * 40)), Example(("x",), ("y", "z"))]
    assert fitting(BYTES, Task("t"), options, 0, context) == [1]  # with all of its options


def test_spaces_before_an_answer_belong_to_it(tmp_path):
    train_bpe(["the cat sat on the mat, the dog sat on the log. " * 50], 300, tmp_path / "t.json")
    bpe = BPETokenizer(tmp_path / "t.json")
    pairs = encode(bpe, [("the cat ", "sat"), ("the cat", " sat"), ("the cat ", "sat on")])
    assert pairs[0] == pairs[1] and pairs[0][0] == pairs[2][0]
    assert bpe.decode(pairs[2][1]) == " sat on"
    with pytest.raises(InputError, match="no token of its own"):
        encode(bpe, [("the", "")])


def test_what_is_likely_anyway_counts_less(model):
    found = ask(model, BYTES, Task("t", norm="unconditional"), CHOICES)[model.cfg.mean_loops]
    right = []
    for example in CHOICES:
        gains = [naive(model, context, text)[0] - naive(model, "Answer:", text)[0] for context, text in example.options]
        right.append(np.argmin(gains) == example.gold)
    assert found["accuracy"] == pytest.approx(np.mean(right))
