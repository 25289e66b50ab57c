"""Sampled depths have the distributions the papers print, and a row's depth does not depend on its batch."""

import functools

import numpy as np
import pytest
from scipy import stats

from lib.config import ModelConfig
from lib.model import depth

RULES = [
    ("fixed", 8),
    ("poisson", 1),
    ("poisson", 4),
    ("poisson", 8),
    ("lognormal-poisson", 4),
    ("lognormal-poisson", 8),
]


@functools.cache
def drawn(rule, mean):
    """(n, k) of 20 000 rows."""
    cfg = ModelConfig(depth=rule, mean_loops=mean, backprop_loops="half")
    return depth.DepthRule(cfg).sample(seed=0, step=0, rows=range(20_000))


def totals(cfg, seed, step, rows):
    return sum(depth.DepthRule(cfg).sample(seed, step, rows))


@pytest.mark.parametrize(("rule", "mean"), RULES)
def test_draws_follow_the_distribution(rule, mean):
    draws = sum(drawn(rule, mean))
    p = depth.DepthRule(ModelConfig(depth=rule, mean_loops=mean)).distribution()
    t = np.arange(len(p))
    expected, variance = p @ t, p @ t**2 - (p @ t) ** 2
    assert abs(draws.mean() - expected) <= 4.5 * np.sqrt(variance / len(draws)) + 1e-12
    assert draws.var() == pytest.approx(variance, rel=0.06, abs=1e-12)
    assert draws.min() >= 1


def test_poisson_moments_are_those_of_the_closed_form():
    # max(Poisson(8), 1): facts of 001's code
    p = depth.DepthRule(ModelConfig(depth="poisson", mean_loops=8)).distribution()
    t = np.arange(len(p))
    mean = p @ t
    assert mean == pytest.approx(8 + np.exp(-8), abs=1e-9)  # 8.0003
    assert p @ t**2 - mean**2 == pytest.approx(7.9950, abs=5e-5)
    assert p[1:30] == pytest.approx(stats.poisson.pmf(np.arange(1, 30), 8) + np.eye(29)[0] * np.exp(-8), abs=1e-12)


@pytest.mark.parametrize("mean", [2, 4, 8, 16])
def test_a_mean_of_m_is_m_also_for_the_lognormal_rule(mean):
    # the published sampler adds one loop to a Poisson whose mean already is m
    p = depth.DepthRule(ModelConfig(depth="lognormal-poisson", mean_loops=mean)).distribution()
    t = np.arange(len(p))
    assert p @ t == pytest.approx(mean, rel=1e-3)
    # Var[N] = E[e^tau] + Var[e^tau] for the Poisson part
    rate = mean - 1
    assert p @ t**2 - (p @ t) ** 2 == pytest.approx(rate + rate**2 * (np.exp(depth.SIGMA**2) - 1), rel=0.02)


@pytest.mark.parametrize(
    ("rule", "mean", "backprop"),
    [("poisson", 8, 4), ("poisson", 4, 4), ("lognormal-poisson", 8, 4), ("lognormal-poisson", 4, 4)],
)
def test_fill_draws_the_first_loops_and_always_backpropagates_its_own(rule, mean, backprop):
    cfg = ModelConfig(depth=rule, mean_loops=mean, backprop_loops=backprop, fill=True)
    n, k = depth.DepthRule(cfg).sample(0, 0, range(20_000))
    assert (k == backprop).all() and n.min() >= (rule == "lognormal-poisson")
    # as published: one more than its name says with the log-normal, whose Poisson has the mean m and one is added
    named = mean + (rule == "lognormal-poisson")
    p = depth.DepthRule(cfg).distribution()
    t = np.arange(len(p))
    assert p @ t == pytest.approx(named, rel=1e-3)
    assert (n + k).mean() == pytest.approx(named, abs=0.1)
    assert (n + k).var() == pytest.approx(p @ t**2 - (p @ t) ** 2, rel=0.06, abs=1e-9)
    assert depth.DepthRule(cfg).expected() == pytest.approx((named - backprop, backprop), rel=1e-3)


