"""Hugging Face's Llama, as a plain Transformer."""

from typing import Any

from lib.config import ModelConfig
from lib.model.layout import About, Names, Tensors, names, need, places, read_only, rename, section, with_head, without

BLOCK = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn.q.weight",
    "self_attn.k_proj.weight": "attn.k.weight",
    "self_attn.v_proj.weight": "attn.v.weight",
    "self_attn.o_proj.weight": "attn.out.weight",
    "post_attention_layernorm.weight": "mlp_norm.weight",
    "mlp.gate_proj.weight": "mlp.gate.weight",
    "mlp.up_proj.weight": "mlp.up.weight",
    "mlp.down_proj.weight": "mlp.down.weight",
}
MODEL = {"model.embed_tokens.weight": "embed.weight", "model.norm.weight": "final_norm.weight"}

NEEDED = (
    "vocab_size",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "num_hidden_layers",
    "rms_norm_eps",
    "max_position_embeddings",
)


def config(about: About) -> ModelConfig:
    """What its config.json says, which the shapes cannot replace. Raises InputError where it says what is not here:
    biases, scaled RoPE, heads that do not fill the width."""
    need(about, "a Llama", NEEDED)
    read_only(about, "a Llama", {"model_type": "llama"})
    return ModelConfig(prelude=about["num_hidden_layers"], recur=0, coda=0, mean_loops=1, **shared(about, "a Llama"))


def shared(about: About, whose: str) -> dict[str, Any]:
    """What a Llama has in common with a model whose blocks are built of the same parts."""
    heads = about["num_attention_heads"]
    rope: About = {"rope_theta": about.get("rope_theta") or 10_000}
    here = dict(attention_bias=False, mlp_bias=False, hidden_act="silu", head_dim=about["hidden_size"] / heads)
    read_only(about, whose, here)
    for field in ("rope_scaling", "rope_parameters"):  # as it was called, and as transformers 5 calls it
        stated = section(about, field)
        read_only({field: stated.get("rope_type") or stated.get("type")}, whose, {field: "default"})
        rope |= {name: value for name, value in stated.items() if value is not None}
    need(rope, whose, ["rope_theta"])
    read_only(about | rope, whose, {"partial_rotary_factor": 1})
    return dict(
        vocab_size=about["vocab_size"],
        width=about["hidden_size"],
        heads=heads,
        kv_heads=about.get("num_key_value_heads"),
        mlp_width=about["intermediate_size"],
        context=about["max_position_embeddings"],
        backprop_loops="all",
        injection="none",
        state_init="prelude",
        norm_eps=about["rms_norm_eps"],
        qk_norm=False,
        rope="half-split",
        rope_base=float(rope["rope_theta"]),
        mlp="swiglu",
        tied=about.get("tie_word_embeddings", False),
        init="normal",
    )


def read(tensors: Tensors, about: About) -> tuple[ModelConfig, Tensors, Names]:
    """Config, our tensors, and what they are called there."""
    cfg = config(about)
    return cfg, *renamed(tensors, cfg, MODEL, BLOCK, places("model.layers", "prelude", cfg.prelude))


def renamed(tensors: Tensors, cfg: ModelConfig, model: Names, block: Names, at: Names) -> tuple[Tensors, Names]:
    """Our tensors of a Llama, or of what is named as one, and what they are called there."""
    model, tensors = with_head(model, tensors, cfg, "lm_head.weight", "model.embed_tokens.weight")
    return rename(without(tensors, "rotary_emb.inv_freq"), names(model, block, at))
