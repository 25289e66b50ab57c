"""Weights load strictly, with every name that differs, and give the same model after saving."""

import pytest
import safetensors.torch
import torch

from lib.base.errors import InputError
from lib.model.looped import LoopedLM, load_weights
from lib.model.weights import load_strictly, read
from tests.lines import everything, one_line
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


def test_weights_survive_saving(tmp_path):
    model = randomized(config("iso-depth")).eval()
    model.save(tmp_path / "model.safetensors")
    again = load_weights(tmp_path)
    assert again.cfg == model.cfg and not again.training
    assert torch.equal(again(tokens()), model(tokens()))


WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


@pytest.mark.parametrize(
    ("files", "words"),
    [  # file -> what is in it; None: some weights
        ({}, [f"{WEIGHTS} cannot be read as safetensors", f"give a {WEIGHTS}"]),
        ({WEIGHTS: (10**9).to_bytes(8, "little") + b"{}"}, ["header", f"give a {WEIGHTS}"]),
        ({WEIGHTS: None}, ["carries no config", "give one of them"]),
        ({WEIGHTS: None, "config.json": b"\xff"}, ["config.json is not JSON", "restore or remove it"]),
        ({WEIGHTS: None, "config.json": b"[" * 100_000}, ["config.json is not JSON", "restore or remove it"]),
        ({INDEX: b"[]"}, ["is no JSON object", "restore or remove it"]),
        ({INDEX: b'{"weight_map": ["a"]}'}, ["weight_map", "restore it"]),
        ({INDEX: b'{"weight_map": {"a": "../model.safetensors"}}'}, ["weight_map", "restore it"]),
    ],
)
def test_what_is_no_checkpoint_is_one_line_and_stays_as_it_is(tmp_path, files, words):
    for name, content in files.items():
        (tmp_path / name).write_bytes(safetensors.torch.save({"x": torch.zeros(3)}) if content is None else content)
    before = everything(tmp_path)
    with one_line(*words, starts="path: "):
        load_weights(tmp_path)
    assert everything(tmp_path) == before


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
