"""The layouts of other people's checkpoints that are read here."""

from collections.abc import Callable
from typing import NamedTuple

from lib.base.errors import InputError
from lib.config import ModelConfig
from lib.model import layout_huginn, layout_llama, layout_ouro, layout_parcae, layout_xllm
from lib.model.layout import About, Names, Tensors, section


class Layout(NamedTuple):
    """How a checkpoint is known, and what reads its config and our tensors. That raises InputError, naming a field or a
    tensor, where they are not all here."""

    model_type: str | None  # in its config.json
    tensor: str  # or one of this name
    read: Callable[[Tensors, About], tuple[ModelConfig, Tensors, Names]]


MOST = 2.0**63  # of anything that a config.json counts
#: the first that knows a checkpoint reads it: what is named like another, and has more, stands before it
LAYOUTS = {
    "Huginn": Layout("huginn_raven", "transformer.adapter.weight", layout_huginn.read),
    "Parcae": Layout(None, "transformer.wte.weight", layout_parcae.read),
    "Ouro": Layout("ouro", "model.early_exit_gate.weight", layout_ouro.read),
    "Llama": Layout("llama", "model.embed_tokens.weight", layout_llama.read),
    "LoopedLM": Layout(None, "output.final_norm.weight", layout_xllm.read),
}


def read(path: object, tensors: Tensors, about: About) -> tuple[ModelConfig, Tensors, Names]:
    """Config and our tensors of what lies at ``path``, whoever wrote it, and our name -> theirs."""
    for field, value in (about | section(about, "model")).items():
        if isinstance(value, int | float) and abs(value) > MOST:
            raise InputError(f"{field}: {value!s:.80} is no size of a model, restore the config.json of {path}")
    for whose, layout in LAYOUTS.items():
        if layout.tensor in tensors or (layout.model_type and layout.model_type == about.get("model_type")):
            try:
                return layout.read(tensors, about)
            except (
                ArithmeticError,
                AttributeError,
                LookupError,
                RuntimeError,
                TypeError,
            ) as error:  # what no field is asked for
                raise InputError(f"path: {path} is no {whose} ({error!r:.120}), restore its config.json") from None
    known = " or ".join((", ".join([*LAYOUTS][:-1]), [*LAYOUTS][-1]))
    raise InputError(f"path: {path} carries no config of ours and is not in the layout of {known}, give one of them")
