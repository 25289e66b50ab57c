"""Every published layout is known by its names or its config, and read whole: nothing missing, nothing left over."""

import re
from unittest import mock

import pytest
import safetensors.torch
import torch

from lib.base.errors import InputError
from lib.model import layouts
from lib.model.looped import load_weights
from tests.checkpoints import OFFICIAL, saved
from tests.lines import in_one_line, one_line
from tests.models import V, official_parcae

CHECKPOINTS = {kind: make() for kind, make in OFFICIAL.items()}
#: what need not be there: rotary angles, and the second copy of a tied table
SPARE = (("Parcae", "freqs_cis"), ("Huginn", "freqs_cis"), ("Huginn", "lm_head.weight"))


def roles(kind):
    """The tensors of a checkpoint that need be there, of the layers of a stack the first: a name of each role."""
    found = {}
    for name in CHECKPOINTS[kind][1]:
        if (kind, name) not in SPARE:
            found.setdefault(re.sub(r"\.\d+\.", ".", name), name)
    return [*found.values()]


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_what_is_read_survives_saving_as_ours(tmp_path, kind):
    model = load_weights(saved(tmp_path, *CHECKPOINTS[kind]))
    assert not model.training and model.precision == "fp32"
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    x = torch.randint(V, (2, 8), generator=torch.Generator().manual_seed(1))
    model.save(tmp_path / "ours.safetensors")
    again = load_weights(tmp_path / "ours.safetensors")
    assert again.cfg == model.cfg and torch.equal(again(x), model(x))


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_without_one_of_its_tensors_or_with_one_of_another_shape_it_is_refused(tmp_path, kind):
    (about, tensors), layout = CHECKPOINTS[kind], layouts.LAYOUTS[kind.split()[0]]
    for name in roles(kind):
        less = {other: tensor for other, tensor in tensors.items() if other != name}
        unknown = "model_type" not in layout.here and name == layout.tensor  # it is known by this name alone
        with one_line("carries no config" if unknown else f"{name} is missing"):
            load_weights(saved(tmp_path, about, less))
        for other in (tensors[name][:-1], tensors[name].flatten()[:3], tensors[name].flatten()[0]):
            if other.shape != tensors[name].shape:
                with pytest.raises(InputError) as error:
                    load_weights(saved(tmp_path, about, tensors | {name: other.contiguous()}))
                in_one_line(str(error.value))
                named = {*re.findall(r"([\w.]+): it is|([\w.]+) has shape", str(error.value))}
                assert named and {"".join(either) for either in named} <= tensors.keys()


@pytest.mark.parametrize(("kind", "name"), SPARE)
def test_without_what_it_can_spare_it_is_the_same(tmp_path, kind, name):
    about, tensors = CHECKPOINTS[kind]
    x = torch.randint(V, (2, 8), generator=torch.Generator().manual_seed(1))
    expected = load_weights(saved(tmp_path, about, tensors))(x)
    less = {other: tensor for other, tensor in tensors.items() if other != name}
    assert torch.equal(load_weights(saved(tmp_path, {"model_type": None} | about, less))(x), expected)


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_a_tensor_that_is_unknown_is_named(tmp_path, kind):
    """One of ours too: it does not take the place of theirs."""
    about, tensors = CHECKPOINTS[kind]
    extras = ("transformer.extra.weight", "model.layers.0.self_attn.q_proj.bias", "prelude.9.x", "final_norm.weight")
    for extra in extras:
        with one_line(f"{extra} is unknown", starts="weights: "):
            load_weights(saved(tmp_path, about, tensors | {extra: torch.zeros(64)}))


def changed(folder, kind, **fields):
    """A checkpoint of which config.json says something else, and whose tensors nobody should get to."""
    about, _ = CHECKPOINTS[kind]
    about = {**about, "model": {**about["model"], **fields}} if "model" in about else {**about, **fields}
    return saved(folder, about, {layouts.LAYOUTS[kind.split()[0]].tensor: torch.zeros(1)})


ROPE = {"rope_type": "llama3", "rope_theta": 1e4}
NOT_HERE = {
    "Huginn": {"model_type": "raven", "sampling_scheme": "fixed", "num_key_value_heads": 2, "head_dim": 8}
    | {"init_values": {"std": 0.02}},
    "Llama": {"model_type": "mistral", "attention_bias": True, "head_dim": 8, "partial_rotary_factor": 0.5}
    | {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": ROPE},
    "Ouro": {"model_type": "llama", "rope_scaling": ROPE, "use_sliding_window": True, "early_exit_step": 2}
    | {"layer_types": ["full_attention", "sliding_attention", "full_attention"]},
    "LoopedLM orthoinj": {"arch": "gekko", "output_size": 7, "head_dim": 8, "huginn_recurrent_layers": 1}
    | {"huginn_sampling_scheme": "uniform", "huginn_poisson_lognormal_target_mean": 8.0},
}


@pytest.mark.parametrize(("kind", "field"), [(kind, field) for kind, fields in NOT_HERE.items() for field in fields])
def test_what_is_not_here_is_refused_before_tensors_are_looked_at(tmp_path, kind, field):
    with one_line("has no counterpart here, load", starts=f"{field}: "):
        load_weights(changed(tmp_path, kind, **{field: NOT_HERE[kind][field]}))


SIZES = {"Huginn": ("n_embd", "mean_recurrence", "norm_eps"), "Llama": ("max_position_embeddings", "vocab_size")}
SIZES |= {"LoopedLM diagonal": ("model_dim", "num_layers")}


@pytest.mark.parametrize(("kind", "field"), [(kind, field) for kind, fields in SIZES.items() for field in fields])
def test_a_size_that_is_missing_or_none_is_named(tmp_path, kind, field):
    for value in (None, "64", -1, True, 10**400):
        with one_line("is no size" if value else "needs a config.json beside it", "restore", starts=f"{field}: "):
            load_weights(changed(tmp_path, kind, **{field: value}))


def test_a_checkpoint_of_the_hub_is_fetched_or_refused_in_one_line(tmp_path, monkeypatch):
    safetensors.torch.save_file(official_parcae(), tmp_path / "model.safetensors")
    fetch = mock.Mock(return_value=str(tmp_path))
    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    assert load_weights("hf:SandyResearch/parcae-140m").cfg.injection == "lti"
    fetch.side_effect = ConnectionError("no route to host\nand more")
    with one_line("path: hf:org/name cannot be fetched (no route to host), give a file"):
        load_weights("hf:org/name")
