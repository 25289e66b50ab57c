"""Tensors from files, whoever wrote them, and into a module with nothing missing and nothing left over."""

import collections
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from lib.base.errors import InputError, first_line
from lib.base.files import json_object, need_file

Tensors = dict[str, Tensor]
#: their name -> ours
Names = dict[str, str]
#: what torch.compile, data parallelism and FSDP call the module that they wrap
WRAPPERS = ("_orig_mod", "module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def local(path: Path | str) -> Path:
    """Where a checkpoint lies on this machine; one of the hub, hf:NAME, is fetched. Raises InputError where it cannot
    be."""
    if not (path := str(path)).startswith("hf:"):
        return Path(path)
    import huggingface_hub  # only here: nothing else needs the network

    try:
        place = Path(huggingface_hub.snapshot_download(path[3:], allow_patterns=["*.safetensors", "*.json"]))
        if not any(place.glob("*.safetensors")):
            huggingface_hub.snapshot_download(path[3:], allow_patterns=["pytorch_model*.bin"])
        return place
    except Exception as error:  # the hub's own errors, and those of every layer below it
        raise InputError(f"path: {path} cannot be fetched ({first_line(error)}), give a file or folder here") from None


def read(source: Path | str) -> tuple[Tensors, dict[str, str], dict[str, Any]]:
    """The tensors of a safetensors file, of the folder of one or of its shards, or of hf:NAME on the hub; the metadata
    in the file, and the config.json beside it (both empty where there is none). Where a folder has none but a
    pytorch_model.bin or its shards, these are read, tensors alone. Raises InputError, in one line, also where a number
    is not finite."""
    path = local(source)
    opened = [_opened(file) for file in files_of(path)]
    tensors = _unwrapped({name: tensor for held, _ in opened for name, tensor in held.items()})
    metadata = {field: text for _, said in opened for field, text in said.items()}
    # of eight bits torch does not tell
    finite = {name: (x.float() if x.itemsize == 1 else x).isfinite().all() for name, x in tensors.items()}
    refuse([f"{name} is not finite" for name in sorted(tensors) if not finite[name]], "restore the file")
    beside = (path if path.is_dir() else path.parent) / "config.json"
    return tensors, metadata, _read_json(beside) if beside.exists() else {}


def files_of(path: Path) -> list[Path]:
    """The files that hold the weights of a checkpoint here."""
    if not path.is_dir():
        return [path]
    for whole in (path / "model.safetensors", path / "pytorch_model.bin"):
        if (index := path / f"{whole.name}.index.json").exists():
            return [path / name for name in _shards(index)]
        if whole.exists():
            return [whole]
    raise InputError(
        f"path: {path} has no model.safetensors or pytorch_model.bin, nor an index of their shards, give a folder "
        "with one of them"
    )


def _opened(file: Path) -> tuple[Tensors, dict[str, str]]:
    """The tensors of a file and its metadata. Of one of torch.save no code is run."""
    need_file("path", file)
    try:
        with file.open("rb") as opened:
            if opened.read(32).startswith(b"version https://git-lfs"):
                raise ValueError("it is a pointer of Git LFS, run git lfs pull")
        if file.suffix != ".bin":
            with safetensors.safe_open(file, framework="pt") as weights:
                metadata = weights.metadata() or {}
            return safetensors.torch.load_file(file), metadata
        held = torch.load(file, map_location="cpu", weights_only=True)
        if not isinstance(held, dict) or not all(isinstance(value, Tensor) for value in held.values()):
            raise ValueError("it holds other things than tensors")
        return held, {}
    except Exception as error:  # of pickle, zipfile, torch and safetensors
        raise InputError(
            f"path: {file} cannot be read as tensors ({first_line(error)}), give a model.safetensors"
        ) from None


def _unwrapped(tensors: Tensors) -> Tensors:
    """Without what torch.compile and wrappers put into names, wherever they do. Raises InputError where two become
    one."""
    plain = {name: ".".join(part for part in name.split(".") if part not in WRAPPERS) for name in tensors}
    times = collections.Counter(plain.values())
    if twice := [name for name in tensors if times[plain[name]] > 1]:
        raise InputError(f"weights: {twice[-1]} is there twice, with a wrapper's name and without, remove one")
    return {plain[name]: tensor for name, tensor in tensors.items()}


def _shards(index: Path) -> list[str]:
    """The names of the files that an index lists, all of them beside it."""
    names = _read_json(index).get("weight_map")
    named = list(names.values()) if isinstance(names, dict) else []
    if not named or not all(isinstance(name, str) and Path(name).name == name for name in named):
        raise InputError(f"path: the weight_map of {index} names no files beside it, restore it")
    return sorted({*named})


def _read_json(path: Path) -> dict[str, Any]:
    need_file("path", path)
    return parsed(path.read_bytes(), str(path))


def parsed(text: str | bytes, what: str) -> dict[str, Any]:
    """The fields of a JSON object. Raises InputError, in one line."""
    try:
        return json_object(text)
    except ValueError as error:
        raise InputError(f"path: {what} is not JSON as it should be ({error!s:.120}), restore or remove it") from None


def load_strictly(model: nn.Module, tensors: Tensors) -> None:
    """Every tensor of the model from tensors, of the same shape, and nothing left over."""
    model.load_state_dict(renamed(tensors, model.state_dict(), {}))


def renamed(tensors: Tensors, own: Tensors, names: Names) -> Tensors:
    """The tensors of a model under our names.

    own: its tensors, of which shapes count; names: theirs -> ours, or several of ours whose rows lie side by side in
    it. What the model does not have is left out, and what has no name there is called as here. Raises InputError with
    their names.
    """
    ours = {name: parts.split() for name, parts in names.items() if {*parts.split()} <= own.keys()}
    named = {part for parts in ours.values() for part in parts}
    ours |= {name: [name] for name in own if name not in named}
    faults = [f"{name} is missing" for name in sorted(ours.keys() - tensors.keys())]
    faults += [f"{name} is unknown" for name in sorted(tensors.keys() - ours.keys())]
    found: Tensors = {}
    for name in sorted(ours.keys() & tensors.keys()):
        tensor, rows = tensors[name], [len(own[part]) for part in ours[name]]
        shape = (sum(rows), *own[ours[name][0]].shape[1:])
        if tensor.shape != shape:
            faults.append(f"{name} has shape {tuple(tensor.shape)} instead of {shape}")
        elif not tensor.is_floating_point():
            faults.append(f"{name} holds {tensor.dtype}")
        else:
            found |= zip(ours[name], tensor.split(rows), strict=True)
    refuse(faults, "give a checkpoint of this model")
    return found


def refuse(faults: list[str], remedy: str) -> None:
    """Raises InputError, in one line, where tensors have faults."""
    if faults:
        more = f"; and {len(faults) - 8} more" * (len(faults) > 8)
        raise InputError(f"weights: {'; '.join(faults[:8])}{more}; {remedy}")
