"""A threshold saves the share of loops asked for, and what is timed is all the tokens and no more."""

import numpy as np
import pytest

from lib.decode import pace
from lib.decode.exits import measure_exits
from lib.decode.generation import Exit, score
from lib.model.looped import token_losses
from tests.models import built, tokens


@pytest.fixture
def model():
    return built("passthrough")


def test_a_threshold_saves_what_was_asked_for(model):
    x = tokens(12, 24)
    assert pace.exit_saving(model, x, 0) == Exit()
    for share in (0.2, 0.5):
        leave = pace.exit_saving(model, x, share)
        found = 1 - score(model, x[:, :-1], x[:, 1:], leave).loops.mean() / model.cfg.mean_loops
        assert found == pytest.approx(share, abs=0.05)  # of 276 tokens, one step of one loop is a fraction of this


def test_what_is_timed_is_all_the_tokens_and_no_more(model):
    workloads = pace.workloads(model, tokens(15, 24), batch=2, prompt=4, new_tokens=5)
    assert workloads["decoding"](Exit()) == [6] * (8 * (4 + 4))  # four prompts a place; the last token is not read
    assert list(workloads["prefill"](Exit(loops=2))) == [2] * (15 * 23)


def test_rounds_go_in_turn_after_one_to_warm_up(model):
    seen = []

    def work(leave):
        seen.append(leave.threshold)
        return [3, 3, 6] if leave.threshold else [6, 6, 6]

    rounds = pace.in_turn(work, Exit(1.0), 6, 2)
    assert seen == [0, 1] * 3 and len(rounds) == 2
    assert all(slow > 0 and fast > 0 and saved == pytest.approx(1 / 3) for slow, fast, saved in rounds)


def test_debts_are_nothing_where_nobody_leaves(model):
    x = tokens(6, 20)
    table = pace.debts(model, x, measure_exits(model, x[:, :-1], x[:, 1:]), [0.0, 0.4])
    full = np.exp(token_losses(model, x[:, :-1], x[:, 1:]).mean().item())
    assert table["decoded"][0] == pytest.approx(full, rel=1e-4) and table["counted"][0] == pytest.approx(full, rel=1e-3)
    assert table["saved"].tolist() == pytest.approx([0, 0.4], abs=0.05)
    # a random model of one vocabulary: leaving changes the loss, with debts and without, and not by the same
    assert table["decoded"][1] != pytest.approx(full, rel=1e-4) and table["counted"][1] != table["decoded"][1]
