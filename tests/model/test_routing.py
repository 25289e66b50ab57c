"""Experts shared between loops are counted as sets, and their chance is that of all pairs of tokens."""

import math

import pytest
import torch

from lib.model.probes import looped_choices
from lib.model.routing import by_chance, divergence, divergence_by_pair, overlap
from tests.models import config, randomized, tokens


def choices(n, experts, k, seed=0):
    return torch.rand(n, experts, generator=torch.Generator().manual_seed(seed)).topk(k).indices


def test_a_tokens_experts_are_a_set_and_partial_is_one_or_two_of_three():
    first = torch.tensor([[[0, 1], [2, 3], [4, 5], [6, 7]]])
    second = torch.tensor([[[1, 0], [3, 4], [5, 4], [0, 1]]])
    assert overlap(first, second) == {"none": 0.25, "partial": 0.25, "identical": 0.5}
    first, second = torch.tensor([[0, 1, 2]] * 4), torch.tensor([[3, 4, 5], [2, 3, 4], [4, 1, 0], [2, 1, 0]])
    assert overlap(first, second) == {"none": 0.25, "partial": 0.5, "identical": 0.25}


def test_chance_at_even_load_is_hypergeometric():
    E, k = 8, 2
    found = by_chance(choices(20_000, E, k), choices(20_000, E, k, seed=1))
    expected = [math.comb(k, m) * math.comb(E - k, k - m) / math.comb(E, k) for m in range(k + 1)]  # 15/28, 12/28, 1/28
    assert list(found.values()) == pytest.approx(expected, abs=0.01)


def test_chance_keeps_the_load_and_forgets_who_chose():
    """Brute force over all pairs of tokens; and a shuffle of one loop's tokens changes nothing."""
    first, second = choices(40, 5, 2) // 2, choices(40, 5, 2, seed=1)  # an uneven load, with doubled experts
    first = torch.stack((first[:, 0], (first[:, 0] + 1) % 5), 1)
    kept = (first[:, None, :, None] == second[None, :, None, :]).sum((-1, -2)).flatten()
    found = by_chance(first, second)
    assert list(found.values()) == pytest.approx([(kept == m).double().mean().item() for m in range(3)])
    assert by_chance(first, second[torch.randperm(40)]) == pytest.approx(found)
    assert by_chance(first, first)["identical"] < 1 == overlap(first, first)["identical"]


def test_every_layer_and_pair_of_loops_has_a_row():
    chosen = looped_choices(randomized(config("experts", recur=2, mean_loops=3)).eval(), tokens())
    rows = divergence(chosen)
    expected = [(layer, s, t) for layer in (2, 3) for s, t in ((1, 2), (1, 3), (2, 3))]
    assert [(row["layer"], row["first"], row["second"]) for row in rows] == expected
    for row in rows:
        a, b = (chosen[row["layer"] - 1, row[name] - 1] for name in ("first", "second"))
        assert row["identical"] == overlap(a, b)["identical"]
        assert sum(row[kind] for kind in ("none", "partial", "identical")) == pytest.approx(1)
    means = divergence_by_pair(chosen)
    first = [row["none by chance"] for row in rows if (row["first"], row["second"]) == (1, 3)]
    assert means["none by chance 1-3"] == pytest.approx(sum(first) / 2) and len(means) == 3 * 6
