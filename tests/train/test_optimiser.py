"""AdamW, Muon and MuonH are their equations, and each parameter has the optimiser and rate the papers give it."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from lib.base.errors import InputError
from lib.config import ModelConfig, OptimConfig
from lib.model.looped import Draw, LoopedLM
from lib.train.optimiser import AdamW, Muon, Optimizer, Placement, orthogonalize, placements, schedule, settling


def placement(optimizer: str, lr: float, weight_decay: float, name: str = "p") -> Placement:
    return Placement(name, "matrix", (4, 3), "normal", 1.0, optimizer, 1.0, lr, weight_decay, 1e-8)


def test_schedule_warms_up_stays_and_falls_to_zero():
    cfg = OptimConfig(warmup_steps=4, cooldown_steps=5)
    rates = [schedule(cfg, 20, step) for step in range(20)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert set(rates[4:15]) == {1.0}
    assert rates[15:] == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])
    assert schedule(OptimConfig(), 20, 19) == 1.0
    # 004: constant, then 1 - sqrt(t) to 5 % over the last tenth
    cfg = OptimConfig(warmup_steps=10, cooldown_steps=100, cooldown="sqrt", final=0.05)
    rates = np.array([schedule(cfg, 1000, step) for step in range(1000)])
    assert set(rates[10:901]) == {1.0}
    t = (np.arange(900, 1000) - 900) / 100
    assert rates[900:] == pytest.approx(0.05 + 0.95 * (1 - np.sqrt(t)))


def test_each_role_has_its_rate():
    model = LoopedLM(ModelConfig(injection="hyper-connections", state_init="prelude", backprop_loops="all", tied=False))
    optim = OptimConfig(name="muonh", lr=1.0, embedding_lr=2.0, head_lr=3.0, norm_lr=4.0, lanes_lr=5.0, muon_lr=6.0)
    rates = {p.name: p.lr for p in placements(model, optim)}
    named = {"embed.weight": 2, "head.weight": 3, "final_norm.weight": 4, "recur.0.mlp_norm.weight": 4}
    named |= {"injection.alpha": 5, "injection.M": 5, "injection.beta": 5, "recur.0.mlp.up.weight": 6}
    assert {name: rates[name] for name in named} == named
    assert {p.lr for p in placements(model, OptimConfig(lr=0.5))} == {0.5}


def test_adamw_is_torchs():
    """Bit for bit, also where a parameter gets its first gradient late."""
    drawn = torch.Generator().manual_seed(0)
    start = [torch.randn(5, 3, generator=drawn), torch.randn(7, generator=drawn)]
    ours, theirs = ([nn.Parameter(value.clone()) for value in start] for _ in range(2))
    cfg = OptimConfig(lr=0.1, betas=(0.8, 0.95), eps=1e-8)
    optimizer = AdamW(cfg, {placement("adamw", 0.1, 0.2, name=f"p{i}"): p for i, p in enumerate(ours)})
    reference = torch.optim.AdamW(theirs, lr=0.1, betas=(0.8, 0.95), eps=1e-8, weight_decay=0.2, fused=True)
    for step in range(5):
        for mine, other in list(zip(ours, theirs, strict=True))[: 1 + (step > 1)]:
            mine.grad = torch.randn(mine.shape, generator=drawn)
            other.grad = mine.grad.clone()
        optimizer.step(1.0)
        reference.step()
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.equal(mine, other)


def test_experts_are_matrices_to_muon_and_the_router_is_adamws():
    cfg = ModelConfig(mlp="swiglu", experts=4, active_experts=2, width=32, heads=2, mlp_width=64)
    model = LoopedLM(cfg)
    optimizer = Optimizer(model, OptimConfig(name="muon", muon_lr=0.01, muon_weight_decay=0.0, muon_cautious=False), 1)
    where = {p.name: p for p in optimizer.placements}
    assert where["recur.0.mlp.up"].optimizer == "muon" and where["recur.0.mlp.router.weight"].optimizer == "adamw"
    before = model.recur[0].mlp.up.detach().clone()
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    grad = model.recur[0].mlp.up.grad.clone()
    optimizer.step(0)
    for i in range(4):
        update = before[i] - model.recur[0].mlp.up[i]
        direction = orthogonalize(grad[i])
        cosine = (update * direction).sum() / update.norm() / direction.norm()
        assert cosine > 0.98  # each expert by itself, but for the variance reduction


def test_placement_follows_the_papers_table():
    cfg = ModelConfig(width=32, heads=2, value_embeddings=True, readout=True, prelude_norm=True, tied=False)
    where = {p.name: p for p in placements(LoopedLM(cfg), OptimConfig(name="muon", lr=1e-3))}
    for name, placement in where.items():
        matrix = name.endswith(("q.weight", "k.weight", "v.weight", "attn.out.weight", "up.weight", "down.weight"))
        assert placement.optimizer == ("muon" if matrix else "adamw"), name
        if placement.optimizer == "adamw":
            assert placement.weight_decay == 0 and placement.lr == 1e-3
    # lr x sqrt(max(1, rows / columns)): the up-projection is tall
    assert where["recur.0.mlp.up.weight"].lr == pytest.approx(8e-3 * math.sqrt(256 / 32))
    assert where["recur.0.mlp.down.weight"].lr == pytest.approx(8e-3)
    assert {"injection.B", "injection.A_log", "readout.weight", "embed.weight", "head.weight"} <= set(where)
    # what Muon would take is what AdamW decays where there is no Muon
    decayed = {p.name for p in placements(LoopedLM(cfg), OptimConfig(weight_decay=0.1)) if p.weight_decay}
    assert decayed == {name for name, placement in where.items() if placement.optimizer == "muon"}
    assert decayed and all(name.split(".")[0] in ("prelude", "recur", "coda") for name in decayed)


@pytest.mark.parametrize("kind", ["muon", "muonh"])
def test_a_concatenating_injection_is_a_matrix_or_adamws(kind):
    """001's table has injection parameters under AdamW, 000 gives every matrix to MuonH."""

    def injected(model, **optim):
        rows = placements(model, OptimConfig(name=kind, lr=0.5, muon_lr=2.0, **optim))
        return {p.name: (p.optimizer, p.lr) for p in rows if p.name.startswith("injection")}

    concat = ModelConfig(injection="concat")
    assert injected(concat, injection="matrix") == {"injection.weight": (kind, 2.0)}
    assert injected(concat, injection="adamw") == {"injection.weight": ("adamw", 0.5)}
    assert injected(concat, injection="adamw", injection_lr=3.0) == {"injection.weight": ("adamw", 3.0)}
    # of Parcae's injection AdamW has all that there is, whatever becomes of a W
    parcae = injected(ModelConfig(), injection_lr=3.0)
    assert parcae == {f"injection.{name}": ("adamw", 3.0) for name in ("A_log", "dt_bias", "B")}


