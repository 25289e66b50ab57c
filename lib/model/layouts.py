"""The layouts of other people's checkpoints that are read here."""

from collections.abc import Callable
from typing import NamedTuple

from lib.base.errors import InputError
from lib.config import ModelConfig
from lib.model import layout_huginn, layout_llama, layout_ouro, layout_parcae, layout_xllm
from lib.model.layout import About, Tensors


class Layout(NamedTuple):
    """How a checkpoint is known, and what reads its config and our tensors. That raises InputError, naming a field or a
    tensor, where they are not all here."""

    model_type: str | None  # in its config.json
    tensor: str  # or one of this name
    read: Callable[[Tensors, About], tuple[ModelConfig, Tensors]]


#: the first that knows a checkpoint reads it: what is named like another, and has more, stands before it
LAYOUTS = {
    "Huginn": Layout("huginn_raven", "transformer.adapter.weight", layout_huginn.read),
    "Parcae": Layout(None, "transformer.wte.weight", layout_parcae.read),
    "Ouro": Layout("ouro", "model.early_exit_gate.weight", layout_ouro.read),
    "Llama": Layout("llama", "model.embed_tokens.weight", layout_llama.read),
    "LoopedLM": Layout(None, "output.final_norm.weight", layout_xllm.read),
}


def read(path: object, tensors: Tensors, about: About) -> tuple[ModelConfig, Tensors]:
    """Config and our tensors of what lies at ``path``, whoever wrote it."""
    for layout in LAYOUTS.values():
        if layout.tensor in tensors or (layout.model_type and layout.model_type == about.get("model_type")):
            return layout.read(tensors, about)
    known = " or ".join((", ".join([*LAYOUTS][:-1]), [*LAYOUTS][-1]))
    raise InputError(f"path: {path} carries no config of ours and is not in the layout of {known}, give one of them")
