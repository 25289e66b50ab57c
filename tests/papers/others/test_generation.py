"""Ways to write are compared text by text, and caches read what the model says."""

import numpy as np

from lib.decode.generation import Exit, score
from lib.model.looped import token_losses
from lib.papers.others import generation
from tests.models import built, tokens


def test_ways_are_compared_with_plain_text():
    model, x = built("parcae"), tokens(3, 12).numpy()
    ways = [{}, {"ahead": {"wave": 4}}, {"leave": {"loops": 1}}, {"ahead": {"exact": False, "wave": 3}}]
    found = generation.of_rows(model, x, 5, 7, 1, ways)
    plain, exact, one, parallel = ({name: np.array(of[i]) for name, of in found.items()} for i in range(4))
    for same in (plain, exact):
        assert (same["strays"] == 0).all() and (same["differ"] == 0).all() and (same["first"] == 1).all()
        np.testing.assert_allclose(same["regret"], 0, atol=1e-9)
    np.testing.assert_allclose(exact["loss"], plain["loss"])
    assert (plain["passes"] == 6 * 4 / 7).all() and (one["passes"] == 6 / 7).all() and (one["differ"] > 0).any()
    for other in (
        one,
        parallel,
    ):  # a text of one's own differs from where it first does, and not by less than it strays
        assert ((other["first"] + other["differ"] <= 1 + 1e-9) & (other["regret"] >= 0)).all()
        assert (other["strays"][other["differ"] == 0] == 0).all()
    assert all((of["seconds"] > 0).all() for of in (plain, exact, one, parallel))


def test_read_one_by_one_a_token_sees_what_those_before_it_have_left():
    model, x = built("parcae"), tokens(3, 12)
    all_kept = score(model, x[:, :-1], x[:, 1:], one_by_one=True)
    np.testing.assert_allclose(all_kept.loss, token_losses(model, x[:, :-1], x[:, 1:]).numpy(), rtol=1e-4, atol=1e-5)
    last = score(model, x[:, :-1], x[:, 1:], Exit(kept_loops=1), one_by_one=True).loss
    np.testing.assert_allclose(last[:, 0], all_kept.loss[:, 0], rtol=1e-4)  # nobody stands before the first
    assert np.abs(last - all_kept.loss).max() > 1e-4
