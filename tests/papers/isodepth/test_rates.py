"""Parabolas that share their curvature find rates and regrets as they were made, and their intervals cover them."""

import itertools

import numpy as np
import pandas as pd
import pytest

from lib.papers.isodepth.rates import ALLOWED, Parabolas

BASE, RATES = 0.058, (0.029, 0.058, 0.116)
BEST = {("r = 1", "d = 16"): 0.058, ("r = 1", "d = 24"): 0.08, ("r = 4", "d = 16"): 0.05, ("r = 4", "d = 24"): 0.058}
BEND = {"r = 1": 0.15, "r = 4": 0.08}
REGRET = 0.15 * np.log(0.08 / BASE) ** 2  # of r = 1 at d = 24: .0155


def curves(noise=0.0, seed=0, more=()):
    """Losses at the cpu profile's rates, two architectures in two conditions and ``more``, with noise in each run."""
    random = np.random.default_rng(seed)
    rows = [
        (group, condition, lr, 2.2 + BEND[group] * np.log(lr / best) ** 2 + random.normal(0, noise))
        for ((group, condition), best), lr in itertools.product([*BEST.items(), *more], RATES)
    ]
    return pd.DataFrame(rows, columns=["group", "condition", "lr", "loss"])


def test_without_noise_every_number_is_found():
    found = Parabolas.of(curves(), BASE, 3, 0)
    for (group, condition), best in BEST.items():
        assert found.best(group, condition) == pytest.approx([best] * 4)
    assert found.bend["r = 4"] == pytest.approx([0.08] * 4)
    assert found.level["r = 1", "d = 24"] == pytest.approx([2.2 + REGRET] * 4)
    assert found.apart(("r = 1", "r = 4"), "d = 16") == pytest.approx([np.log2(0.05 / 0.058)] * 4)
    regret = found.slope["r = 1", "d = 24"] ** 2 / (4 * found.bend["r = 1"])
    assert regret == pytest.approx([REGRET] * 4)


def test_there_is_room_where_the_base_rate_loses_little():
    found = Parabolas.of(curves(), BASE, 3, 0)
    far, near = found.room("r = 1", "d = 24"), found.room("r = 4", "d = 16")
    assert far["r = 1, d = 24, falling"][0] < 0 < far["r = 1, d = 24, rising"][0]  # a higher rate would be better
    assert min(x[0] for x in near.values()) > 0 and 0.08 * np.log(0.05 / BASE) ** 2 < ALLOWED
    assert [*near] == ["r = 4, d = 16, falling", "r = 4, d = 16, rising"]


def test_a_hill_has_no_best_rate_and_no_room():
    found = Parabolas.of(curves().assign(loss=lambda runs: 4 - runs["loss"]), BASE, 2, 0)
    assert [*found.best("r = 1", "d = 24")] == [0.0] * 3  # it falls to the left for ever
    assert min(x.min() for x in found.room("r = 1", "d = 24").values()) < 0


@pytest.mark.long
def test_intervals_cover_what_they_should():
    """93 to 97 % over 1,000 sets of curves as at cpu: four conditions of three rates for each of two architectures."""
    more = ((("r = 1", "2e10"), 0.07), (("r = 4", "2e10"), 0.06), (("r = 1", "1024"), 0.05), (("r = 4", "1024"), 0.06))
    exact, inside = Parabolas.of(curves(more=more), BASE, 1, 0), []
    for seed in range(1000):
        found = Parabolas.of(curves(0.015, seed, more), BASE, 400, seed)
        pairs = {
            "apart": [p.apart(("r = 1", "r = 4"), "d = 16") for p in (exact, found)],
            "room": [p.room("r = 1", "d = 24")["r = 1, d = 24, falling"] for p in (exact, found)],
            "larger": [p.level["r = 1", "1024"] - p.level["r = 1", "d = 16"] for p in (exact, found)],
        }
        with np.errstate(invalid="ignore"):  # ends that are infinite
            ends = {name: np.quantile(drawn[1:], [0.025, 0.975]) for name, (_, drawn) in pairs.items()}
        outside = {name: pairs[name][0][0] < low or high < pairs[name][0][0] for name, (low, high) in ends.items()}
        inside.append({name: not out for name, out in outside.items()})
    covered = pd.DataFrame(inside).mean()
    assert covered.between(0.93, 0.975).all(), covered.to_dict()
