"""Curves over test-time loops: their best T, their rise, the law that made them, and one decay for several sizes."""

import numpy as np
import pandas as pd
import pytest

from lib.papers.others import runs
from lib.papers.others.test_time_loops import RANDOM, curves, falling, laws, one_decay, shapes

T = np.arange(1.0, 13.0)


def made(loss, model="loop_grow_random", size="d6", at=T):
    about = {"group": "g", "model": model, "size": size, "trained_loops": 4.0, "loop_sampling": "random"}
    return pd.DataFrame({**about, "T": at, "loss": loss})


FORMS = {
    "exponential": 3 + 1.1 * np.exp(-0.9 * T),
    "shifted power": 3 + 2.0 * (1 + T) ** -2.5,
    "power with floor": 3 + 0.5 * T**-1.5,
}


@pytest.mark.parametrize("name", FORMS)
def test_the_law_that_made_a_curve_fits_it_best(name):
    found = laws(curves(made(FORMS[name])), 5, 0).iloc[0]
    assert found["least"] == name and found[name] < 1e-6 and found["points"] == 12
    if name == "exponential":
        assert (found["z"], found["floor"]) == pytest.approx((0.9, 3.0), rel=1e-5)
        assert (found["z low"], found["z high"]) == pytest.approx((0.9, 0.9), rel=1e-4)


def test_beyond_the_best_T_a_rise_does_not_count():
    loss = np.where(T <= 5, FORMS["exponential"], FORMS["exponential"][4] + 0.02 * (T - 5))
    shuffled = made(loss).sample(frac=1, random_state=0)
    shape = shapes(curves(shuffled)).iloc[0]
    assert (shape["best T"], shape["share"], shape["last T"]) == (5, 1.25, 12) and shape["rise"] == pytest.approx(0.14)
    found = laws(curves(shuffled), 2, 0).iloc[0]
    assert found["points"] == 5 and found["least"] == "exponential" and found["exponential"] < 1e-6


def test_what_has_no_curve_is_left_out():
    zero = made([9.0, *FORMS["exponential"]], at=[0.0, *T])
    assert len(curves(zero)) == 12
    assert curves(made([3.0, 2.9, 2.8], at=[1.0, 2.0, 3.0])).empty
    assert curves(made(FORMS["exponential"], model="untied_2")).empty
    rising = curves(made(FORMS["exponential"][::-1].copy()))
    assert falling(rising).empty and laws(rising, 2, 0).empty


def test_sizes_with_one_decay_have_it_found():
    table = pd.concat(
        [made(floor + A * np.exp(-2.0 * T), size=f"d{k}") for k, (floor, A) in enumerate([(3, 1.0), (2.8, 1.2)])]
    )
    found = one_decay(curves(table), 5, 0)
    for column in ("z", "z low", "z high"):
        assert found[column].tolist() == pytest.approx([2.0] * 4, rel=1e-3)
    assert found["Z"].tolist() == pytest.approx([1.0, 1.2] * 2, rel=1e-3)
    assert found["floor"].tolist() == pytest.approx([3.0, 2.8] * 2, rel=1e-4)


def test_one_decay_is_as_sure_as_its_sizes_agree():
    """Sizes whose own rates lie further apart give the one rate a wider interval, of noise or not."""

    def width(apart):
        rates = 2.0 + apart * np.array([-1, 0.5, 0, 1, -0.5])
        table = pd.concat([made(3 + np.exp(-z * T), size=f"d{k}") for k, z in enumerate(rates)])
        row = one_decay(curves(table), 40, 0).loc["one z"].iloc[0]
        assert row["z low"] < row["z"] < row["z high"]
        return row["z high"] - row["z low"]

    assert width(0.2) > 1.5 * width(0.1) > 0.1


@pytest.fixture(scope="module")
def published():
    return curves(runs.test_time())


def test_drawn_depths_saturate_exponentially_and_fixed_ones_rise(published):
    shape = shapes(published)
    random, fixed = (shape.xs(how, level="loop_sampling") for how in ("random", "fixed"))
    assert len(random) == 7 and random["rise"].between(0.0008, 0.0041).all() and random["share"].between(1, 1.25).all()
    assert len(fixed) == 15 and (fixed["share"] == 1).all() and fixed["rise"].min() >= 0.0079
    found = laws(published[published["model"] == RANDOM], 20, 0)
    assert (found["least"] == "exponential").all()
    for number in ("z", "floor"):
        assert ((found[f"{number} low"] < found[number]) & (found[number] < found[f"{number} high"])).all()
