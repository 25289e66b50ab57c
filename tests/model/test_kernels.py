"""What is compiled computes what the plain PyTorch beside it computes, with its gradients, or is left out."""

import itertools
import os
import random
import subprocess
import sys

import pytest
import torch

from lib.config import ModelConfig
from lib.model import head, kernels, layers
from lib.model.layers import Attention, Block, RMSNorm, rope_angles
from lib.model.looped import Draw, LoopedLM
from lib.train import optimiser

pytestmark = pytest.mark.skipif(not kernels.compiler(), reason="no C compiler")


def both(monkeypatch, compute):
    """What ``compute`` gives with the kernels and without."""
    served = compute()
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "serve", lambda *x: False)
        return served, compute()


def gradients(y, *inputs):
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y.dtype)
    return [y, *torch.autograd.grad(y, inputs, g)]


def close(found, expected, dtype=torch.float32):
    """To rounding: of fp32 sums in another order, or of what plain bf16 rounds on the way and the kernels do not."""
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        scale = b.float().abs().max().item() + 1e-6
        torch.testing.assert_close(
            a.float() / scale, b.float() / scale, rtol=0, atol=2e-5 if dtype == torch.float32 else 0.03
        )


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
    draw = random.Random(seed)
    H, D, S = draw.choice([1, 3]), draw.choice([2, 8, 12, 16, 40, 64]), draw.choice([2, 16, 31, 32, 33, 70])
    cfg = ModelConfig(
        width=H * D,
        heads=H,
        context=S,
        rope=draw.choice(["interleaved", "half-split"]),
        qk_norm=draw.choice([True, False]),
        qk_norm_eps=None,
    )
    window = draw.choice([None, 2, S // 2 + 1])
    values = H * D >= layers.GATE_CHANNELS and draw.choice([True, False])
    attention = Attention(cfg, values, window)
    weights = list(attention.parameters())
    for weight in weights:
        torch.nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
    x = torch.randn(2, S, H * D).to(dtype).requires_grad_()
    v = torch.randn(2, S, H * D, requires_grad=True) if values else None
    inputs = [x, *weights, *([v] if values else [])]
    angles = rope_angles(S, D, 1e4)
    close(*both(monkeypatch, lambda: gradients(attention(x, angles, v), *inputs)), dtype)


@pytest.mark.parametrize(("M", "N", "K"), [(1, 1, 1), (7, 33, 5), (64, 40, 300), (130, 129, 17), (16, 256, 513)])
def test_products_of_any_size_and_layout(M, N, K):
    for turned in itertools.product([False, True], repeat=2):
        A, B = torch.randn(K, M).T if turned[0] else torch.randn(M, K), torch.randn(N, K).T
        B = B if turned[1] else B.contiguous()
        wide = torch.ones(M, N + 3)
        kernels.product(A, B, wide[:, 1 : N + 1])
        torch.testing.assert_close(wide[:, 1 : N + 1].double(), A.double() @ B.double(), rtol=0, atol=1e-5 * K**0.5)
        assert (wide[:, [0, N + 1, N + 2]] == 1).all()
        kernels.product(A, B, wide[:, 1 : N + 1], add=True)
        torch.testing.assert_close(
            wide[:, 1 : N + 1].double(), 2 * (A.double() @ B.double()), rtol=0, atol=2e-5 * K**0.5
        )


@pytest.mark.parametrize("seed", range(30))
def test_whole_models(monkeypatch, seed):
    draw = random.Random(seed)
    H, D, S = draw.choice([1, 2, 3]), draw.choice([4, 8, 12, 16, 32]), draw.choice([5, 16, 33, 64])
    windows = {"windows": "SL", "short_window": draw.randint(2, S - 1)} if draw.random() < 0.4 else {}
    cfg = ModelConfig(
        width=H * D,
        heads=H,
        mlp_width=draw.choice([12, 16, 40, 64]),
        context=S,
        vocab_size=draw.choice([40, 256]),
        prelude=1,
        recur=1,
        coda=1,
        mean_loops=2,
        backprop_loops="all",
        depth="fixed",
        qk_norm=draw.choice([True, False]),
        rope=draw.choice(["interleaved", "half-split"]),
        mlp=draw.choice(["relu2", "half-relu2", "swiglu"]),
        block=draw.choice(["pre-norm", "sandwich", "post-norm"]),
        residual=draw.choice(["none", "1/N"]),
        norm_gain=draw.choice([True, False]),
        softcap=draw.choice([0.0, 15.0]),
        injection=draw.choice(["add", "lti", "concat"]),
        **windows,
    )
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


def test_a_nan_stays_one():
    x = torch.randn(2, 40, 32)
    x[1, 7, 3] = float("nan")
    cfg = ModelConfig(width=32, heads=2, mlp_width=64, context=40)
    y, _ = Block(cfg)(x, rope_angles(40, 16, 1e4), torch.float32)
    assert y[0].isfinite().all() and y[1, 7:].isnan().all()
    logits = torch.randn(3, 256)
    logits[1, 8] = float("nan")
    for c in (0.0, 15.0):
        losses = kernels.cross_entropies(logits.clone(), torch.zeros(3, dtype=torch.long), c, None)
        assert losses.isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("shape", [(3, 7, 7), (5, 12), (2, 13, 5), (40, 16, 16), (2, 16, 64), (2, 96, 24), (24, 36)])
@pytest.mark.parametrize("method", ["polar-express", "newton-schulz"])
def test_orthogonalisation(monkeypatch, shape, method):
    steps = optimiser.POLAR_EXPRESS if method == "polar-express" else optimiser.NEWTON_SCHULZ
    given = torch.randn(shape)
    found, plain = both(monkeypatch, lambda: optimiser.orthogonalize(given, method, torch.float32))
    x = given.double()
    x = x / ((1.02 if method == "polar-express" else 1.0) * x.norm(dim=(-2, -1), keepdim=True) + 1e-6)
    for a, b, c in steps:
        A = x @ x.mT
        x = a * x + (b * A + c * (A @ A)) @ x
    torch.testing.assert_close(found.double(), x, rtol=0, atol=2e-5)
    torch.testing.assert_close(plain.double(), x, rtol=0, atol=2e-5)


def test_without_a_compiler_there_are_the_same_numbers():
    program = (
        "import torch; from lib.model import kernels; from lib.model.looped import LoopedLM; "
        "from lib.config import ModelConfig; "
        "print(kernels.library(torch.float32), LoopedLM(ModelConfig()).eval()(torch.arange(9)[None])[0, -1, 5].item())"
    )
    found = {}
    for path in (os.environ["PATH"], ""):
        done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PATH": path}, capture_output=True)
        what, _, number = done.stdout.decode().strip().rpartition(" ")
        found[what == "None"] = float(number)
    assert found[True] == pytest.approx(found[False], rel=1e-4)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A home where nothing has been compiled yet, and the folder in it where that goes."""
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    kernels.library.cache_clear()
    yield tmp_path / ".cache" / "looped-lm"
    kernels.library.cache_clear()


COMMAND = [kernels.compiler(), *kernels.FLAGS]


def test_it_is_compiled_once_and_anew_where_the_file_is_damaged(cache):
    path = kernels._compiled(COMMAND)
    whole = path.read_bytes()
    assert path.parent == cache and {file.suffix for file in cache.iterdir()} == {".so", ".json"}
    made = path.stat().st_mtime_ns
    assert kernels._compiled(COMMAND) == path and path.stat().st_mtime_ns == made
    for damaged in (whole[:1000], b"", whole[:-1] + b"x"):
        path.write_bytes(damaged)
        assert kernels._compiled(COMMAND) == path and path.read_bytes() == whole
    path.with_suffix(".json").write_text("{")
    assert kernels._compiled(COMMAND) == path and path.read_bytes() == whole


def test_a_home_that_cannot_be_written_costs_a_compilation(cache):
    cache.parent.write_text("a file where the folder should be")
    assert kernels._compiled(COMMAND).parent != cache
    assert kernels.library(torch.float32) is not None


def test_what_does_not_compile_is_left_out(cache, tmp_path, monkeypatch):
    source = tmp_path / "kernels.c"
    source.write_text("no C")
    monkeypatch.setattr(kernels, "SOURCE", source)
    assert kernels.library(torch.float32) is None and not kernels.serve(torch.ones(3))
    assert not [*cache.iterdir()]
