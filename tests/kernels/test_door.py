"""What is computed in C is what the plain PyTorch that it serves computes, with its gradients, or is left to that."""

from random import Random

import numpy as np
import pytest
import torch

from lib.config import ModelConfig, OptimConfig
from lib.decode import decoder
from lib.kernels import door
from lib.model import head, layers
from lib.model.layers import Attention, Block, RMSNorm, rope_angles
from lib.model.looped import Draw, LoopedLM
from lib.train import optimiser
from lib.train.optimiser import Optimizer


def both(monkeypatch, compute):
    """What ``compute`` gives with the kernels and without."""
    served = compute()
    with monkeypatch.context() as patch:
        patch.setattr(door, "serve", lambda *x, **few: False)
        return served, compute()


def gradients(y, *inputs):
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y.dtype)
    return [y, *torch.autograd.grad(y, inputs, g)]


def close(found, expected, dtype=torch.float32):
    """To rounding: of fp32 sums in another order, or of bf16 results."""
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        apart = (a.double() - b.double()).abs().max()
        assert apart <= (2e-5 if dtype == torch.float32 else 0.02) * b.double().abs().max() + 1e-10


def no_worse(found, plain, exact):
    """bf16 with about as much rounding as plain PyTorch has. That rounds more often on the way; but as in every flash
    attention the way back reads the output that was rounded."""
    for a, b, c in zip(found, plain, exact, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert (a.double() - c).norm() <= 3 * (b.double() - c).norm() + 1e-3 * c.norm()


BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


@BOTH
@pytest.mark.parametrize("width", [3, 5, 16, 40, 129])
@pytest.mark.parametrize("gain", [True, False])
def test_norms(monkeypatch, width, gain, dtype):
    norm, x = RMSNorm(width, gain, 1e-5), torch.randn(3, 7, width, requires_grad=True)
    if gain:
        torch.nn.init.normal_(norm.weight)
    close(*both(monkeypatch, lambda: gradients(norm(x, dtype), x, *norm.parameters())), dtype)


@BOTH
@pytest.mark.parametrize("n", [1, 15, 4096])
def test_activations(monkeypatch, n, dtype):
    x, y = (torch.randn(2, n).mul(4).to(dtype).requires_grad_() for _ in range(2))
    close(*both(monkeypatch, lambda: gradients(layers.relu2(x), x)), dtype)
    close(*both(monkeypatch, lambda: gradients(layers.swiglu(x, y), x, y)), dtype)
    assert layers.swiglu(x * 1e4, y).isfinite().all()


@BOTH
@pytest.mark.parametrize(("V", "c"), [(256, 0.0), (256, 15.0), (61, 2.0), (1, 15.0)])
def test_cross_entropies_and_their_gradient(monkeypatch, V, c, dtype):
    logits, targets = torch.randn(33, V).mul(5).to(dtype), torch.randint(V, (33,))
    close(*both(monkeypatch, lambda: head.losses_and_gradient(logits.clone(), targets, c, 33)), dtype)
    found, _ = head.losses_and_gradient(logits.clone(), targets, c, None)
    close([found], [head.losses_and_gradient(logits.clone(), targets, c, 33)[0]])


@BOTH
@pytest.mark.parametrize("seed", range(24))
def test_attention(monkeypatch, seed, dtype):
    torch.manual_seed(seed)
    draw = Random(seed)
    H, D, S = draw.choice([1, 3]), draw.choice([2, 8, 12, 16, 40, 64]), draw.choice([2, 16, 31, 32, 33, 70])
    kind = dict(rope=draw.choice(["interleaved", "half-split"]), qk_norm=draw.choice([True, False]))
    cfg = ModelConfig(width=H * D, heads=H, context=S, **kind)
    window = draw.choice([None, 2, S // 2 + 1])
    values = H * D >= layers.GATE_CHANNELS and draw.choice([True, False])
    attention = Attention(cfg, values, window)
    weights = list(attention.parameters())
    for weight in weights:
        torch.nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
    given = torch.randn(2, S, H * D).to(dtype)
    v = torch.randn(2, S, H * D, requires_grad=True) if values else None
    angles = rope_angles(S, D, 1e4)

    def compute(x):
        x = x.detach().requires_grad_()
        return gradients(attention(x, angles, v), x, *weights, *([v] if values else []))

    found, plain = both(monkeypatch, lambda: compute(given))
    if dtype == torch.float32:
        close(found, plain)
    else:
        no_worse(found, plain, both(monkeypatch, lambda: compute(given.float()))[1])


@pytest.mark.parametrize("seed", range(30))
def test_whole_models(monkeypatch, seed):
    draw = Random(seed)
    H, D, S = draw.choice([1, 2, 3]), draw.choice([4, 8, 12, 16, 32]), draw.choice([5, 16, 33, 64])
    # a short window is half the context, of which the rows may be a part
    windows, context = ("SL", draw.randint(S, 2 * S - 2)) if draw.random() < 0.4 else ("L", S)
    options = dict(mlp_width=[12, 16, 40, 64], vocab_size=[40, 256], softcap=[0.0, 15.0], residual=["none", "1/N"])
    options |= dict(qk_norm=[True, False], norm_gain=[True, False], rope=["interleaved", "half-split"])
    options |= dict(mlp=["relu2", "half-relu2", "swiglu"], block=["pre-norm", "sandwich", "post-norm"])
    options |= dict(injection=["add", "lti", "concat"])
    drawn = {name: draw.choice(values) for name, values in options.items()}
    sizes = dict(width=H * D, heads=H, context=context, windows=windows, mean_loops=2, backprop_loops="all")
    cfg = ModelConfig(**sizes, **drawn)
    model, x = LoopedLM(cfg).train(), torch.randint(cfg.vocab_size, (2, S + 1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)

    def compute():
        loss, end = model.loss(x[:, :-1], x[:, 1:], 2, Draw(0, 0, range(2)))
        return [loss, end.state, *torch.autograd.grad(loss, list(model.parameters()))]

    found, expected = both(monkeypatch, compute)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5 + 1e-4 * b.abs().max().item())


@pytest.mark.parametrize("n", [1, 3, 70])
@pytest.mark.parametrize("seed", range(12))
def test_tokens_of_a_decoder(monkeypatch, seed, n):
    """Several rows and slots at once: what the layers give, and what then is in the cache."""
    torch.manual_seed(seed)
    monkeypatch.setattr(decoder, "PIECE", 16)
    draw, random = Random(seed), np.random.default_rng(seed)
    H, KV = draw.choice([(2, 2), (3, 3), (4, 2), (3, 1)])
    options = dict(qk_norm=[True, False], qk_bias=[True, False], rope=["interleaved", "half-split"], windows=["L", "S"])
    options |= dict(value_embeddings=[H == KV], mlp=["relu2", "half-relu2", "swiglu"], norm_gain=[True, False])
    drawn = {name: draw.choice(values) for name, values in options.items()}
    sizes = dict(width=H * draw.choice([16, 48]), heads=H, kv_heads=KV, mlp_width=80, context=70, vocab_size=40)
    model = LoopedLM(ModelConfig(**sizes, **drawn, prelude=1, recur=2, coda=1, mean_loops=3)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    places = np.sort(random.choice(2 * 70, n, replace=False))
    at = np.stack((places // 70, places % 70, random.integers(0, 2, n)))
    x, values = torch.randn(2, 1, n, model.cfg.width)
    given = [torch.randn(3, 2, 70, 2, KV, model.cfg.head_dim) for _ in model.blocks]

    @torch.no_grad()
    def compute():
        tokens = decoder.Decoder(model, 2, 70, decoder.Exit())
        tokens.cache = [cache.clone() for cache in given]
        tokens._face(decoder.Tokens(at, x, (), {}, None), at[2])
        found = []
        for layer, block in enumerate(model.blocks):
            found.append(tokens._attend(layer, block.attn, x, None if block.attn.gate is None else values))
            found.append(block._feed_forward(x, torch.float32))
        return [*found, *tokens.cache]

    close(*both(monkeypatch, compute))


@pytest.mark.parametrize("shape", [(3, 7, 7), (5, 12), (2, 13, 5), (40, 16, 16), (2, 16, 64), (2, 96, 24), (24, 36)])
def test_orthogonalisation(monkeypatch, shape):
    given = torch.randn(shape)
    found, plain = both(monkeypatch, lambda: optimiser.orthogonalize(given, torch.float32))
    x = given.double()
    x = x / (1.02 * x.norm(dim=(-2, -1), keepdim=True) + 1e-6)
    for a, b, c in optimiser.POLAR_EXPRESS:
        A = x @ x.mT
        x = a * x + (b * A + c * (A @ A)) @ x
    torch.testing.assert_close(found.double(), x, rtol=0, atol=2e-5)
    torch.testing.assert_close(plain.double(), x, rtol=0, atol=2e-5)


MUON = {"name": "muon", "muon_weight_decay": 0.3}
UPDATES = [{"name": "muonh"}, MUON, {**MUON, "muon_variance_reduction": False}, {**MUON, "muon_cautious": False}]


@pytest.mark.parametrize("how", UPDATES)
@pytest.mark.parametrize("experts", [1, 4])
def test_updates_of_muon(monkeypatch, how, experts):
    """Three of them from the same gradients: what moves, and all that the next one depends on."""

    def compute():
        more = {"experts": experts, "active_experts": 2, "mlp": "swiglu"} if experts > 1 else {}
        model = LoopedLM(ModelConfig(width=24, heads=2, mlp_width=72, injection="concat", **more))
        optimizer = Optimizer(model, OptimConfig(lr=1e-2, muon_lr=0.05, clip=2.0, **how), steps=4)
        generator, norms = torch.Generator().manual_seed(3), []
        for step in range(3):
            for parameter in model.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=generator)
            norms.append(optimizer.clip_gradients())
            optimizer.step(step)
            optimizer.zero_grad()
            assert all(parameter.grad is None for parameter in model.parameters())
        return [torch.tensor(norms), *optimizer.state().values(), *(p.detach() for p in model.parameters())]

    for found, expected in zip(*both(monkeypatch, compute), strict=True):
        apart = (found - expected).abs() > 2e-4 * expected.abs().max() + 1e-10
        # an update of nearly nothing may fall on either side of what decides whether its entry decays
        assert apart.float().mean() <= (5e-3 if how.get("muon_cautious", how["name"] == "muon") else 0)


def test_several_threads_few_rows_and_other_numbers_go_the_plain_way(monkeypatch):
    x = torch.ones(64, 8)
    monkeypatch.setattr(door, "FEW", 64)
    assert door.serve(x, None, x) and not door.serve(x[:63])
    assert not door.serve(x, x.double()) and not door.serve(x.double()) and not door.serve(x, x.to("meta"))
    torch.set_num_threads(2)
    assert not door.serve(x)


def test_weights_that_are_turned_or_of_another_dtype(monkeypatch):
    block, x = Block(ModelConfig(width=32, heads=2, mlp_width=64, context=40)), torch.randn(2, 40, 32)
    for weight in block.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    block.attn.q.weight = torch.nn.Parameter(block.attn.q.weight.detach().T.contiguous().T)
    angles = rope_angles(40, 16, 1e4)
    close(*both(monkeypatch, lambda: gradients(block(x, angles, torch.float32)[0], *block.parameters())))
    block.mlp.up.weight = torch.nn.Parameter(block.mlp.up.weight.detach().bfloat16())
    close(*both(monkeypatch, lambda: [block(x, angles, torch.float32)[0]]))


def test_who_listens_inside_a_block_hears_it():
    block, heard = Block(ModelConfig(width=32, heads=2, mlp_width=64, context=16)), []
    block.mlp.register_full_backward_hook(lambda *_: heard.append("mlp"))
    block.attn.register_forward_hook(lambda *_: heard.append("attn"))
    block(torch.randn(2, 16, 32), rope_angles(16, 16, 1e4), torch.float32)[0].sum().backward()
    assert heard == ["attn", "mlp"]
