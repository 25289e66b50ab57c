"""Every injection is its paper's equation, and 001's starts where the paper says and is stable whatever it learns."""

import math

import pytest
import torch
import torch.nn.functional as F

from lib.config import ModelConfig
from lib.flops import count
from lib.model.injection import INJECTIONS, LTI, HyperConnections, Injection
from tests.lines import one_line


def make(**changes):
    cfg = config(**changes)
    return INJECTIONS[cfg.injection](cfg)


def config(**changes):
    return ModelConfig(**{"width": 8, "heads": 2, **changes})


def test_lti_is_zero_order_hold_for_a_and_euler_for_b():
    # in fp64: torch.matrix_exp of a stiff diagonal is off by 1e-3 in fp32, which is the reference's error, not ours
    lti = LTI(config()).double()
    with torch.no_grad():
        lti.A_log.uniform_(-2, 2)
        lti.dt_bias.uniform_(-2, 2)
        lti.B.normal_()
    h, e = torch.randn(2, 3, 5, 8, dtype=torch.float64)
    A, dt = -torch.exp(lti.A_log), F.softplus(lti.dt_bias)
    expected = torch.matrix_exp(torch.diag(dt * A)) @ h[..., None] + (dt[:, None] * lti.B) @ e[..., None]
    torch.testing.assert_close(lti.inject(h, lti.prepare(e), 0), expected[..., 0])


def test_lti_starts_where_the_paper_starts_and_is_stable_whatever_it_learns():
    lti = LTI(config())
    torch.testing.assert_close(lti.transition(), torch.full((8,), math.sqrt(1 / 5)))
    assert F.softplus(lti.dt_bias)[0].item() == pytest.approx(0.80472, abs=1e-5)
    assert lti.dt_bias[0].item() == pytest.approx(0.21194, abs=1e-5)
    assert torch.equal(lti.B, torch.eye(8)) and not lti.A_log.any()
    with torch.no_grad():
        lti.A_log.copy_(torch.linspace(-8, 4, 8))
        lti.dt_bias.copy_(torch.linspace(4, -8, 8))
    assert (lti.transition() < 1).all() and (lti.transition() >= 0).all()


def test_an_orthogonal_injection_keeps_of_the_state_what_is_orthogonal_to_it():
    orthogonal, lti = make(injection="orthogonal").double(), LTI(config()).double()
    for parameter in orthogonal.parameters():
        torch.nn.init.normal_(parameter)
    lti.load_state_dict(orthogonal.state_dict())
    h, e = torch.randn(2, 3, 5, 8, dtype=torch.float64)
    j = F.softplus(lti.dt_bias) * (e @ lti.B.T)
    u = orthogonal.inject(h, orthogonal.prepare(e), 0)
    kept = u - j
    assert (kept * j).sum(-1).abs().max() < 1e-4  # up to eps
    # with the part along j, it is Parcae's
    along = ((lti.transition() * h) * j).sum(-1, keepdim=True) / j.square().sum(-1, keepdim=True)
    torch.testing.assert_close(u + along * j, lti.inject(h, lti.prepare(e), 0), rtol=1e-4, atol=1e-4)
    assert (kept.norm(dim=-1) <= (lti.transition() * h).norm(dim=-1) + 1e-6).all()


def test_the_boundary_operator_norms_the_state_and_adds_the_prelude():
    boundary = make(injection="boundary", state_init="prelude")
    h, s, e = 3 * torch.randn(3, 2, 5, 8)
    prepared = boundary.prepare(e)
    assert torch.equal(boundary.inject(h, prepared, 0), h)
    expected = s * torch.rsqrt(s.square().mean(-1, keepdim=True) + 1e-5) + e / math.sqrt(2)
    torch.testing.assert_close(boundary.merge(h, h, s, prepared, 0), expected)
    assert not list(boundary.parameters())  # alpha is a constant


@pytest.mark.parametrize("receive", ["s - u", "s"])
def test_hyper_connections_are_their_equations(receive):
    kind = dict(injection="hyper-connections", state_init="prelude", backprop_loops="all", lanes_receive=receive)
    lanes = make(**kind, lanes=3, mean_loops=4)
    assert torch.equal(lanes.alpha, torch.eye(3)[[0, 1, 2, 0]]) and torch.equal(lanes.beta, torch.ones(4, 3))
    assert torch.equal(lanes.M, torch.eye(3).expand(4, 3, 3))
    for parameter in lanes.parameters():
        torch.nn.init.normal_(parameter)
    h, s = torch.randn(2, 5, 3, 8), torch.randn(2, 5, 8)
    u = sum(lanes.alpha[1, k] * h[:, :, k] for k in range(3))
    torch.testing.assert_close(lanes.inject(h, None, 1), u)
    # the branch with its skip taken off and the block's output itself (000, Eq. 9) are one family: M - beta alpha^T, or
    # M + beta alpha^T, takes the place of M
    other, sign = (s, -1) if receive == "s - u" else (s - u, 1)
    moved = lanes.M[1] + sign * torch.outer(lanes.beta[1], lanes.alpha[1])
    for M, fed in ((lanes.M[1], {"s - u": s - u, "s": s}[receive]), (moved, other)):
        expected = torch.stack(
            [sum(M[j, k] * h[:, :, k] for k in range(3)) + lanes.beta[1, j] * fed for j in range(3)], dim=2
        )
        torch.testing.assert_close(lanes.merge(h, u, s, None, 1), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(lanes.pool(h), h[:, :, 0] + h[:, :, 1] + h[:, :, 2])
    assert lanes.spread(s).shape == (2, 5, 3, 8)


@pytest.mark.parametrize("kind", ["none", "add", "concat", "lti"])
def test_what_is_injected_is_a_bar_h_plus_b_bar_e(kind):
    state = {"none": "prelude", "add": "zero"}.get(kind, "like-init")
    injection = make(injection=kind, state_init=state, backprop_loops="all").double()
    for parameter in injection.parameters():
        torch.nn.init.normal_(parameter)
    h, e = torch.randn(2, 3, 5, 8, dtype=torch.float64)

    def times(matrix, x):
        return x @ matrix.T if matrix.ndim == 2 else matrix * x

    expected = times(injection.transition(), h) + times(injection.driving(), e)
    torch.testing.assert_close(injection.inject(h, injection.prepare(e), 0), expected)


class Flat(Injection):
    def inject(self, h, prepared, t):
        return h.sum(-1)


class Crooked(Injection):
    def inject(self, h, prepared, t):
        return h + self.gate


@pytest.mark.parametrize(
    ("kind", "words"), [(None, "INJECTIONS"), (Flat, "shape"), (Crooked, "gate"), (HyperConnections, "per loop")]
)
def test_an_injection_that_cannot_serve_is_refused_before_anything_is_trained(kind, words, monkeypatch):
    if kind:
        monkeypatch.setitem(INJECTIONS, "new", kind)
    with one_line(words, starts="injection: "):
        count(config().model_copy(update={"injection": "new"}))
