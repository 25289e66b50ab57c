"""Generation ahead of itself: exact text is plain decoding's, and right guesses cost the rounds that they must."""

import math
from functools import partial

import pytest
import torch

from lib.decode.decoder import room
from lib.decode.generation import Ahead, Exit, Sampling, generate
from tests.lines import one_line
from tests.models import FAMILIES, built, config, middling, prompts_of, randomized

BLIND = [kind for kind, cfg in FAMILIES.items() if cfg.recur and cfg.injection in ("none", "hyper-connections")]
SEEING = [kind for kind in FAMILIES if kind not in BLIND]
UNMOVED = partial(Ahead, exact=False, mixed=0.0, noise=0.0)  # a guess that stays goes on as in plain decoding
GREEDY, DRAWN = Sampling(), Sampling(temperature=1.5, seed=4)


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
@pytest.mark.parametrize("kind", FAMILIES)
def test_exact_text_is_plain_decodings_token_for_token_in_any_batch(kind, sampling):
    model, prompts = built(kind), prompts_of(3, 9, 1)
    plain = generate(model, prompts, 8, sampling=sampling)
    stop = {plain[0].tokens[4], plain[2].tokens[6]}
    stopped = generate(model, prompts, 8, sampling=sampling, stop=stop)
    for loops in (n for n in (1, 2, 3) if model.cfg.mean_loops % n == 0):
        for wave, batch in ((1, 1), (1, None), (3, 2), (8, None)):
            ahead = Ahead(wave=wave, loops=loops)
            assert generate(model, prompts, 8, sampling=sampling, ahead=ahead, batch=batch) == plain
        assert generate(model, prompts, 8, None, sampling, stop, 2, ahead) == stopped


@pytest.mark.parametrize("kind", SEEING)
def test_a_text_that_nothing_moves_is_plain_decodings(kind):
    """A wave of one that sees its own token again; and one that everybody leaves after a loop."""
    model, prompts = built(kind), prompts_of(3, 9, 1)
    for leave, wave, sampling in ((None, 1, DRAWN), (Exit(math.inf), 4, GREEDY)):
        plain = generate(model, prompts, 8, leave, sampling)
        assert generate(model, prompts, 8, leave, sampling, batch=2, ahead=UNMOVED(wave=wave)) == plain
    alone = Ahead(wave=1, loops=model.cfg.mean_loops, exact=False)  # noise and mixing find nothing young or old
    assert generate(model, prompts, 8, sampling=DRAWN, ahead=alone) == generate(model, prompts, 8, sampling=DRAWN)


@pytest.mark.parametrize("kind", [kind for kind in SEEING if FAMILIES[kind].recur])
def test_text_ahead_has_all_its_tokens_in_any_batch(kind):
    model, prompts = built(kind), prompts_of(3, 9, 1)
    stop = {generate(model, prompts, 1)[0].tokens[0]}
    for leave in (Exit(middling(model)), Exit(0.03, "change", loops=8, kept_loops=1), Exit(kept_loops=3)):
        for ahead in (Ahead(wave=6, exact=False), Ahead(wave=3, exact=False, settled=2)):
            alone = [generate(model, [prompt], 9, leave, stop=stop, ahead=ahead)[0] for prompt in prompts]
            assert generate(model, prompts, 9, leave, None, stop, 2, ahead) == alone
            assert all(len(a.tokens) == 9 or a.stopped for a in alone)
            for answer in generate(model, prompts, 9, leave, DRAWN, (), 2, ahead):
                assert len(answer.tokens) == len(answer.loops) == 9 and {*answer.tokens} <= {*range(61)}
                assert {*answer.loops} <= {*range(1, 1 + (leave.loops or model.cfg.mean_loops))}


def agreeing(kind, **changes):
    """A model that predicts after every loop what it does after the first: its looped layers add nothing, and its
    head does not see the state's size."""
    model = randomized(config(kind, coda=0, **changes)).eval()
    with torch.no_grad():
        for block in model.recur:
            block.attn.out.weight.zero_()
            block.mlp.down.weight.zero_()
    return model


@pytest.mark.parametrize("loops", [1, 2, 4])
@pytest.mark.parametrize("wave", [1, 2, 3, 8])
def test_right_guesses_cost_a_round_each_and_the_last_one_its_loops(wave, loops):
    """Of n tokens n - 1 are read. One begins a round, until the wave is full: then when the oldest has left."""
    n, T = 11, 4
    (prompt,) = prompts_of(5)
    a_token = T // loops  # rounds that it is inside
    begun = (n - 2) // wave * max(a_token, wave) + (n - 2) % wave  # rounds before the last one begins
    blind = agreeing("passthrough", prelude=1, mean_loops=T)
    for model, ahead in (
        (blind, Ahead(wave=wave, loops=loops)),
        (agreeing("additive"), UNMOVED(wave=wave, loops=loops)),
    ):
        answer, plain = (generate(model, [prompt], n, ahead=way)[0] for way in (ahead, None))
        assert answer == plain and plain.passes == (n - 1) * T
        assert answer.passes == (begun + a_token) * loops
        assert wave < a_token or answer.passes == (n - 2) * loops + T


@pytest.mark.parametrize("kind", FAMILIES)
def test_who_keeps_as_many_loops_as_are_made_keeps_all_and_memory_goes_with_them(kind):
    model, prompts = built(kind), prompts_of(3, 9, 5)
    T, threshold = model.cfg.mean_loops, middling(model) if model.cfg.recur else 0.0
    every, *same = (generate(model, prompts, 6, Exit(threshold, kept_loops=kept)) for kept in (None, T, T + 2))
    assert same == [every, every]
    places = [*range(1, T + 1), None]
    sizes = [room(model, prompts, 6, Exit(kept_loops=kept)).looped.numel() for kept in places]
    assert sizes == [sizes[0] * (kept or T) for kept in places]


@pytest.mark.parametrize(
    ("kind", "ahead", "leave", "message"),
    [
        *((kind, lambda: Ahead(exact=False), None, "exact: a guess cannot change inside") for kind in BLIND[:3]),
        ("parcae", lambda: Ahead(loops=3), None, "loops: 3 a round do not divide the 4"),
        ("parcae", lambda: Ahead(wave=0), None, "wave: input should be greater than or equal to 1"),
        ("parcae", lambda: Ahead(exact=False, mixed=1), None, "mixed: input should be less than 1"),
        ("parcae", Ahead, Exit(kept_loops=3), "kept_loops: an exact answer sees the entries of all loops"),
    ],
)
def test_what_cannot_run_ahead_is_refused_in_one_line(kind, ahead, leave, message):
    with one_line(starts=message):
        generate(built(kind), prompts_of(3), 4, leave, ahead=ahead())
