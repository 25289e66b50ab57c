"""Every parameter starts, and its rate scales, as its paper says, and under muP activations ignore the width."""

import itertools
import math

import numpy as np
import pytest
import torch

from lib.config import ModelConfig, OptimConfig
from lib.flops import count
from lib.model import parameterisation
from lib.model.looped import LoopedLM, token_losses
from lib.presets import preset
from lib.train.optimiser import Optimizer, placements
from tests.lines import one_line
from tests.models import config


def on_meta(cfg: ModelConfig) -> LoopedLM:
    with torch.device("meta"):
        return LoopedLM(cfg, seed=None)


UNIT, WIDE = math.sqrt(2 / (5 * 128)), dict(width=128, heads=2, mlp_width=512)
#: a model, and the standard deviations that its paper states
STARTS = {
    "uniform": (
        ModelConfig(**WIDE, tied=False, init="uniform"),
        {"embed": 1, "head": 1e-3, "attn.q": 128**-0.5, "attn.out": 128**-0.5, "mlp.down": 512**-0.5},
    ),
    "uniform-zero": (
        preset("looped-nanochat-s8", vocab_size=2048, width=128, heads=1, mlp_width=512),
        {"embed": 1, "head": 1e-3, "attn.q": 128**-0.5, "mlp.up": 128**-0.5, "attn.out": 0, "mlp.down": 0},
    ),
    "scaled": (  # branch outputs by the effective depth
        config("base", **WIDE, mean_loops=4),
        {"attn.q": UNIT, "injection": UNIT, "attn.out": UNIT / 12**0.5, "mlp.down": UNIT / 12**0.5},
    ),
    "normal": (
        preset("residual-L12-N1", vocab_size=256, width=64, heads=2, recur=1, init_std=0.07),
        dict.fromkeys(("embed", "attn.q", "attn.out", "mlp.gate", "mlp.down"), 0.07),
    ),
    "mup": (  # what reads the width
        preset("looped-moe-512", vocab_size=512, mlp_width=512, recur=2),
        dict.fromkeys(("head", "attn.q", "attn.k", "attn.v", "attn.out"), 0.01)
        | {"embed": 0.02, "mlp.router": 0.01, "mlp.gate": 0.01, "mlp.up": 0.01, "mlp.down": 0.01},
    ),
}


@pytest.mark.parametrize("kind", STARTS)
def test_every_parameter_starts_at_its_papers_size(kind):
    cfg, expected = STARTS[kind]
    assert cfg.init == kind
    weights = {name.removeprefix("recur.0.").removesuffix(".weight"): p for name, p in LoopedLM(cfg).named_parameters()}
    assert {name: weights[name].std().item() for name in expected} == pytest.approx(expected, rel=0.02)
    if kind.startswith("uniform"):  # bounded, unlike a normal
        assert 0.99 < weights["attn.q"].abs().max().item() / math.sqrt(3 / 128) <= 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "loss", "off"), [("parcae-140m", 10.6255, 0.05), ("looped-nanochat-s8", 11.092, 0.01)]
)
def test_a_model_starts_at_the_loss_of_its_papers_code(name, loss, off):
    """Near the entropy of its vocabulary, 10.3972 and 11.0904; Parcae's at any loop count."""
    model = LoopedLM(preset(name)).eval()
    x = torch.randint(model.cfg.vocab_size, (1, 513), generator=torch.Generator().manual_seed(0))
    losses = [token_losses(model, x[:, :-1], x[:, 1:], n).mean().item() for n in (1, 4, 8)]
    assert losses == pytest.approx([loss] * 3, abs=off) and max(losses) - min(losses) < 1e-3


def test_parcae_starts_as_001s_code():
    cfg = preset("parcae-140m", vocab_size=2048, prelude=1, recur=1, coda=1)
    model, u = LoopedLM(cfg), math.sqrt(2 / (5 * 768))
    start = {p.name: p.init for p in placements(cfg, OptimConfig())}
    for name, weight in model.named_parameters():
        if start[name] == "truncated orthogonal":
            assert weight.std().item() == pytest.approx(u, rel=0.02), name
    assert start["embed.weight"] == start["recur.0.mlp.up.weight"] == "truncated orthogonal"
    assert not model.recur[0].attn.out.weight.any() and not model.recur[0].mlp.down.weight.any()
    gates = torch.cat([block.attn.gate.weight for block in [*model.prelude, *model.coda] if block.attn.gate])
    assert 0.95 / math.sqrt(32) < gates.abs().max().item() <= 1 / math.sqrt(32)
    assert gates.std().item() == pytest.approx(1 / math.sqrt(96), rel=0.08)  # .102; the code's own draw has .107


