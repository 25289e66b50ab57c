"""Products of any layout, what no vector decides, what is refused; and the C is compiled once, or not needed."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from lib.base.machine import compiler
from lib.config import ModelConfig
from lib.kernels import door, functions
from lib.model import layers
from lib.model.layers import Attention, Block, rope_angles
from lib.model.looped import Draw, LoopedLM

BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


@pytest.mark.parametrize(("M", "N", "K"), [(1, 1, 1), (7, 33, 5), (64, 40, 300), (130, 129, 17), (16, 256, 513)])
def test_products_of_any_size_and_layout(M, N, K):
    for turned in itertools.product([False, True], repeat=2):
        A, B = torch.randn(K, M).T if turned[0] else torch.randn(M, K), torch.randn(N, K).T
        B = B if turned[1] else B.contiguous()
        wide = torch.ones(M, N + 3)
        functions.product(A, B, wide[:, 1 : N + 1])
        torch.testing.assert_close(wide[:, 1 : N + 1].double(), A.double() @ B.double(), rtol=0, atol=1e-5 * K**0.5)
        assert (wide[:, [0, N + 1, N + 2]] == 1).all()
        functions.product(A, B, wide[:, 1 : N + 1], add=True)
        torch.testing.assert_close(wide[:, 1 : N + 1].double() / 2, A.double() @ B.double(), rtol=0, atol=1e-5 * K**0.5)


@BOTH
@pytest.mark.parametrize(("wide", "rows"), [(4, 8), (8, 6), (16, 4)])
def test_neither_the_machines_vectors_nor_a_tiles_rows_decide_a_number(monkeypatch, wide, rows, dtype):
    """Products of any number of rows, attention, a model of odd sizes and a few tokens, to the last bit, also with
    vectors that the machine has not."""
    cfg = ModelConfig(width=60, heads=3, mlp_width=72, context=45, vocab_size=70, mean_loops=2, depth="fixed")
    attention, model = Attention(cfg, False, None), LoopedLM(cfg).train()
    x = torch.randn(2, 45, 60).to(dtype).requires_grad_()
    tokens, A, B = torch.randint(70, (2, 46)), torch.randn(45, 37), torch.randn(37, 80)
    block, some, at = Block(ModelConfig(width=64, heads=2)), torch.randn(1, 2, 64), np.array([[0, 1], [6, 39], [0, 0]])
    block.mlp.down.reset_parameters()
    weights, cache = (torch.randn(192, 64), torch.randn(64, 64), None, None), torch.randn(1, 2, 40, 2, 2, 32)
    given = (*weights, rope_angles(40, 32, 1e4), cache)
    over_cache = functions.AttentionOverCache(given, ("interleaved", 1e-5, None))

    def times(A, B):
        C = torch.zeros(len(A), B.shape[1])
        functions.product(A, B, C)
        return C

    def compute():
        loss, _ = model.loss(tokens[:, :-1], tokens[:, 1:], 2, Draw(0, 0, range(2)))
        attended = attention(x, rope_angles(45, 20, 1e4), None)
        return [
            *(times(A[:m], B) for m in range(1, 18)),
            times(A, B[:, :70]),
            attended,
            over_cache(some, None, at),
            block._feed_forward(some, torch.float32),
            *torch.autograd.grad(attended.float().square().sum(), [x, *attention.parameters()]),
            *torch.autograd.grad(loss, list(model.parameters())),
        ]

    expected = compute()
    functions.library.cache_clear()
    monkeypatch.setattr(functions, "FLAGS", [*functions.FLAGS, f"-DWIDE={wide}", f"-DROWS={rows}"])
    try:
        found = compute()
    finally:
        functions.library.cache_clear()
    assert all(map(torch.equal, found, expected))


def test_a_nan_stays_one():
    x = torch.randn(2, 40, 32)
    x[1, 7, 3] = float("nan")
    cfg = ModelConfig(width=32, heads=2, mlp_width=64, context=40)
    y, _ = Block(cfg)(x, rope_angles(40, 16, 1e4), torch.float32)
    assert y[0].isfinite().all() and y[1, 7:].isnan().all()
    logits = torch.randn(3, 256)
    logits[1, 8] = float("nan")
    for c in (0.0, 15.0):
        losses = functions.cross_entropies(logits.clone(), torch.zeros(3, dtype=torch.long), c, None)
        assert losses.isnan().tolist() == [False, True, False]


def test_what_does_not_fit_is_refused():
    with pytest.raises(IndexError, match="from 0 to 8 are not all among 8"):
        functions.cross_entropies(torch.randn(2, 8), torch.tensor([0, 8]), 0.0, 1)

    with pytest.raises(AssertionError, match="angles of"):
        functions.Attention.apply(torch.randn(1, 9, 6, 4), None, rope_angles(8, 4, 1e4), "interleaved", None, None)
    with pytest.raises(RuntimeError, match="does not require grad"):  # there is no second derivative
        x = torch.randn(3, 4, requires_grad=True)
        (g,) = torch.autograd.grad(layers.relu2(x).sum(), x, create_graph=True)
        g.sum().backward()


# ---- as it is compiled


def test_without_a_compiler_there_are_the_same_numbers():
    program = (
        "import torch; from lib.kernels import functions; from lib.model.looped import LoopedLM; "
        "from lib.config import ModelConfig; torch.manual_seed(0); "
        "number = LoopedLM(ModelConfig()).eval()(torch.arange(9)[None])[0, -1, 5].item()"
    )
    command = [sys.executable, "-c", f"{program}; print(functions.library(torch.float32), number)"]
    done = subprocess.run(command, env={**os.environ, "PATH": ""}, capture_output=True, text=True)
    there, (what, number) = {}, done.stdout.split()
    exec(program, there)
    assert what == "None" and there["number"] == pytest.approx(float(number), rel=1e-4)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A home where nothing has been compiled yet, and the folder in it where that goes."""
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    functions.library.cache_clear()
    yield tmp_path / ".cache" / "looped-lm"
    functions.library.cache_clear()


def source(monkeypatch, path, text):
    path.write_text(text)
    monkeypatch.setattr(functions, "SOURCE", path)


def test_it_is_compiled_once_and_anew_where_home_cannot_be_written(cache, tmp_path, monkeypatch):
    source(monkeypatch, tmp_path / "tiny.c", "int one(void) { return 1; }")
    made = set()
    for _ in range(2):
        assert functions._loaded([compiler(), *functions.FLAGS]).one() == 1
        made |= {path.stat().st_mtime_ns for path in cache.glob("*.so")}
    assert len(made) == 1
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path / "tiny.c")  # where no folder can be
    assert functions._loaded([compiler(), *functions.FLAGS]).one() == 1


def test_what_does_not_compile_is_left_out_and_said(cache, tmp_path, monkeypatch):
    source(monkeypatch, tmp_path / "kernels.c", "no C")
    with pytest.warns(UserWarning, match="no C compiler works here .*error"):
        assert functions.library(torch.float32) is None and not door.serve(torch.ones(3))
    assert not [*cache.glob("*.so")]
