import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lib.evaluate import validate
from lib.model import LoopedLM
from lib.tokenizer import ByteTokenizer
from tests.test_model import config


def test_validation_is_nats_perplexity_and_bits_per_byte(monkeypatch):
    monkeypatch.setattr("lib.evaluate.EVAL_TOKENS", 50)  # several passes
    model = LoopedLM(config(vocab_size=256)).train()
    batch = np.random.default_rng(0).integers(97, 120, size=(9, 17))
    batch[:, 0] = batch[:, 8] = ByteTokenizer.bos
    result = validate(model, batch, ByteTokenizer.token_bytes)
    assert model.training
    with torch.no_grad():
        logits = model.eval()(torch.as_tensor(batch[:, :-1]))
        losses = F.cross_entropy(
            logits.flatten(0, 1), torch.as_tensor(batch[:, 1:]).flatten(), reduction="none"
        ).numpy()
    text = batch[:, 1:].ravel() != ByteTokenizer.bos
    assert result["val_loss"] == pytest.approx(losses.mean(), rel=1e-5)
    assert result["val_perplexity"] == pytest.approx(math.exp(losses.mean()), rel=1e-5)
    # the document boundary is a target, but no text
    assert result["val_bpb"] == pytest.approx(losses[text].sum() / math.log(2) / text.sum(), rel=1e-5)


def test_validation_runs_a_fixed_number_of_loops():
    model = LoopedLM(config(vocab_size=256, depth="poisson")).train()
    batch = np.random.default_rng(0).integers(97, 120, size=(4, 17))
    results = [validate(model, batch, ByteTokenizer.token_bytes, loops) for loops in (None, None, 4, 1)]
    assert results[0] == results[1] == results[2] != results[3]


def test_a_model_that_is_not_finite_gives_nan():
    model = LoopedLM(config(vocab_size=256))
    with torch.no_grad():
        model.embed.weight.fill_(float("nan"))
    result = validate(model, np.full((2, 17), 97), ByteTokenizer.token_bytes)
    assert all(math.isnan(value) for value in result.values())
