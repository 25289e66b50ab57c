"""Spectra, state norms, traces and expert choices are those worked out from weights and states directly."""

import math

import numpy as np
import pytest
import torch

from lib.config import ModelConfig
from lib.model import probes
from lib.model.looped import LoopedLM, LoopEnd
from tests.models import config, randomized, tokens


def test_spectra_are_those_of_each_injections_a_and_b_and_of_c():
    """A radius is of eigenvalues, complex ones too; a norm is the largest singular value."""
    assert probes.spectra(LoopedLM(config("parcae")))["rho"] == pytest.approx(math.sqrt(1 / 5))
    model = randomized(config("parcae", readout=True))
    measured, dt = probes.spectra(model), torch.nn.functional.softplus(model.injection.dt_bias)
    B = (dt[:, None] * model.injection.B).detach().numpy()
    assert measured["b_norm"] == pytest.approx(np.linalg.norm(B, 2), rel=1e-4)
    assert measured["c_norm"] == pytest.approx(np.linalg.norm(model.readout.weight.detach().numpy(), 2), rel=1e-4)
    base = randomized(config("base"))
    W, measured = base.injection.weight.detach().numpy(), probes.spectra(base)
    assert measured["rho"] == pytest.approx(np.abs(np.linalg.eigvals(W[:, 32:])).max(), rel=1e-4)
    assert measured["a_norm"] == pytest.approx(np.linalg.norm(W[:, 32:], 2), rel=1e-4)
    assert measured["b_norm"] == pytest.approx(np.linalg.norm(W[:, :32], 2), rel=1e-4)
    assert measured["a_norm"] >= measured["rho"] and math.isnan(measured["c_norm"])
    with torch.no_grad():
        base.injection.weight[0, 40] = float("inf")
    assert math.isnan(probes.spectra(base)["rho"])


def test_state_metrics_are_norms_per_token():
    h, before = torch.randn(2, 3, 16), torch.randn(2, 3, 16)
    measured = probes.state_metrics(LoopEnd(h, before))
    assert measured["state_norm"] == pytest.approx(h.flatten(0, 1).norm(dim=1).mean().item())
    assert measured["residual"] == pytest.approx((h - before).flatten(0, 1).norm(dim=1).mean().item())
    assert measured["state_rms"] == pytest.approx(h.square().mean().sqrt().item())


def test_looped_choices_are_those_of_the_routers():
    cfg = ModelConfig(mlp="swiglu", experts=4, active_experts=2, mean_loops=3, width=32, state_init="prelude")
    model = LoopedLM(cfg).train()
    x = torch.randint(256, (2, 10))
    choices = probes.looped_choices(model, x)
    assert list(choices) == [(1, 0), (1, 1), (1, 2)] and model.training
    states = []
    model.recur[0].mlp.register_forward_pre_hook(lambda _, inputs: states.append(inputs[0]))
    with torch.no_grad():
        model.eval()(x)
    for loop, state in enumerate(states):
        expected = (state @ model.recur[0].mlp.router.weight.T).topk(2).indices
        assert torch.equal(choices[1, loop], expected)


def test_the_radius_of_hyper_connections_is_that_of_their_lanes():
    cfg = ModelConfig(injection="hyper-connections", state_init="prelude", backprop_loops="all", mean_loops=3)
    model = LoopedLM(cfg)
    with torch.no_grad():
        model.injection.M[1] = torch.tensor([[1.0, 4.0], [0.0, 1.5]])
    metrics = probes.spectra(model)
    assert metrics["rho"] == pytest.approx(1.5) and metrics["a_norm"] > 4


