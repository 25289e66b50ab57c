"""Held-out losses are right in nats, perplexity and bits per byte, and one pass gives those of every depth; what is
followed of a run has a number in each row that is logged, or none where it was not measured."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lib.base.errors import InputError
from lib.model.looped import LoopedLM
from lib.text.tokenizer import ByteTokenizer
from lib.train import evaluate
from lib.train.evaluate import check_tokenizer, depth_sweep, validate
from lib.train.loop import train
from tests.lines import one_line
from tests.models import KINDS, config, randomized
from tests.runs import native_run


def test_validation_is_nats_perplexity_and_bits_per_byte(monkeypatch):
    monkeypatch.setattr("lib.train.evaluate.EVAL_TOKENS", 50)  # several passes
    model = LoopedLM(config(vocab_size=256, depth="poisson")).train()
    batch = np.random.default_rng(0).integers(97, 120, size=(9, 17))
    batch[:, 0] = batch[:, 8] = ByteTokenizer.bos
    result, again, one = (validate(model, batch, ByteTokenizer.token_bytes, loops) for loops in (None, 4, 1))
    assert model.training and result == again != one  # a fixed number of loops
    with torch.no_grad():
        logits = model.eval()(torch.as_tensor(batch[:, :-1]))
        targets = torch.as_tensor(batch[:, 1:]).flatten()
        losses = F.cross_entropy(logits.flatten(0, 1), targets, reduction="none").numpy()
    text = batch[:, 1:].ravel() != ByteTokenizer.bos
    assert result["val_loss"] == pytest.approx(losses.mean(), rel=1e-5)
    assert result["val_perplexity"] == pytest.approx(math.exp(losses.mean()), rel=1e-5)
    # the document boundary is a target, but no text
    assert result["val_bpb"] == pytest.approx(losses[text].sum() / math.log(2) / text.sum(), rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_one_pass_over_the_loops_equals_one_pass_for_each_depth(kind, monkeypatch):
    monkeypatch.setattr("lib.train.evaluate.EVAL_TOKENS", 50)  # several passes
    model = randomized(config(kind, vocab_size=256)).train()
    batch = np.random.default_rng(0).integers(97, 120, size=(5, 17))
    depths = [1] if model.cfg.recur == 0 else [4, 1, 3, 3]
    swept = depth_sweep(model, batch, depths)
    assert model.training and list(swept) == sorted(set(depths))
    for T, loss in swept.items():
        assert loss == pytest.approx(validate(model, batch, ByteTokenizer.token_bytes, T)["val_loss"], rel=1e-6)


def test_the_initial_state_is_drawn_from_the_state_seed_alone():
    model = randomized(config(vocab_size=256))
    batch = np.random.default_rng(0).integers(97, 120, size=(3, 17))
    first, again, other = (depth_sweep(model, batch, [1, 8], seed) for seed in (0, 0, 1))
    assert first == again and first[1] != other[1]
    with pytest.raises(InputError, match="loops: 0 is too few"):
        depth_sweep(model, batch, [0, 2])


def test_a_checkpoint_needs_its_own_tokenizer():
    check_tokenizer("bytes", 256, 256)
    check_tokenizer("bpe-300", 300, 320)  # a table may be rounded up
    for tokenizer, size, entries in (("bpe-600", 600, 256), ("bytes", 256, 320)):
        with one_line(f"{tokenizer} has {size} entries, the checkpoint {entries}, give", starts="tokenizer: "):
            check_tokenizer(tokenizer, size, entries)


@pytest.mark.precision
def test_every_metric_is_followed(store):
    result = train(native_run(train={"eval_every": 2, "trace_every": 3}), store)
    expected = {"step", "loss", "state_norm", "residual", "state_rms", "grad_norm", "rho", "a_norm", "b_norm"}
    expected |= {"c_norm", "val_loss", "val_perplexity", "val_bpb", "tokens_per_s"}
    traced = {name for name in result.metrics if name.startswith("trace ")}
    assert expected | traced == set(result.metrics) and {"trace e", "trace loop 24"} <= traced
    assert {len(column) for column in result.metrics.values()} == {6}
    assert [v == v for v in result.metrics["trace loop 1"]] == [False, False, True] * 2
    assert result.metrics["step"] == [1, 2, 3, 4, 5, 6]
    seconds = [result.summary["tokens"] / 6 / rate for rate in result.metrics["tokens_per_s"]]
    assert sum(seconds) == pytest.approx(result.summary["seconds"])
    assert [v == v for v in result.metrics["val_loss"]] == [False, True] * 3
    assert all(0 < rho < 1 for rho in result.metrics["rho"])  # the default injection is LTI
    assert all(math.isfinite(v) for name in ("state_norm", "residual", "grad_norm") for v in result.metrics[name])
    assert {"attention", "text", "commit", "torch", "device", "recipe"} <= set(result.provenance)


@pytest.mark.precision
def test_a_validation_is_logged_whatever_else_is(store, monkeypatch):
    monkeypatch.setattr(evaluate, "LOGGED", 2)  # every fifth step of ten
    result = train(native_run(train={"steps": 10, "eval_every": 3}), store)
    assert result.metrics["step"] == [3, 5, 6, 9, 10]
    assert [v == v for v in result.metrics["val_loss"]] == [True, False, True, True, True]
    assert [v == v for v in result.metrics["rho"]] == [True] * 5
