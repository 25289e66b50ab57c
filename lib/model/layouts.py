"""The layouts of other people's checkpoints that are read here."""

from typing import Protocol

from lib.base.errors import InputError
from lib.config import ModelConfig
from lib.model import layout_huginn, layout_llama, layout_ouro, layout_parcae, layout_xllm
from lib.model.layout import About, Tensors


class Layout(Protocol):
    """A module of this room."""

    def knows(self, tensors: Tensors, about: About) -> bool:
        """Whether tensors of these names, beside this config.json (empty where there is none), are of this layout."""

    def read(self, tensors: Tensors, about: About) -> tuple[ModelConfig, Tensors]:
        """Their config and our tensors. Raises InputError, naming a field or a tensor, where they are not all here."""


#: the first that knows a checkpoint reads it: what is named like another, and has more, stands before it
LAYOUTS: dict[str, Layout] = {
    "Huginn": layout_huginn,
    "Parcae": layout_parcae,
    "Ouro": layout_ouro,
    "Llama": layout_llama,
    "LoopedLM": layout_xllm,
}


def read(path: object, tensors: Tensors, about: About) -> tuple[ModelConfig, Tensors]:
    """Config and our tensors of what lies at ``path``, whoever wrote it."""
    for layout in LAYOUTS.values():
        if layout.knows(tensors, about):
            return layout.read(tensors, about)
    known = " or ".join((", ".join([*LAYOUTS][:-1]), [*LAYOUTS][-1]))
    raise InputError(f"path: {path} carries no config of ours and is not in the layout of {known}, give one of them")