@pytest.mark.parametrize("prelude_norm", [True, False])
def test_the_trace_follows_a_state_through_the_model(prelude_norm):
    model = randomized(config("parcae", prelude=2, recur=2, prelude_norm=prelude_norm, readout=True)).train()
    x = tokens()
    trace = probes.state_trace(model, x, 3)
    assert model.training
    stages = [f"{stack} {i}" for stack in ("prelude", "recur", "loop") for i in (1, 2)]
    assert {*trace} == {*stages, "e", "injection", "loop 3", "expansion"}
    model.eval()
    with torch.no_grad():
        for T in (1, 2, 3):
            _, end = model.hidden(x, T)
            assert trace[f"loop {T}"] == pytest.approx(end.state.norm(dim=-1).mean().item(), rel=1e-5)
        assert trace["loop 1"] == pytest.approx(trace["recur 2"])  # the first loop's, not the last's
        u = model.injection.inject(model.hidden(x, 1)[1].previous, model.injection.prepare(model.before(x)[0]), 0)
        assert trace["injection"] == pytest.approx(u.norm(dim=-1).mean().item(), rel=1e-5)
        C = end.state @ model.readout.weight.T
        assert trace["expansion"] == pytest.approx((C.norm(dim=-1) / end.state.norm(dim=-1)).mean().item(), rel=1e-5)
    assert (trace["e"] == trace["prelude 2"]) != prelude_norm
    assert not model.recur[0]._forward_hooks and not model.recur[0]._forward_pre_hooks


@pytest.mark.parametrize("recur", [1, 2])
def test_the_stream_is_every_state_of_the_loop(recur):
    cfg = config("passthrough", recur=recur, mean_loops=4, backprop_loops="all")
    model, x = randomized(cfg).train(), tokens()
    states = probes.stream(model, x)
    assert model.training and states.shape == (5, *x.shape, cfg.width) and not model.recur[0]._forward_hooks
    model.eval()
    with torch.no_grad():
        for T in range(1, 5):
            torch.testing.assert_close(states[T], model.hidden(x, T)[1].state)
        torch.testing.assert_close(states[0], model.before(x)[0])
    every_layer = probes.stream(model, x, every=1)
    assert len(every_layer) == 4 * recur + 1 and torch.equal(every_layer[::recur], states)


def test_cosines_are_between_increments_of_each_token():
    steps = torch.tensor([[3.0, 0.0], [0.0, 2.0], [-1.0, 0.0], [5.0, 5.0]])  # one token's increments
    other = torch.tensor([[1.0, 0.0], [7.0, 0.0], [2.0, 0.0], [4.0, 0.0]])  # another's, all parallel
    states = torch.cumsum(torch.stack((torch.zeros(5, 2), torch.ones(5, 2)), dim=1), 0) * 0
    states[1:] = torch.cumsum(torch.stack((steps, other), dim=1), 0)
    cosines = probes.increment_cosines(states[:, None])
    half = 0.5**0.5
    alone = torch.tensor([[1, 0, -1, half], [0, 1, 0, half], [-1, 0, 1, -half], [half, half, -half, 1]])
    torch.testing.assert_close(cosines, (alone + 1) / 2)
    early, last = probes.mean_cosines(alone)
    assert early == pytest.approx(-1 / 3) and last == pytest.approx(half / 3)
    assert all(map(math.isnan, probes.mean_cosines(torch.ones(1, 1))))


@pytest.mark.parametrize("kind", ["parcae", "iso-depth", "passthrough"])
def test_hidden_states_are_those_that_the_model_passes_through(kind):
    model, x = randomized(config(kind)).eval(), tokens()
    cfg, states = model.cfg, probes.hidden_states(model, x, 3)
    looped = range(cfg.prelude, cfg.prelude + cfg.recur)
    expected = [(layer, 0) for layer in range(cfg.prelude)] + [(layer, t) for t in (1, 2, 3) for layer in looped]
    assert [*states] == expected + [(layer, 0) for layer in range(cfg.prelude + cfg.recur, cfg.layers)]
    hidden, _ = model.hidden(x, 3)
    last = states[cfg.layers - 1, 0 if cfg.coda else 3]
    if cfg.coda:
        torch.testing.assert_close(model.final_norm(last), hidden)
    for (layer, t), state in states.items():  # the next layer of the same stack begins from it
        block = [*model.prelude, *model.recur, *model.coda][layer]
        if (layer - 1, t) in states and (layer - 1 in looped) == (layer in looped):
            torch.testing.assert_close(block(states[layer - 1, t], model.angles, torch.float32)[0], state)
