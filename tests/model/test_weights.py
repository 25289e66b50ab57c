"""Weights load strictly, with every name that differs, and give the same model after saving."""

import json
import os

import pytest
import safetensors.torch
import torch

from lib.model.looped import LoopedLM, load_weights
from lib.model.weights import read, renamed
from tests.lines import everything, one_line
from tests.models import config, official_parcae, randomized, tokens


def test_what_lies_side_by_side_in_another_layout_is_taken_apart():
    whole, own = torch.randn(5, 3), {"0.q": torch.zeros(2, 3), "0.k": torch.zeros(3, 3), "same": torch.zeros(1)}
    names, same = {"a.Wqk": "0.q 0.k", "a.bias": "0.bias"}, torch.ones(1)  # there is no bias here
    found = renamed({"a.Wqk": whole, "same": same}, own, names)
    assert found.keys() == own.keys() and torch.equal(found["same"], same)
    assert torch.equal(found["0.q"], whole[:2]) and torch.equal(found["0.k"], whole[2:])
    for wrong in (torch.zeros(4, 3), torch.zeros(5, 2), torch.zeros(5)):
        with one_line("weights: a.Wqk has shape", "instead of (5, 3); give"):
            renamed({"a.Wqk": wrong, "same": same}, own, names)
    with one_line("weights: same is missing; a.bias is unknown; give"):
        renamed({"a.Wqk": whole, "a.bias": same}, own, names)


WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


@pytest.mark.parametrize(
    ("files", "words"),
    [  # file -> what is in it; None: some weights
        ({}, [f"has no {WEIGHTS} or pytorch_model.bin", "give a folder"]),
        ({WEIGHTS: (10**9).to_bytes(8, "little") + b"{}"}, ["header", f"give a {WEIGHTS}"]),
        ({WEIGHTS: None}, ["carries no config", "give one of them"]),
        ({WEIGHTS: None, "config.json": b"\xff"}, ["config.json is not JSON", "restore or remove it"]),
        ({WEIGHTS: b"version https://git-lfs.github.com/spec/v1\noid sha256:0"}, [WEIGHTS, "run git lfs pull"]),
        ({"pytorch_model.bin": b""}, ["pytorch_model.bin cannot be read as tensors", f"give a {WEIGHTS}"]),
        ({INDEX: b"[]"}, ["is no object", "restore or remove it"]),
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


@pytest.mark.parametrize("name", [WEIGHTS, INDEX, "config.json", "pytorch_model.bin"])
def test_a_pipe_in_the_place_of_a_file_is_refused_at_once(tmp_path, name):
    if name == "config.json":
        LoopedLM(config()).save(tmp_path / WEIGHTS)
    os.mkfifo(tmp_path / name)
    for path in (tmp_path, tmp_path / WEIGHTS) if name == WEIGHTS else (tmp_path,):
        with one_line(name, "is no file", starts="path: "):
            read(path)


@pytest.mark.parametrize("wrapped", ["_orig_mod.{}", "module._orig_mod.{}", "middle"])
def test_names_that_compilers_and_wrappers_leave_are_taken_off(tmp_path, wrapped):
    """Of ours and of others', before a name or in it."""
    model = randomized(config()).eval()
    model.save(tmp_path / "plain.safetensors")
    with safetensors.safe_open(tmp_path / "plain.safetensors", framework="pt") as file:
        metadata = file.metadata()

    def within(name):
        return name.replace(".", "._orig_mod.", 1) if wrapped == "middle" else wrapped.format(name)

    for tensors, about in ((model.state_dict(), metadata), (official_parcae(), None)):
        plain = {name: tensor.clone() for name, tensor in tensors.items()}
        safetensors.torch.save_file(plain, tmp_path / "plain.safetensors", about)
        expected = load_weights(tmp_path / "plain.safetensors")(tokens())
        safetensors.torch.save_file({within(n): t for n, t in plain.items()}, tmp_path / "wrapped.safetensors", about)
        assert torch.equal(load_weights(tmp_path / "wrapped.safetensors")(tokens()), expected)
    safetensors.torch.save_file({"x": torch.zeros(1), "module.x": torch.zeros(1)}, tmp_path / "twice.safetensors")
    with one_line("is there twice", starts="weights: "):
        read(tmp_path / "twice.safetensors")


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_tensor_that_is_not_finite_is_named(tmp_path, number):
    """In one of ours and in one of others, whatever saved it."""
    model = LoopedLM(config())
    with torch.no_grad():
        model.final_norm.weight[1] = number
    model.save(tmp_path / "model.safetensors")
    with one_line("final_norm.weight is not finite", "restore", starts="weights: "):
        load_weights(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    tensors = official_parcae()
    tensors["transformer.ln_f.weight"][0] = number
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    with one_line("transformer.ln_f.weight is not finite", starts="weights: "):
        load_weights(tmp_path)


@pytest.mark.parametrize("stem", ["pytorch_model.bin", "model.safetensors"])
def test_shards_are_read_as_the_whole(tmp_path, stem):
    tensors, (name, kind) = official_parcae(), stem.split(".")
    of = {key: f"{name}-0000{1 + i % 2}-of-00002.{kind}" for i, key in enumerate(tensors)}
    for file in {*of.values()}:
        part = {key: tensor for key, tensor in tensors.items() if of[key] == file}
        (torch.save if kind == "bin" else safetensors.torch.save_file)(part, tmp_path / file)
    (tmp_path / f"{stem}.index.json").write_text(json.dumps({"weight_map": of}))
    found, _, _ = read(tmp_path)
    assert found.keys() == tensors.keys() and all(torch.equal(found[key], tensors[key]) for key in tensors)


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


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("{", ["metadata", "is not JSON"]),
        ("null", ["metadata", "is no object"]),
        ('{"width": 1048576, "heads": 2, "vocab_size": 4294967296}', ["instead of (1048576, 1048576)"]),
        ('{"width": 64, "width": 32}', ["metadata", "width is there twice"]),
        ('{"norm_eps": NaN}', ["metadata", "NaN is no number"]),
        *((f'{{"{field}": {10**most}}}', [field]) for field in ("context", "width", "heads") for most in (9, 400)),
    ],
)
def test_what_our_own_metadata_may_not_say_is_refused_before_memory_is_asked_for(tmp_path, said, words):
    tensors = {name: tensor.clone() for name, tensor in LoopedLM(config()).state_dict().items()}
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(tensors, path, {"format": "looped-lm", "config": said})
    with one_line(*words):
        load_weights(path)