def adamw_by_hand(p, gradients, lr, b1, b2, eps, wd, clip):
    m = v = np.zeros_like(p)
    for t, g in enumerate(gradients, start=1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        m_hat, v_hat = m / (1 - b1**t), v / (1 - b2**t)
        rate = lr / max(1.0, math.sqrt(np.mean(g * g / np.maximum(v_hat, eps**2)))) if clip else lr
        p = p * (1 - rate * wd) - rate * m_hat / (np.sqrt(v_hat) + eps)
    return p


def test_adamw_with_clipped_updates_is_its_equations():
    """Also without an eps, as 001 has it: an entry that never had a gradient is then 0 / 0."""
    cfg = OptimConfig(lr=0.1, betas=(0.8, 0.9), eps=1e-8, update_clipping=True)
    random = np.random.default_rng(0)
    # a gradient that jumps, so that clipping has something to do
    gradients = [random.normal(size=(4, 3)) * (50 if t == 3 else 1) for t in range(6)]
    start = random.normal(size=(4, 3))
    p = nn.Parameter(torch.tensor(start, dtype=torch.float64))
    optimizer = AdamW(cfg, {placement("adamw", 0.1, 0.05): p})
    for g in gradients:
        p.grad = torch.tensor(g, dtype=torch.float64)
        optimizer.step(1.0)
    expected = adamw_by_hand(start, gradients, 0.1, 0.8, 0.9, 1e-8, 0.05, True)
    np.testing.assert_allclose(p.detach().numpy(), expected, rtol=1e-6)
    assert not np.allclose(expected, adamw_by_hand(start, gradients, 0.1, 0.8, 0.9, 1e-8, 0.05, False))
    p = nn.Parameter(torch.zeros(4, 3))
    optimizer = AdamW(cfg.replace(eps=1e-30), {placement("adamw", 0.1, 0.0): p})
    for size in (1.0, 50.0):
        p.grad = torch.full((4, 3), size)
        p.grad[0] = 0
        optimizer.step(1.0)
    assert torch.isfinite(p).all() and not p[0].any()


def test_independent_decay_does_not_depend_on_the_rate():
    shrunk = {}
    for lr in (1e-3, 1e-1):
        for decay in ("coupled", "independent"):
            p = nn.Parameter(torch.ones(4, 3))
            optimizer = AdamW(OptimConfig(lr=lr, decay=decay), {placement("adamw", lr, 0.05): p})
            p.grad = torch.zeros(4, 3)
            optimizer.step(0.5)
            shrunk[lr, decay] = 1 - p[0, 0].item()
    assert shrunk[1e-3, "independent"] == pytest.approx(0.5 * 0.05, rel=1e-3)
    assert shrunk[1e-1, "independent"] == pytest.approx(0.5 * 0.05, rel=1e-3)
    assert shrunk[1e-1, "coupled"] == pytest.approx(0.5 * 0.05 * 0.1, rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(32, 96), (128, 32)])
