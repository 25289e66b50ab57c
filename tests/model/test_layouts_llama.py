"""Llamas of Hugging Face's own code give their logits, or are refused in one line."""

import functools

import pytest
import torch

from lib.model.layouts import LLAMA
from lib.model.looped import load_weights
from tests.checkpoints import llama_about
from tests.lines import one_line
from tests.models import CONTEXT, V, llama

config = functools.partial(LLAMA.config, tensors={})

CHANGES = [{}, {"tie_word_embeddings": True}, {"rope_theta": 5e5, "rms_norm_eps": 1e-5}]


@pytest.mark.parametrize("changes", [*CHANGES, *({"num_key_value_heads": n} for n in (1, 2))])
def test_llamas_logits_are_ours(tmp_path, changes):
    theirs = llama(tmp_path, **changes)
    ours = load_weights(tmp_path)
    assert ours.cfg.tied == changes.get("tie_word_embeddings", False) and ours.cfg.rope == "half-split"
    assert ours.cfg.key_heads == changes.get("num_key_value_heads", 4)
    x = torch.randint(V, (2, CONTEXT), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x).logits, rtol=1e-4, atol=1e-4)


def test_its_base_of_rope_is_where_either_transformers_puts_it():
    stated = {"partial_rotary_factor": 1.0, "attention_bias": False, "rope_scaling": {"rope_type": "default"}}
    assert config(llama_about() | stated) == config(llama_about())  # what is here may be stated
    about = llama_about() | {"rope_theta": None}
    assert config(about).rope_base == 10_000  # as it was before it could be stated
    assert config(about | {"rope_theta": 5e5}).rope_base == 5e5
    assert config(about | {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}).rope_base == 5e5
    with one_line("is no size", "restore", starts="rope_theta: "):
        config(about | {"rope_theta": "many"})
    with one_line("is no JSON object", "restore", starts="rope_parameters: "):
        config(about | {"rope_parameters": "default"})
