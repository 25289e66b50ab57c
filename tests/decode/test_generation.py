"""Cached decoding gives what full recomputation gives, and draws what it is asked for."""

import copy
import math

import numpy as np
import pytest
import torch

from lib.decode import generation
from lib.decode.exits import GATE
from lib.decode.generation import Exit, Sampling, generate, score
from lib.model.looped import token_losses
from tests.lines import one_line
from tests.models import FAMILIES, LOOPED, built, prompts_of, tokens


@torch.no_grad()
def recomputed(model, prompt, new_tokens, loops=None):
    """Greedy decoding without a cache."""
    sequence = list(prompt)
    for _ in range(new_tokens):
        sequence.append(int(model(torch.tensor([sequence]), loops)[0, -1].argmax()))
    return sequence[len(prompt) :]


@pytest.mark.parametrize("way", ["served", "plain"])
@pytest.mark.parametrize("kind", FAMILIES)
def test_decoding_is_full_recomputation_token_for_token_in_any_batch(kind, way, request):
    if way == "plain":
        request.getfixturevalue("plain")
    model, prompts = built(kind), prompts_of(3, 9, 1, 5)
    expected = [recomputed(model, prompt, 4) for prompt in prompts]
    assert [answer.tokens for answer in generate(model, prompts, 4)] == expected
    for some in ([2], [1, 0], [3, 3, 2, 0]):
        answers = generate(model, [prompts[i] for i in some], 4)
        assert [answer.tokens for answer in answers] == [expected[i] for i in some]
    T = model.cfg.mean_loops
    assert answers[0].loops == [T] * 4 and answers[0].prompt_loops == [T] * 5


@pytest.mark.parametrize("kind", FAMILIES)
def test_one_pass_over_given_text_scores_as_the_model_does_also_in_blocks(kind, monkeypatch):
    model, x = built(kind), tokens()
    for scored in (generation.SCORED, 32):  # two rows at once
        monkeypatch.setattr(generation, "SCORED", scored)
        found = score(model, x[:, :-1], x[:, 1:])
        np.testing.assert_allclose(found.loss, token_losses(model, x[:, :-1], x[:, 1:]).numpy(), rtol=1e-4, atol=1e-5)


def test_a_number_of_loops_can_be_asked_for():
    model, prompts = built("parcae"), prompts_of(4, 2)
    for loops in (1, 3, 7):
        answers = generate(model, prompts, 6, Exit(loops=loops))
        assert [answer.tokens for answer in answers] == [recomputed(model, prompt, 6, loops) for prompt in prompts]
    (long,) = prompts_of(20)
    assert generate(model, [long], 5)[0].tokens == recomputed(model, long, 5)  # 24 positions predict 25th
    assert generate(model, [long], 0)[0].tokens == []


def test_in_bf16_scores_are_the_models_up_to_rounding():
    model, x = copy.deepcopy(built("passthrough")).set_precision("bf16-mixed"), tokens()
    found, exact = score(model, x[:, :-1], x[:, 1:]).loss, token_losses(model, x[:, :-1], x[:, 1:]).numpy()
    assert np.abs(found - exact).max() < 0.2 and np.abs(found - exact).mean() < 0.02


@pytest.mark.parametrize("kind", LOOPED)
def test_when_all_leave_at_once_the_model_has_one_loop(kind):
    model, prompts = built(kind), prompts_of(4, 7)
    early = generate(model, prompts, 5, Exit(threshold=math.inf))
    assert [answer.tokens for answer in early] == [recomputed(model, prompt, 5, 1) for prompt in prompts]
    assert {*early[0].loops, *early[0].prompt_loops} == {1}


# ---- what is drawn


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (dict(temperature=1.0), [0.1, 0.2, 0.3, 0.4]),
        (dict(temperature=0.5), [1 / 30, 4 / 30, 9 / 30, 16 / 30]),
        (dict(temperature=1.0, top_k=2), [0, 0, 3 / 7, 4 / 7]),
        (dict(temperature=1.0, top_p=0.75), [0, 2 / 9, 3 / 9, 4 / 9]),
        (dict(temperature=1.0, top_k=3, top_p=0.5), [0, 0, 3 / 7, 4 / 7]),
        (dict(temperature=0.0), [0, 0, 0, 1]),
    ],
)
def test_tokens_are_drawn_from_the_distribution_asked_for(rule, expected):
    logits, n = torch.tensor([0.1, 0.2, 0.3, 0.4]).log(), 4000
    draws = Sampling(**rule).draw(logits.expand(n, 4), np.random.default_rng(0).random(n).tolist())
    found = np.bincount(draws, minlength=4) / n
    np.testing.assert_allclose(found, expected, atol=4 * math.sqrt(0.25 / n))
    assert (found[np.array(expected) == 0] == 0).all()


def test_the_last_of_all_draws_is_still_a_token_that_may_be_drawn():
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    for rule, last in ((dict(), 3), (dict(top_k=2), 1), (dict(top_p=0.75), 2)):
        assert Sampling(temperature=1.0, **rule).draw(logits, [np.nextafter(1.0, 0.0)]) == [last]
        assert Sampling(temperature=1.0, **rule).draw(logits, [0.0]) == [0]
    assert Sampling(temperature=1e-310).draw(logits.flip(1), [0.5]) == [3]


def test_a_draw_depends_on_its_seed_and_row_alone():
    model, prompts = built("parcae"), prompts_of(3, 9, 5)
    warm = Sampling(temperature=1.5, seed=4)
    three = generate(model, prompts, 10, sampling=warm)
    assert generate(model, prompts[:2], 10, sampling=warm) == three[:2]
    assert generate(model, prompts, 10, sampling=Sampling(temperature=1.5, seed=5)) != three
    same = generate(model, [prompts[0]] * 2, 10, sampling=warm)
    assert same[0].tokens != same[1].tokens


def test_a_stop_token_ends_its_row_alone():
    model, prompts = built("parcae"), prompts_of(3, 9)
    plain = generate(model, prompts, 10)
    first = plain[0].tokens
    stop = next(token for token in first if token not in plain[1].tokens)
    stopped = generate(model, prompts, 10, stop=[stop])
    assert stopped[0].tokens == first[: first.index(stop)] and stopped[0].stopped
    assert stopped[1] == plain[1] and not plain[1].stopped


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: generate(m, [], 3), "prompts: one is empty"),
        (lambda m: generate(m, [[1, 61]], 3), "prompts: token 61 is not among the model's 61"),
        (lambda m: generate(m, [[1] * 20], 6), "new_tokens: 20 tokens of a prompt and 6 new ones"),
        (lambda m: generate(m, [[1]], 3, Exit(loops=0)), "loops: 0 is too few"),
        (lambda m: generate(m, [[1]], 3, Exit(0.5, GATE)), "criterion: this model has no exit gate, use one of"),
        (lambda m: Sampling(top_p=0), "top_p: input should be greater than 0"),
        (lambda m: Exit(threshold=math.nan), "threshold: nan is no score"),
        (lambda m: Exit(kept_loops=0), "kept_loops: 0 is too few"),
        (lambda m: Exit(threshold=0.1, criterion="margin"), "criterion: 'margin' is not known, use one of entropy"),
    ],
)
def test_what_cannot_be_decoded_is_refused_in_one_line(call, message):
    with one_line(starts=message):
        call(built("parcae"))
