"""Weights load strictly, with every name that differs, and give the same model after saving."""

import pytest
import safetensors.torch
import torch

from lib.base.errors import InputError
from lib.model.looped import LoopedLM, load_weights
from lib.model.weights import load_strictly, read
from tests.lines import one_line
from tests.models import config, official_parcae, randomized, tokens


def test_loading_is_strict_and_says_which_names_differ(tmp_path):
    model = LoopedLM(config())
    weights = model.state_dict()
    del weights["embed.weight"]
    weights["extra"] = torch.zeros(1)
    weights["readout.weight"] = torch.zeros(3, 3)
    with pytest.raises(InputError) as error:
        load_strictly(model, weights)
    message = str(error.value)
    assert "embed.weight is missing" in message and "extra is unknown" in message
    assert "readout.weight has shape (3, 3) instead of (32, 32)" in message


def test_unreadable_weights_are_one_line(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"\x10\x00\x00")
    with pytest.raises(InputError, match="cannot be read as safetensors"):
        load_weights(tmp_path)
    safetensors.torch.save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="carries no config of ours and is not in the layout of"):
        load_weights(tmp_path)


def test_weights_survive_saving(tmp_path):
    model = randomized(config("iso-depth")).eval()
    model.save(tmp_path / "model.safetensors")
    again = load_weights(tmp_path)
    assert again.cfg == model.cfg and not again.training
    assert torch.equal(again(tokens()), model(tokens()))


def test_a_config_or_an_index_that_is_not_json_is_one_line(tmp_path):
    safetensors.torch.save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
    for text, why in (("{", "is not JSON"), ("[" * 100_000, "is not JSON"), ("[]", "is no JSON object")):
        (tmp_path / "config.json").write_text(text)
        with one_line(f"config.json {why}", "restore or remove it", starts="path: "):
            load_weights(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors.index.json").write_text("{")
    with one_line("index.json is not JSON", starts="path: "):
        load_weights(tmp_path)


def test_what_torch_saved_is_read_as_tensors_alone(tmp_path):
    """As Parcae's authors publish theirs; a file that holds anything to be run is refused."""
    tensors = official_parcae()
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    found, metadata, about = read(tmp_path)
    assert found.keys() == tensors.keys() and all(torch.equal(found[name], tensors[name]) for name in tensors)
    assert (metadata, about) == ({}, {}) and load_weights(tmp_path).cfg.heads == 2
    for held, says in [(print, "cannot be read as tensors"), ([1, 2], "other things than tensors")]:
        torch.save(held, tmp_path / "pytorch_model.bin")
        with one_line("give a model.safetensors", says, starts="path: "):
            read(tmp_path)
