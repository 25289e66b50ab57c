"""All choices of a question, scored in one pass, get what rows of their own give them, at every depth."""

import numpy as np
import pytest
import torch

from lib.base.errors import InputError
from lib.decode import continuations
from lib.decode.continuations import Question, score
from lib.kernels import door
from tests.models import FAMILIES, LOOPED, built, config, randomized


def questions_of(*shapes, seed=5):
    """One for each (length of the prefix, lengths of the choices...)."""
    generator = np.random.default_rng(seed)
    parts = [[generator.integers(0, 61, n).tolist() for n in shape] for shape in shapes]
    return [Question(prefix, choices) for prefix, *choices in parts]


@torch.no_grad()
def alone(model, prefix, choice, loops=None, state_seed=0):
    """A choice in a row of its own: its negative log-likelihood, and whether it is greedy."""
    row = torch.tensor([[*prefix, *choice]])
    ((_, _, hidden),) = model.hidden_at(row[:, :-1], [loops or model.cfg.mean_loops], state_seed)
    logits = model.logits(hidden)[0, len(prefix) - 1 :]
    target = row[0, len(prefix) :]
    return -logits.log_softmax(-1).gather(1, target[:, None]).sum().item(), bool((logits.argmax(-1) == target).all())


QUESTIONS = questions_of((7, 3, 1, 5), (1, 2, 2), (12, 9), (20, 4, 1), (3, 1, 1, 1, 1), (16, 1))
ONE = QUESTIONS[2]  # which has one choice


@pytest.mark.parametrize("few", [0, 1 << 20], ids=["kernels", "plain"])
@pytest.mark.parametrize("kind", FAMILIES)
def test_choices_score_what_rows_of_their_own_give_them(kind, few, monkeypatch):
    monkeypatch.setattr(door, "FEW", few)
    model = built(kind)
    ((T, found),) = score(model, QUESTIONS).items()
    assert model.cfg.mean_loops == T
    for question, scored in zip(QUESTIONS, found, strict=True):
        expected = [alone(model, question.prefix, choice) for choice in question.choices]
        np.testing.assert_allclose(scored.nll, [nll for nll, _ in expected], rtol=2e-5, atol=2e-5)
        assert scored.greedy.tolist() == [greedy for _, greedy in expected]
        assert scored.tokens.tolist() == [len(choice) for choice in question.choices]
        assert scored.cut == 0


@pytest.mark.parametrize("kind", sorted({"parcae", "values", "looped-moe"} & {*LOOPED}))
def test_depths_in_one_pass_are_passes_of_their_own(kind):
    model = built(kind)
    together = score(model, QUESTIONS, [3, 1, 2])
    assert [*together] == [1, 2, 3]
    for T, found in together.items():
        for one, other in zip(found, score(model, QUESTIONS, [T])[T], strict=True):
            np.testing.assert_array_equal(one.nll, other.nll)
    np.testing.assert_allclose(together[2][2].nll, [alone(model, ONE.prefix, ONE.choices[0], loops=2)[0]], rtol=1e-5)


def test_another_seed_is_another_random_state():
    model = built("parcae")
    found = [score(model, [ONE], [1], state_seed=seed)[1][0].nll[0] for seed in (0, 7)]
    expected = [alone(model, ONE.prefix, ONE.choices[0], loops=1, state_seed=seed)[0] for seed in (0, 7)]
    assert found == pytest.approx(expected, rel=1e-5) and found[0] != found[1]


def test_the_batch_changes_nothing(monkeypatch):
    model = built("nanochat")
    whole = score(model, QUESTIONS)
    for size in (1, 40):
        monkeypatch.setattr(continuations, "ROW_TOKENS", size)
        monkeypatch.setattr(continuations, "LOGITS", 61 * size)
        for one, other in zip(whole.popitem()[1], score(model, QUESTIONS).popitem()[1], strict=True):
            np.testing.assert_allclose(one.nll, other.nll, rtol=1e-5)
        whole = score(model, QUESTIONS)


@pytest.mark.parametrize("shape", [(12, 4, 2), (9, *[3] * 20)], ids=["long", "many choices"])
def test_prompts_that_do_not_fit_lose_their_left_end_and_say_how_much(shape):
    """And many choices lie in a row longer than the context."""
    model, (question,) = randomized(config("parcae", context=10)).eval(), questions_of(shape)
    (scored,) = score(model, [question])[model.cfg.mean_loops]
    room = 10 + 1 - shape[1]  # the last token is predicted, not read
    assert scored.cut == shape[0] - room
    expected = [alone(model, question.prefix[-room:], choice)[0] for choice in question.choices]
    np.testing.assert_allclose(scored.nll, expected, rtol=1e-5)


def test_a_choice_as_long_as_the_context_keeps_its_right_end():
    model, (question,) = randomized(config("parcae", context=10)).eval(), questions_of((3, 14, 2))
    (scored,) = score(model, [question])[model.cfg.mean_loops]
    long, short = question.choices
    expected = [alone(model, long[3:4], long[4:])[0], alone(model, question.prefix, short)[0]]
    np.testing.assert_allclose(scored.nll, expected, rtol=1e-5)
    assert scored.cut == 3 + 14 - 11 and scored.tokens.tolist() == [10, 2]


def test_bad_questions_are_refused():
    for question in (Question([], [[1]]), Question([1], [[2], []]), Question([1], []), Question([1], [[61]])):
        with pytest.raises(InputError, match=r"number 1 has no prefix, or a choice|token 61 of number 1"):
            score(built("parcae"), [QUESTIONS[0], question])