def test_orthogonalized_matrices_have_singular_values_near_one(shape, dtype):
    torch.manual_seed(0)
    singular = torch.linalg.svdvals(orthogonalize(torch.randn(3, *shape) * 1e-3, dtype=dtype))
    # Polar Express in bf16 leaves about 1 +- 0.2 on matrices that are not nearly singular
    big = singular[:, : int(0.9 * singular.shape[1])]
    assert big.min() > 0.75 and singular.max() < 1.25
    # it keeps the singular vectors: U V^T
    u, _, v = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    spread = u @ torch.diag(torch.linspace(1, 2, min(shape))) @ v
    torch.testing.assert_close(orthogonalize(spread), u @ v, rtol=0.2, atol=0.06)


def test_muon_is_momentum_then_orthogonalisation_with_the_norm_kept():
    cfg = OptimConfig(name="muon", muon_lr=0.02, muon_weight_decay=0.0, muon_cautious=False)
    torch.manual_seed(0)
    p = nn.Parameter(torch.randn(24, 16))
    muon = Muon(cfg, {placement("muon", 0.02, 0.0): p})
    momentum, variance, expected = torch.zeros(24, 16), torch.zeros(24, 1), p.detach().clone()
    for step in range(4):
        gradient = torch.randn(24, 16, generator=torch.Generator().manual_seed(step))
        p.grad = gradient.clone()
        muon.step(1.0, step, decay_factor=1.0)
        momentum = 0.95 * momentum + 0.05 * gradient
        update = orthogonalize(0.05 * gradient + 0.95 * momentum, dtype=torch.float32)  # Nesterov
        variance = 0.95 * variance + 0.05 * update.square().mean(1, keepdim=True)
        reduced = update / variance.sqrt()
        expected = expected - 0.02 * reduced * update.norm() / reduced.norm()
        torch.testing.assert_close(p.detach(), expected, rtol=1e-3, atol=1e-4)


