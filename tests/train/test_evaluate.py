"""Held-out losses are right in nats, perplexity and bits per byte, and one pass gives those of every depth."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lib.base.errors import InputError
from lib.model.looped import LoopedLM
from lib.text.tokenizer import ByteTokenizer
from lib.train.evaluate import check_tokenizer, depth_sweep, validate
from tests.models import KINDS, config, randomized


def test_validation_is_nats_perplexity_and_bits_per_byte(monkeypatch):
    monkeypatch.setattr("lib.train.evaluate.EVAL_TOKENS", 50)  # several passes
    model = LoopedLM(config(vocab_size=256, depth="poisson")).train()
    batch = np.random.default_rng(0).integers(97, 120, size=(9, 17))
    batch[:, 0] = batch[:, 8] = ByteTokenizer.bos
    result, again, one = (validate(model, batch, ByteTokenizer.token_bytes, loops) for loops in (None, 4, 1))
    assert model.training and result == again != one  # a fixed number of loops
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
        with pytest.raises(
            InputError, match=f"tokenizer: {tokenizer} has {size} entries, the checkpoint {entries}, give"
        ):
            check_tokenizer(tokenizer, size, entries)
