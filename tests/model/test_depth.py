"""Sampled depths have the distributions the papers print, and a row's depth does not depend on its batch."""

import numpy as np
import pytest
from scipy import stats

from lib.config import ModelConfig
from lib.model import depth

RULES = [("fixed", 8), ("poisson", 1), ("poisson", 8), ("lognormal-poisson", 4), ("lognormal-poisson", 8)]


def totals(cfg, seed, step, rows):
    return sum(depth.DepthRule(cfg).sample(seed, step, rows))


def moments(rule):
    """Mean and variance of the total, by its distribution."""
    p = rule.distribution()
    t = np.arange(len(p))
    return p @ t, p @ t**2 - (p @ t) ** 2


@pytest.mark.parametrize("per", ["sequence", "batch"])
@pytest.mark.parametrize(("rule", "mean"), RULES)
def test_draws_follow_the_distribution_and_their_parts_have_the_expected_means(rule, mean, per):
    of = depth.DepthRule(ModelConfig(depth=rule, mean_loops=mean, backprop_loops="half", depth_per=per))
    if per == "sequence":
        n, k = of.sample(seed=0, step=0, rows=range(20_000))
    else:
        n, k = np.transpose([of.sample(0, step, range(1)) for step in range(10_000)])[0]
    expected, variance = moments(of)
    assert abs((n + k).mean() - expected) <= 4.5 * np.sqrt(variance / len(n)) + 1e-12
    assert (n + k).var() == pytest.approx(variance, rel=0.06, abs=1e-12)
    assert (n + k).min() >= 1
    assert (n.mean(), k.mean()) == pytest.approx(of.expected(), abs=0.1)


def test_poisson_moments_are_those_of_the_closed_form():
    # max(Poisson(8), 1): facts of 001's code
    rule = depth.DepthRule(ModelConfig(depth="poisson", mean_loops=8))
    p, (mean, variance) = rule.distribution(), moments(rule)
    assert mean == pytest.approx(8 + np.exp(-8), abs=1e-9)  # 8.0003
    assert variance == pytest.approx(7.9950, abs=5e-5)
    assert p[1:30] == pytest.approx(stats.poisson.pmf(np.arange(1, 30), 8) + np.eye(29)[0] * np.exp(-8), abs=1e-12)


@pytest.mark.parametrize("mean", [2, 4, 8, 16])
def test_a_mean_of_m_is_m_also_for_the_lognormal_rule(mean):
    # the published sampler adds one loop to a Poisson whose mean already is m
    expected, variance = moments(depth.DepthRule(ModelConfig(depth="lognormal-poisson", mean_loops=mean)))
    assert expected == pytest.approx(mean, rel=1e-3)
    # Var[N] = E[e^tau] + Var[e^tau] for the Poisson part
    rate = mean - 1
    assert variance == pytest.approx(rate + rate**2 * (np.exp(depth.SIGMA**2) - 1), rel=0.02)


@pytest.mark.parametrize("mean", [8, 4])
@pytest.mark.parametrize("rule", ["poisson", "lognormal-poisson"])
def test_fill_draws_the_first_loops_and_always_backpropagates_its_own(rule, mean):
    cfg = ModelConfig(depth=rule, mean_loops=mean, backprop_loops=4, fill=True)
    n, k = depth.DepthRule(cfg).sample(0, 0, range(20_000))
    assert (k == 4).all() and n.min() >= (rule == "lognormal-poisson")
    # as published: one more than its name says with the log-normal, whose Poisson has the mean m and one is added
    named = mean + (rule == "lognormal-poisson")
    expected, variance = moments(depth.DepthRule(cfg))
    assert expected == pytest.approx(named, rel=1e-3)
    assert (n + k).mean() == pytest.approx(named, abs=0.1)
    assert (n + k).var() == pytest.approx(variance, rel=0.06, abs=1e-9)
    assert depth.DepthRule(cfg).expected() == pytest.approx((named - 4, 4), rel=1e-3)


def test_on_top_of_what_was_drawn_come_the_loops_with_gradient():
    """001's released sampler per batch, measured on that code at mu_rec 8, mu_bwd 4: n 7.99, k 3.94, 11.93 in all."""
    rule = depth.DepthRule(ModelConfig(depth="poisson", mean_loops=8, backprop_loops=4, on_top=True))
    n, k = rule.sample(0, 0, range(20_000))
    assert n.min() >= 1 and (k == np.minimum(n, 4)).all()
    p, (mean, variance) = rule.distribution(), moments(rule)
    assert not p[:2].any() and p[2] > 0  # T = 1 is never trained
    assert not p[[3, 5, 7]].any() and p[8] > 0 < p[9]
    assert rule.expected() == pytest.approx((7.99, 3.94), abs=0.02) and mean == pytest.approx(11.93, abs=0.02)
    assert sum(rule.expected()) == pytest.approx(mean, rel=1e-9)
    drawn = stats.poisson.pmf(np.arange(60), 8)
    mean_k = drawn @ np.minimum(np.maximum(np.arange(60), 1), 4)
    assert rule.expected() == pytest.approx((8 + np.exp(-8), mean_k), abs=1e-9)
    assert (n.mean(), k.mean()) == pytest.approx(rule.expected(), abs=0.09)
    assert (n + k).var() == pytest.approx(variance, rel=0.06)


def test_per_batch_rows_agree_and_per_sequence_rows_do_not():
    per_batch = ModelConfig(depth="poisson", depth_per="batch")
    assert len(set(totals(per_batch, 0, 3, range(64)))) == 1
    assert len({totals(per_batch, 0, step, range(1))[0] for step in range(50)}) > 4
    together = totals(ModelConfig(depth="poisson"), 0, 3, range(64))
    apart = [totals(ModelConfig(depth="poisson"), 0, 3, range(i, i + 4)) for i in range(0, 64, 4)]
    assert len({*together}) > 4 and (together == np.concatenate(apart)).all()  # whatever the batch


def test_a_lognormal_mean_of_one_is_one_loop_and_takes_no_logarithm_of_zero():
    rule = depth.DepthRule(ModelConfig(depth="lognormal-poisson", mean_loops=1, backprop_loops=1))
    with np.errstate(all="raise"):
        n, k = rule.sample(0, 0, range(8))
        p = rule.distribution()
    assert not n.any() and (k == 1).all() and p[1] == 1 == p.sum()
