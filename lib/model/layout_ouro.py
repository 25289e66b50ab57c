"""Ouro (ByteDance/Ouro-1.4B, -2.6B and their Thinking models): a Llama whose whole stack is the loop.

Its blocks norm each branch at both ends, its final norm closes every loop and is the head's, and a gate says with which
chance a token leaves after a loop: its exit at a threshold q is ``lib.decode``'s by the criterion "gate" at 1 - q. A
plain pass makes all its loops, whatever ``early_exit_threshold`` says.
"""

from lib.config import ModelConfig
from lib.model import layout_llama
from lib.model.layout import About, Names, Tensors, need, places, read_only

BLOCK = layout_llama.BLOCK | {
    "input_layernorm_2.weight": "attn_post.weight",
    "post_attention_layernorm_2.weight": "mlp_post.weight",
}
MODEL = layout_llama.MODEL | {
    "model.early_exit_gate.weight": "exit_gate.weight",
    "model.early_exit_gate.bias": "exit_gate.bias",
}
HERE = dict(
    model_type="ouro", use_sliding_window=False, sliding_window=None, layer_types="full_attention", early_exit_step=None
)


def config(about: About) -> ModelConfig:
    """What its config.json says. Raises InputError where that is not here: what a Llama is refused for, windows, and an
    exit at a fixed loop."""
    need(about, "an Ouro", (*layout_llama.NEEDED, "total_ut_steps"))
    if about.get("use_sliding_window") is False:  # then a window that is stated is not used
        about = about | {"sliding_window": None}
    other = [layer for layer in about.get("layer_types") or () if layer != HERE["layer_types"]]
    read_only(about | {"layer_types": other[0] if other else None}, "an Ouro", HERE)
    return ModelConfig(
        prelude=0,
        recur=about["num_hidden_layers"],
        coda=0,
        mean_loops=about["total_ut_steps"],
        block="peri-norm",
        loop_norm="closing",
        exit_gate=True,
        **layout_llama.shared(about, "an Ouro"),
    )


def read(tensors: Tensors, about: About) -> tuple[ModelConfig, Tensors, Names]:
    """Config, our tensors, and what they are called there."""
    cfg = config(about)
    return cfg, *layout_llama.renamed(tensors, cfg, MODEL, BLOCK, places("model.layers", "recur", cfg.recur))
