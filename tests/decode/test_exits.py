"""An exit's loss is the model's at its depth, its scores their formulas; a token leaves at the first that lets it."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon

from lib.decode import exits as exiting
from lib.decode.exits import GATE, Exits, convergence, first_common, jensen_shannon, leave, measure_exits, trade_off
from lib.model.looped import token_losses
from tests.models import KINDS, config, randomized, tokens


def measured(kind, **options):
    model = randomized(config(kind)).eval()
    x = tokens()
    return model, x, measure_exits(model, x[:, :-1], x[:, 1:], **options)


@pytest.mark.parametrize("kind", KINDS)
def test_a_boundarys_loss_is_the_models_at_so_many_loops(kind, monkeypatch):
    model, x, exits = measured(kind)
    loops = model.cfg.mean_loops
    assert exits.loss.shape == (loops, x[:, 1:].numel())
    for T in range(1, loops + 1):
        expected = token_losses(model, x[:, :-1], x[:, 1:], T).flatten().numpy()
        np.testing.assert_allclose(exits.loss[T - 1], expected, rtol=1e-3, atol=1e-4)
    monkeypatch.setattr(exiting, "EXIT_TOKENS", 17)
    np.testing.assert_allclose(exiting.exits_of_rows(model, x).loss, exits.loss, rtol=1e-5, atol=1e-6)  # in parts
    assert exits.depth[-1] == 1 and (np.diff(exits.depth) > 0).all()
    assert exits.divergence[-1] == pytest.approx(0, abs=1e-5) and (exits.divergence <= 1).all()


def test_every_layer_is_an_exit_of_its_own():
    model, x, exits = measured("passthrough", every_layer=True)
    cfg = model.cfg
    layers = cfg.prelude + cfg.mean_loops * cfg.recur + cfg.coda
    assert exits.depth == pytest.approx(np.arange(1, layers + 1) / layers)
    expected = token_losses(model, x[:, :-1], x[:, 1:]).flatten().numpy()
    np.testing.assert_allclose(exits.loss[-1], expected, rtol=1e-3, atol=1e-4)
    with torch.no_grad():  # the first layer, read through the final norm and the head
        first, _ = model.recur[0](model.embed_norm(model.embed(x[:, :-1])), model.angles, torch.float32)
        logits = (model.final_norm(first) @ model.head_weight.T).flatten(0, 1)
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    np.testing.assert_allclose(exits.scores["entropy"][0], entropy.numpy(), rtol=1e-4)
    assert not model.recur[0]._forward_hooks


def test_moves_are_between_successive_exits_and_a_gate_lets_stay_who_left_at_none():
    model, x, exits = measured("gated")
    states = [state.flatten(0, 1) for _, state, _ in model.hidden_at(x[:, :-1], range(1, model.cfg.mean_loops + 1))]
    for name, first in (("kl", 1), ("l2", 1), ("acceleration", 2)):
        assert np.isnan(exits.scores[name][:first]).all() and np.isfinite(exits.scores[name][first:]).all()
    np.testing.assert_allclose(exits.scores["l2"][2], (states[2] - states[1]).norm(dim=-1).detach(), rtol=1e-4)
    acceleration = (states[2] - 2 * states[1] + states[0]).norm(dim=-1).detach()
    np.testing.assert_allclose(exits.scores["acceleration"][2], acceleration, rtol=1e-3, atol=1e-5)
    with torch.no_grad():
        p, q = (model(x[:, :-1], T).log_softmax(-1).flatten(0, 1) for T in (2, 1))
        kl = torch.nn.functional.kl_div(q, p, log_target=True, reduction="none").sum(-1)
        stays = torch.stack([1 - model.leaving(state)[:, 0] for state in states]).cumprod(0)
    np.testing.assert_allclose(exits.scores["kl"][1], kl.numpy(), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(exits.scores[GATE], stays, rtol=1e-4)


def test_the_divergence_is_jensen_and_shannons():
    p, q = torch.rand(5, 7).softmax(-1), torch.rand(5, 7).softmax(-1)
    expected = [jensenshannon(a, b, base=2) ** 2 for a, b in zip(p.numpy(), q.numpy(), strict=True)]
    assert jensen_shannon(p.log(), q.log()).tolist() == pytest.approx(expected, rel=1e-3, abs=1e-7)
    apart = torch.tensor([[0.0, -80.0]]), torch.tensor([[-80.0, 0.0]])
    assert jensen_shannon(*apart).item() == pytest.approx(1)


def test_a_token_leaves_at_the_first_exit_that_lets_it():
    scores = np.array([[3.0, 1.0, 5.0], [1.0, 0.0, 5.0], [0.0, 9.0, 9.0]])
    assert leave(scores, 2.0).tolist() == [1, 0, 2]  # the last exit takes whoever is left
    assert leave(scores, -math.inf).tolist() == [2, 2, 2] and leave(scores, math.inf).tolist() == [0, 0, 0]


def test_a_trade_off_is_what_the_thresholds_trace():
    n = 1000
    score = np.linspace(0, 1, n)
    loss, scores = np.array([1 + score, np.ones(n)]), {"entropy": np.array([score, score])}
    exits = Exits(depth=np.array([0.5, 1.0]), loss=loss, divergence=np.zeros((2, n)), scores=scores)
    # saving 2x of half the depth lets the share 2x of the tokens leave, those whose loss rises least: mean rise 2x^2
    found = trade_off(exits, "entropy", [0.0, 0.1, 0.25, 0.5, 0.6])
    expected = [math.exp(1 + (2 * x) ** 2 / 2) for x in (0, 0.1, 0.25, 0.5)]
    assert found[:4] == pytest.approx(expected, rel=2e-3) and math.isnan(found[4])
    silent = dataclasses.replace(exits, scores={"kl": np.full((2, n), math.nan)})  # who never spoke saves nothing
    assert trade_off(silent, "kl", [0.0, 0.1]) == pytest.approx([found[0], math.nan], nan_ok=True)


def test_convergence_by_layer():
    divergence = np.array([[0.9, 0.7, 0.1, 0.3], [0.2, 0.6, 0.0, 0.2], [0.0] * 4])  # two rows of two tokens
    table = convergence(Exits(np.array([1, 2, 3]) / 3, np.zeros((3, 4)), divergence, {}), 2)
    assert table["layer"].tolist() == [1, 2, 3] and table["converged"].tolist() == [0.5, 0.75, 1]
    assert table["divergence"].tolist() == pytest.approx([0.5, 0.25, 0])
    assert table["spread"].tolist() == pytest.approx([0.3, 0.15, 0])  # rows of .8 and .2, .4 and .1


def test_criteria_meet_at_the_first_exit_where_all_have_a_score():
    _, _, exits = measured("passthrough")
    assert [int(np.isfinite(scores).any(1).argmax()) for scores in exits.scores.values()] == [0, 1, 1, 2]
    assert first_common(exits) == 2
    shares = [0.0, 0.1, 0.3, 0.5, 0.7]
    late, early = (trade_off(exits, "entropy", shares, first) for first in (2, 0))
    assert late[0] == pytest.approx(early[0]) and np.isfinite(early).all()
    most = 1 - exits.depth[2]  # what leaving at the third exit saves
    assert [math.isnan(x) for x in late] == [share > most for share in shares]


def test_a_threshold_saves_what_is_asked_or_the_next_more():
    _, _, found = measured("parcae")
    for criterion in found.scores:
        assert exiting.threshold_saving(found, criterion, 0.0) == 0
        for saved in (0.05, 0.2):
            threshold = exiting.threshold_saving(found, criterion, saved)
            at = leave(found.scores[criterion], threshold)
            assert (1 - found.depth[at]).mean() >= saved or threshold == math.inf  # two exits without a score
    assert exiting.threshold_saving(found, "entropy", 0.99) == math.inf  # more than leaving at once
    below = {"kl": np.array([[math.nan, math.nan], [-1e-7, -1e-7], [0.0, 0.0]])}  # rounded
    settled = Exits(np.array([0.5, 0.75, 1.0]), found.loss[:3, :2], found.divergence[:3, :2], below)
    assert exiting.threshold_saving(settled, "kl", 0.2) > 0