def test_a_cut_normal_keeps_what_lies_inside_whatever_torchs_version():
    """And is, to the last bit, what the committed runs of torch 2.13 began with."""
    drawn = torch.empty(300, 200).normal_(std=0.2, generator=torch.Generator().manual_seed(5))
    cut = parameterisation._cut_normal(torch.empty(300, 200), 0.2, 2, torch.Generator().manual_seed(5))
    inside = drawn.abs() <= 0.4
    assert (~inside).sum() > 0 and torch.equal(cut[inside], drawn[inside]) and cut.abs().max() <= 0.4
    assert cut[~inside].unique().numel() == (~inside).sum()
    if torch.__version__ >= "2.13":
        theirs = torch.empty(300, 200)
        torch.nn.init.trunc_normal_(theirs, 0, 0.2, -0.4, 0.4, torch.Generator().manual_seed(5))
        assert torch.equal(cut, theirs)


def test_a_concatenating_injection_is_i_and_zero_or_001s_normal_cut_at_three_sigma():
    identity = LoopedLM(config("iso-depth")).injection.weight
    assert torch.equal(identity, torch.cat((torch.eye(32), torch.zeros(32, 32)), 1))
    weight = LoopedLM(config("base", width=256, heads=2, init="parcae")).injection.weight
    u = math.sqrt(2 / (5 * 256))
    assert 2.9 * u < weight.abs().max().item() <= 3 * u and weight.std().item() == pytest.approx(0.987 * u, rel=0.01)
    singular = torch.linalg.svdvals(weight)
    assert singular.max() > 2 * singular.min()  # not orthogonal


@pytest.mark.parametrize("shape", [(48, 32), (32, 48), (3, 48, 32)])
def test_a_truncated_orthogonal_matrix_of_any_shape_is_orthogonal(shape):
    matrices = torch.empty(shape)
    parameterisation.Init("truncated orthogonal", 0.1).apply(matrices, torch.Generator().manual_seed(0))
    singular = torch.linalg.svdvals(matrices)
    torch.testing.assert_close(singular, torch.full_like(singular, 0.1 * math.sqrt(48)))


def test_init_depends_on_the_seed_alone():
    a, b, c = LoopedLM(config(), seed=3), LoopedLM(config(), seed=3), LoopedLM(config(), seed=4)
    assert all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))
    assert not torch.equal(a.embed.weight, c.embed.weight)


def rates(cfg: ModelConfig, optim: OptimConfig, **kwargs) -> dict[str, float]:
    return {p.name: p.lr for p in placements(on_meta(cfg), optim, **kwargs)}


def test_mup_divides_the_rates_by_the_width_ratio():
    optim = OptimConfig(scaling="mup", lr=1e-2)
    for kind in ("looped", "looped-moe"):
        found = rates(preset(f"{kind}-512"), optim)
        assert found.pop("embed.weight") == 1e-2
        assert set(found.values()) == {1e-2 / 4}, found


