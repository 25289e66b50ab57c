"""A run between two steps, in one safetensors file that is whole or not there, with a checksum of what it says."""

import hashlib
import json
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from lib.base import files
from lib.base.files import UNREADABLE


def save(tensors: dict[str, Tensor], position: dict[str, Any], path: Path) -> None:
    """``position``: which run, its next step, the metrics so far."""
    tensors = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(position)
    with files.replacing(path) as draft:
        safetensors.torch.save_file(tensors, draft, metadata={"position": text, "sha256": _digest(tensors, text)})


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the position of a checkpoint; raises one of UNREADABLE where it is damaged."""
    metadata, tensors = _metadata(path), safetensors.torch.load_file(path)
    if metadata["sha256"] != _digest(tensors, metadata["position"]):
        raise ValueError("it has changed since it was written")
    return tensors, json.loads(metadata["position"])


def step_of(path: Path) -> int:
    """The next step of a checkpoint, which is not checked; -1 where it is not there or cannot be read."""
    try:
        return json.loads(_metadata(path)["position"])["step"]
    except UNREADABLE:
        return -1


def _metadata(path: Path) -> dict[str, str]:
    files.need_file("checkpoint", path)
    with safetensors.safe_open(path, framework="pt") as file:
        return file.metadata() or {}


def _digest(tensors: dict[str, Tensor], position: str) -> str:
    digest = hashlib.sha256(position.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()
