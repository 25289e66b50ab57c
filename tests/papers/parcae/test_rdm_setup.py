"""Which runs train and the margins between architectures are those of a known table."""

import math

import numpy as np
import pandas as pd
import pytest

from lib.papers.parcae import rdm_setup
from lib.papers.parcae.parameters import EndToEnd, Instability
from tests.cells import function
from tests.given import given

octaves_between, octaves_past, radius_margins = (
    function("instability", name) for name in ("octaves_between", "octaves_past", "radius_margins")
)
LADDER = [1.0, 2.0, 4.0]
#: of which the lowest that fails, by seed
LOWEST = pd.DataFrame({"a": [2.0, 2.0], "b": [4.0, 4.0], "c": [math.inf, math.inf]}, index=[1, 2])


@pytest.fixture
def frame():
    """Two seeds; a fails from 2 on, b from 4 on, c never."""
    rows = [
        (f"{architecture}{seed}{lr}", architecture, seed, lr, lr if architecture == "a" else 0.5, lr < limit)
        for seed in (1, 2)
        for architecture, limit in (("a", 2), ("b", 4), ("c", math.inf))
        for lr in LADDER
    ]
    return pd.DataFrame(rows, columns=["key", "architecture", "seed", "lr", "rho_max", "trains"])


def test_distances_are_octaves_and_the_top_understates():
    assert octaves_between(LOWEST, "a", "b", LADDER) == [1, 1]
    assert octaves_between(LOWEST, "b", "a", LADDER) == [-1, -1]
    assert octaves_between(LOWEST, "b", "c", LADDER) == [0, 0]


def test_what_the_ladder_does_not_tell_apart_has_no_distance():
    assert np.isnan(octaves_between(LOWEST, "c", "c", LADDER)).all()  # neither fails
    assert np.isnan(octaves_between(LOWEST, "a", "a", [2.0, 4.0])).all()  # both at once
    assert octaves_between(LOWEST, "a", "b", [2.0, 4.0]) == [1, 1]
    assert np.isnan(octaves_past(LOWEST, "c", "c", LADDER)).all()


def test_past_is_counted_from_the_last_rate_that_trains():
    assert octaves_past(LOWEST, "a", "b", LADDER) == [0, 0]  # b trains at 2, where a fails
    assert octaves_past(LOWEST, "a", "c", LADDER) == [1, 1]
    assert octaves_past(LOWEST, "c", "a", LADDER) == [-2, -2]
    paper = pd.DataFrame({"base": [4e-4], "parcae": [np.inf]})
    (octaves,) = octaves_past(paper, "base", "parcae", [2e-4, 4e-4, 6e-4, 8e-4, 1e-3])
    assert octaves == pytest.approx(math.log2(2.5))


def test_radius_margins(frame):
    # a's failing runs have radii 2 and 4, its training one 1
    failing = radius_margins(frame, "a", False, [1, 2])
    assert failing == {
        "nearest rate": pytest.approx([math.log(2)] * 2),
        "other rates": pytest.approx([math.log(4)] * 2),
    }
    assert radius_margins(frame, "a", True, [1, 2]) == {"nearest rate": [0, 0]}
    near = frame.assign(rho_max=frame["rho_max"].where(frame["lr"] < 2, 0.9))
    training = radius_margins(near, "b", True, [1, 2])  # at 1 and at 2, which is nearer to where it fails
    assert training["nearest rate"] == pytest.approx([-math.log(0.9)] * 2)
    assert training["other rates"] == pytest.approx([math.log(2)] * 2)
    assert radius_margins(frame, "b", False, [1, 2])["nearest rate"] == pytest.approx([math.log(0.5)] * 2)
    assert np.isnan(radius_margins(frame, "c", False, [1, 2])["nearest rate"]).all()
    # the mean of the others is no comparison where a seed has none
    assert "other rates" not in radius_margins(frame[frame["key"] != "a24.0"], "a", False, [1, 2])


SETUP = given(Instability, width=32, mlp_width=64, mean_loops=4, backprop_loops=2, steps=12, warmup_steps=2)


def test_parcae_and_the_rdm_differ_in_their_architecture_alone():
    p = given(EndToEnd, rdm_sizes={32: 1, 64: 1}, rdm_lr=0.01, seeds=[3, 4])
    runs = rdm_setup.against_rdm(p, SETUP.replace(architectures=["base", "parcae"]))
    assert {label[0] for label in runs} == {"residual-norm", "parcae"} and len(runs) == 8
    assert runs["parcae", 32, 3] == rdm_setup.run(SETUP, "parcae", 0.01, 3)
    ours, theirs = runs["parcae", 64, 4], runs["residual-norm", 64, 4]
    assert (ours.model.heads, ours.model.mlp_width) == (theirs.model.heads, theirs.model.mlp_width) == (4, 128)
    assert ours.optim == theirs.optim and ours.data == theirs.data and ours.train == theirs.train
    without = rdm_setup.against_rdm(p, SETUP.replace(architectures=["base", "parcae-rdm"]))
    assert {label[0] for label in without} == {"residual-norm", "parcae-rdm"}


def test_each_size_of_the_rdm_has_its_loop_steps_and_rate():
    p = given(EndToEnd, rdm_sizes={32: 1, 64: 2}, rdm_loops_at={64: 5}, rdm_lr=0.01, rdm_lr_at={64: 0.02}, rdm_steps=24)
    small, large = (rdm_setup.of_size(p, SETUP, d, "parcae", 3) for d in (32, 64))
    assert (small.model.recur, small.model.mean_loops, small.model.max_backprop_loops) == (1, 4, 2)
    assert (large.model.recur, large.model.mean_loops, large.model.max_backprop_loops) == (2, 5, 3)
    assert (small.train.steps, small.optim.lr, large.train.steps, large.optim.lr) == (24, 0.01, 24, 0.02)
    assert rdm_setup.of_size(p.replace(rdm_steps=0), SETUP, 32, "parcae", 3).train.steps == SETUP.steps
    assert rdm_setup.of_size(p.replace(rdm_steps_at={32: 7}), SETUP, 32, "parcae", 3).train.steps == 7