def test_momentum_warms_up_from_085():
    cfg, p = OptimConfig(name="muon", muon_momentum_warmup=10), nn.Parameter(torch.randn(4, 4))
    muon = Muon(cfg, {placement("muon", 0.02, 0.0): p})
    p.grad = torch.ones(4, 4)
    muon.step(1.0, 4, 1.0)  # half-way: 0.90
    torch.testing.assert_close(muon.stacks["4x4"].momentum[0], torch.full((4, 4), 0.10))
    p.grad = torch.ones(4, 4)
    muon.step(1.0, 30, 1.0)
    torch.testing.assert_close(muon.stacks["4x4"].momentum[0], torch.full((4, 4), 0.10 + 0.05 * 0.9))


def test_muonh_keeps_every_norm_and_turns_by_its_rate():
    cfg = ModelConfig(
        width=32, heads=2, mlp_width=64, init="uniform", injection="concat-identity", state_init="prelude"
    )
    model = LoopedLM(cfg).train()
    optimizer = Optimizer(model, OptimConfig(name="muonh", muon_lr=0.05, lr=1e-3), steps=20)
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    x = torch.randint(256, (2, 17), generator=torch.Generator().manual_seed(0))
    for step in range(20):
        model.loss(x[:, :-1], x[:, 1:], draw=Draw(0, step, range(2)))[0].backward()
        optimizer.step(step)
        model.zero_grad()
        if step == 0:
            first = {name: p.detach().clone() for name, p in model.named_parameters()}
    on_sphere = [p.name for p in optimizer.placements if p.optimizer == "muonh"]
    assert "injection.weight" in on_sphere and "recur.0.mlp.down.weight" in on_sphere
    with pytest.raises(InputError, match=r"muonh keeps norms, but .* starts at norm 0"):
        Optimizer(LoopedLM(cfg.replace(init="uniform-zero")), OptimConfig(name="muonh"), 1)
    for name in on_sphere:
        p = dict(model.named_parameters())[name]
        assert p.norm().item() == pytest.approx(start[name].norm().item(), rel=1e-5)
        cosine = (first[name] * start[name]).sum() / start[name].norm() ** 2
        assert math.tan(math.acos(min(1.0, cosine.item()))) == pytest.approx(0.05, rel=0.15)
        assert not torch.allclose(p, start[name], rtol=0.1)


@pytest.mark.parametrize("cautious", [True, False])
def test_cautious_decay_touches_only_what_the_update_shrinks(cautious):
    cfg = OptimConfig(name="muon", muon_weight_decay=0.5, muon_cautious=cautious)
    torch.manual_seed(0)
    start, gradient = torch.randn(16, 16), torch.randn(16, 16)
    ends = {}
    for decay in (0.0, 1.0):
        p = nn.Parameter(start.clone())
        p.grad = gradient.clone()
        Muon(cfg, {placement("muon", 0.1, 0.5): p}).step(1.0, 0, decay)
        ends[decay] = p.detach()
    agrees = (start - ends[0.0]) * start >= 0
    decayed = start * agrees if cautious else start
    torch.testing.assert_close(ends[1.0], ends[0.0] - 0.05 * decayed, rtol=1e-4, atol=1e-5)
    assert 0.2 < agrees.float().mean() < 0.8


@pytest.mark.parametrize("threads", [1, 2])  # with the kernels, and without
def test_clipping_scales_the_gradients_to_the_norm(threads):
    model = LoopedLM(ModelConfig(width=32))
    optimizer = Optimizer(model, OptimConfig(clip=1.0), 10)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 2.0)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        had = optimizer.clip_gradients()
        assert had == pytest.approx(2 * sum(p.numel() for p in model.parameters()) ** 0.5, rel=1e-4)
        assert optimizer.clip_gradients() == pytest.approx(1.0, rel=1e-4)
        model.embed.weight.grad[0, 0] = torch.nan
        assert optimizer.clip_gradients() != optimizer.clip_gradients()
    finally:
        torch.set_num_threads(before)


def test_rates_begin_again_where_a_model_has_grown():
    factors = [settling(400, step, 300) for step in range(400)]
    assert set(factors[:300]) == {1.0} and set(factors[310:]) == {1.0}
    assert factors[300:310] == pytest.approx(np.arange(10) / 10)  # a fortieth of 400 steps
    assert {settling(400, step, 0) for step in range(400)} == {1.0}
