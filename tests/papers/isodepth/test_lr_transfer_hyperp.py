"""Parabolas that share their curvature are found as they were made, and their intervals cover what is read off."""

import itertools

import numpy as np
import pandas as pd
import pytest

from tests.cells import function, run

parabolas = function("lr_transfer_hyperp", "parabolas")

BASE, RATES = 0.058, (0.029, 0.058, 0.116)
BEST = {("r = 1", "d = 16"): 0.058, ("r = 1", "d = 24"): 0.08, ("r = 4", "d = 16"): 0.05, ("r = 4", "d = 24"): 0.058}
BEND = {"r = 1": 0.15, "r = 4": 0.08}


def curves(noise=0.0, seed=0, more=(), way=1):
    """Losses at the cpu profile's rates, two architectures in two conditions and ``more``, with noise in each run."""
    random = np.random.default_rng(seed)
    rows = [
        (group, condition, lr, 2.2 + way * BEND[group] * np.log(lr / best) ** 2 + random.normal(0, noise))
        for ((group, condition), best), lr in itertools.product([*BEST.items(), *more], RATES)
    ]
    return pd.DataFrame(rows, columns=["group", "condition", "lr", "loss"])


@pytest.mark.parametrize("way", [1, -1])
def test_a_rate_has_room_where_the_base_rate_loses_less_than_its_share(way):
    """Two architectures whose loss is a parabola in log rate, on three rates; turned over it has no best rate."""
    p = dict(muon_lr=BASE, resamples=3, seed=0, recurrences=[1, 4])
    p |= dict(budget=1e9, batch=8, context=64)  # other names of the reference
    of = dict(frame=curves(way=way).assign(axis="width"), reference="d = 16", said=str, unit="FLOPs", look=BEND)
    found = run("lr_transfer_hyperp", "def parabolas(", "level, slope, bend = parabolas(", p=p, **of)
    for (group, condition), best in BEST.items():
        away = np.log(best / BASE)
        assert found.slope[group, condition].tolist() == pytest.approx([-2 * way * BEND[group] * away] * 4)
        assert found.level[group, condition].tolist() == pytest.approx([2.2 + way * BEND[group] * away**2] * 4)
    for group, true in BEND.items():
        assert found.bend[group].tolist() == pytest.approx([way * true] * 4)
    if way < 0:
        assert np.isinf(found.at_reference["r = 4"]).all()  # it falls to the right for ever
        assert min(found.room[f"r = 1, d = 24, {way}"].max() for way in ("falling", "rising")) < 0
        return
    assert found.at_reference["r = 4"].tolist() == pytest.approx([0.05] * 4)
    assert found.apart.tolist() == pytest.approx([np.log2(0.05 / BASE)] * 4)
    regret = 0.15 * np.log(0.08 / BASE) ** 2  # .0155, more than .005
    lost = found.slope["r = 1", "d = 24"] ** 2 / (4 * found.bend["r = 1"])
    assert lost.tolist() == pytest.approx([regret] * 4)
    assert found.room["r = 1, d = 24, falling"][0] < 0 < found.room["r = 1, d = 24, rising"][0]  # better higher up
    assert 0 < found.room["r = 4, d = 24, falling"][0] == pytest.approx(found.room["r = 4, d = 24, rising"][0])


@pytest.mark.long
def test_intervals_cover_what_they_should():
    """93 to 97 % over 1,000 sets of curves as at cpu: four conditions of three rates for each of two architectures."""
    more = ((("r = 1", "2e10"), 0.07), (("r = 4", "2e10"), 0.06), (("r = 1", "1024"), 0.05), (("r = 4", "1024"), 0.06))

    def read(noise: float, n: int, seed: int) -> pd.DataFrame:
        level, slope, bend = parabolas(curves(noise, seed, more), BASE, n, seed)
        first, second = (-slope[group, "d = 16"] / (2 * bend[group].where(bend[group] > 0)) for group in BEND)
        room = np.sqrt(0.02 * bend["r = 1"].clip(lower=0)) + slope["r = 1", "d = 24"]
        larger = level["r = 1", "1024"] - level["r = 1", "d = 16"]
        return pd.DataFrame({"apart": second - first, "room": room, "larger": larger})

    exact, inside = read(0, 1, 0).loc[0], []
    for seed in range(1000):
        low, high = (read(0.015, 400, seed).loc[1:].quantile(at) for at in (0.025, 0.975))
        inside.append((low <= exact) & (exact <= high))
    covered = pd.DataFrame(inside).mean()
    assert covered.between(0.93, 0.975).all(), covered.to_dict()