def test_hyperp_is_the_papers_rule():
    optim = OptimConfig(name="muonh", scaling="hyperp", muon_lr=0.014, embedding_lr=0.3, head_lr=0.004, norm_lr=0.005)
    # at the reference batch and its own D_ref nothing is changed
    D_ref = {1: 983_296_000, 4: 1_016_064_000}
    for loops, horizon in D_ref.items():
        cfg = preset(f"isodepth-s10-r{loops}")
        usage = count(cfg)
        once = 20 * (12 * 640**2 + 2 * 640) + (loops * 2 * 640**2 if loops > 1 else 0)
        assert horizon == 10 * once
        # the definition: usage-weighted non-embedding parameters, without the model-level norms
        assert usage.n_usage - usage.n_embedding - 3 * 640 == once
        found = rates(cfg, optim, steps=horizon // 2**18, tokens_per_step=2**18)
        assert found["recur.0.attn.q.weight"] == pytest.approx(0.014, rel=1e-3)
        assert found["embed.weight"] == pytest.approx(0.3) and found["head.weight"] == pytest.approx(0.004)
        assert found["final_norm.weight"] == pytest.approx(0.005)
    with one_line("tokens_per_step"):  # it does not guess the batch
        rates(cfg, optim)
    wide = rates(preset("isodepth-s20-r4"), optim, steps=8 * 3876, tokens_per_step=2**17)
    assert wide["embed.weight"] == pytest.approx(0.3 * 2**-0.5 * 2**-0.558)
    assert wide["injection.weight"] == pytest.approx(0.014 * 2**-0.558 * 4**-0.32, rel=1e-3)


def test_nanochat_scales_what_adamw_has():
    given = dict(embedding_lr=0.2, head_lr=0.004, norm_lr=0.005, muon_lr=0.02)
    for size, factor in ((8, 1.5**0.5), (12, 1.0), (20, 0.6**0.5)):
        found = rates(preset(f"looped-nanochat-s{size}"), OptimConfig(name="muon", scaling="nanochat", **given))
        assert found["embed.weight"] == pytest.approx(0.2 * factor)
        assert found["head.weight"] == pytest.approx(0.004 * factor)
        assert found["final_norm.weight"] == pytest.approx(0.005 * factor)
        assert found["recur.0.attn.q.weight"] == found["injection.weight"] / 1.0 == 0.02


def test_depth_loop_scales_the_looped_stack_alone():
    optim = OptimConfig(scaling="depth-loop", lr=1e-2, weight_decay=0.1, eps=1e-8)
    for loops in (1, 16):
        rows = {p.name: p for p in placements(on_meta(preset(f"residual-L48-N{loops}")), optim)}
        hidden, norm, table = rows["recur.0.attn.q.weight"], rows["recur.3.attn_norm.weight"], rows["embed.weight"]
        assert hidden.lr == pytest.approx(1e-2 / 2) and norm.lr == pytest.approx(1e-2 / 2)
        assert hidden.lr * hidden.weight_decay == pytest.approx(1e-2 * 0.1)  # does not depend on the depth
        assert hidden.eps == pytest.approx(1e-8 / 2)
        independent = placements(on_meta(preset("residual-L48-N4")), optim.replace(decay="independent"))
        assert {p.weight_decay for p in independent} == {0.0, 0.1}
        assert (table.lr, table.eps, rows["final_norm.weight"].lr) == (1e-2, 1e-8, 1e-2)
    tuned_at_48 = placements(on_meta(preset("residual-L48-N4")), optim.replace(reference_depth=48))
    assert {p.lr for p in tuned_at_48} == {1e-2} and {p.weight_decay for p in tuned_at_48} == {0.0, 0.1}


@pytest.mark.parametrize(("rule", "alpha"), [("none", 1), ("1/sqrt(N)", 0.5), ("1/N", 0.25), ("1/(N sqrt(L))", 1 / 12)])
def test_the_residual_multiplier(rule, alpha):
    cfg = config("passthrough", recur=9, mean_loops=4, residual=rule, residual_c=3.0)
    assert cfg.residual_multiplier == pytest.approx(3 * alpha)
    assert {block.a for block in LoopedLM(cfg).recur} == {cfg.residual_multiplier}
    around = LoopedLM(config("parcae", residual=rule))
    assert around.prelude[0].a == around.coda[0].a == 1


def stream_norm(rule: str, loops: int) -> float:
    """Mean |h|^2 of the stream after the loops, at init, relative to the stream's start."""
    sizes = dict(vocab_size=64, width=64, heads=4, mlp_width=256, context=32, recur=1, mean_loops=loops)
    cfg = config("passthrough", **sizes, mlp="swiglu", qk_norm=False, residual=rule, init="uniform")
    x = torch.randint(64, (4, 32), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ends = [LoopedLM(cfg, seed=seed).eval().hidden(x)[1].state.square().mean().item() for seed in range(3)]
    return sum(ends) / len(ends)


def test_one_over_n_keeps_the_stream_flat_where_one_over_sqrt_n_grows():
    loops = (1, 4, 16, 64)
    flat = [stream_norm("1/N", N) for N in loops]
    growing = [stream_norm("1/sqrt(N)", N) for N in loops]
    exploding = [stream_norm("none", N) for N in loops]
    assert max(flat) / min(flat) < 1.5
    assert all(b > 1.4 * a for a, b in itertools.pairwise(growing))
    slope = {name: math.log(norms[-1] / norms[-2]) / math.log(4) for name, norms in (("1", exploding), ("s", growing))}
    assert slope["1"] == pytest.approx(2, abs=0.3) and slope["s"] == pytest.approx(1, abs=0.3)  # 002, Theorem 1


def activations(width: int, rule: bool, kind: dict) -> np.ndarray:
    """rms of the loop's state, of a branch and of the logits before each of five steps of AdamW and after the last,
    at one rate for all widths [6, 3]."""
    sizes = dict(vocab_size=64, width=width, heads=width // 16, mlp_width=2 * width, context=32, mean_loops=2)
    plain = dict(norm_gain=False, qk_norm=False, mlp="swiglu", tied=False, balance_loss=0.0, router_z_loss=0.0)
    cfg = config("passthrough", **sizes, **plain, init="mup" if rule else "normal", **kind)
    model = LoopedLM(cfg).train()
    optimizer = Optimizer(model, OptimConfig(scaling="mup" if rule else "none", lr=2e-3, eps=1e-12), steps=10)
    x = torch.randint(64, (8, 33), generator=torch.Generator().manual_seed(0))
    branch, rms = [], []
    model.recur[1].mlp.register_forward_hook(lambda _, __, y: branch.append(y[0] if isinstance(y, tuple) else y))
    for step in range(6):
        loss, end = model.loss(x[:, :-1], x[:, 1:])
        logits = model.logits(model.after(end.state, {})[0])
        rms.append([t.detach().square().mean().sqrt().item() for t in (end.state, branch[-1], logits)])
        if step == 5:
            break
        loss.backward()
        optimizer.step(step)
        model.zero_grad()
    return np.array(rms)


@pytest.mark.parametrize("widest", [256, pytest.param(512, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", [{}, {"experts": 4, "active_experts": 2}], ids=["dense", "experts"])
def test_mup_coordinates_do_not_depend_on_the_width(kind, widest):
    def spread(rule):
        """Largest over smallest rms over a factor of 8 or 16 in the width."""
        widths = (width for width in (32, 64, 128, 256, 512) if width <= widest)
        found = np.stack([activations(width, rule, kind) for width in widths])
        return found.max(0) / found.min(0)

    assert spread(rule=True).max() < 2.5
    assert (spread(rule=False).max(0) > 5).all()