def test_on_top_of_what_was_drawn_come_the_loops_with_gradient():
    """001's released sampler per batch, measured on that code at mu_rec 8, mu_bwd 4: n 7.99, k 3.94, 11.93 in all."""
    rule = depth.DepthRule(ModelConfig(depth="poisson", mean_loops=8, backprop_loops=4, on_top=True))
    n, k = rule.sample(0, 0, range(20_000))
    assert n.min() >= 1 and (k == np.minimum(n, 4)).all()
    p = rule.distribution()
    t = np.arange(len(p))
    assert not p[:2].any() and p[2] > 0  # T = 1 is never trained
    assert not p[[3, 5, 7]].any() and p[8] > 0 < p[9]
    assert rule.expected() == pytest.approx((7.99, 3.94), abs=0.02) and p @ t == pytest.approx(11.93, abs=0.02)
    assert sum(rule.expected()) == pytest.approx(p @ t, rel=1e-9)
    drawn = stats.poisson.pmf(np.arange(60), 8)
    mean_k = drawn @ np.minimum(np.maximum(np.arange(60), 1), 4)
    assert rule.expected() == pytest.approx((8 + np.exp(-8), mean_k), abs=1e-9)
    assert (n.mean(), k.mean()) == pytest.approx(rule.expected(), abs=0.09)
    assert (n + k).var() == pytest.approx(p @ t**2 - (p @ t) ** 2, rel=0.06)


def test_per_batch_rows_agree_and_per_sequence_rows_do_not():
    per_batch = ModelConfig(depth="poisson", depth_per="batch")
    assert len(set(totals(per_batch, 0, 3, range(64)))) == 1
    assert len({totals(per_batch, 0, step, range(1))[0] for step in range(50)}) > 4
    assert len(set(totals(ModelConfig(depth="poisson"), 0, 3, range(64)))) > 4


@pytest.mark.parametrize("rule", ["poisson", "lognormal-poisson"])
def test_per_batch_draws_follow_the_distribution_as_well(rule):
    cfg = ModelConfig(depth=rule, depth_per="batch", mean_loops=6)
    draws = np.array([totals(cfg, 0, step, range(2))[0] for step in range(10_000)])
    p = depth.DepthRule(cfg).distribution()
    t = np.arange(len(p))
    assert draws.mean() == pytest.approx(p @ t, abs=0.15)
    assert draws.var() == pytest.approx(p @ t**2 - (p @ t) ** 2, rel=0.08)


def test_a_rows_depth_does_not_depend_on_the_batch():
    cfg = ModelConfig(depth="poisson")
    together = totals(cfg, 1, 7, range(16))
    apart = np.concatenate([totals(cfg, 1, 7, range(i, i + 4)) for i in range(0, 16, 4)])
    assert (together == apart).all()


def test_split_puts_the_gradient_on_the_last_loops():
    n, k = depth.split(np.array([1, 3, 4, 9]), 4)
    assert n.tolist() == [0, 0, 0, 5] and k.tolist() == [1, 3, 4, 4]
    n, k = depth.split(np.array([1, 9]), None)
    assert n.tolist() == [0, 0] and k.tolist() == [1, 9]


@pytest.mark.parametrize(("rule", "mean"), RULES)
def test_expected_loops_are_those_of_many_draws(rule, mean):
    cfg = ModelConfig(depth=rule, mean_loops=mean, backprop_loops="half")
    n, k = drawn(rule, mean)
    expected_n, expected_k = depth.DepthRule(cfg).expected()
    assert n.mean() == pytest.approx(expected_n, abs=0.1)
    assert k.mean() == pytest.approx(expected_k, abs=0.1)


def test_a_lognormal_mean_of_one_is_one_loop_and_takes_no_logarithm_of_zero():
    rule = depth.DepthRule(ModelConfig(depth="lognormal-poisson", mean_loops=1, backprop_loops=1))
    with np.errstate(all="raise"):
        n, k = rule.sample(0, 0, range(8))
        p = rule.distribution()
    assert not n.any() and (k == 1).all() and p[1] == 1 == p.sum()
