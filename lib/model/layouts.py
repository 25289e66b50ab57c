"""Other people's checkpoints: their tensor names in ours, and the config that their shapes imply.

Two layouts are read: the official Parcae checkpoints of 001, and Hugging Face's Llama as a plain Transformer.
"""

import re
from typing import Any

from torch import Tensor

from lib.base.errors import InputError
from lib.config import ModelConfig

Tensors = dict[str, Tensor]

#: names of one block in the official Parcae checkpoints -> ours
PARCAE_BLOCK = {
    "norm_1.weight": "attn_norm.weight",
    "attn.c_q.weight": "attn.q.weight",
    "attn.c_k.weight": "attn.k.weight",
    "attn.c_v.weight": "attn.v.weight",
    "attn.c_proj.weight": "attn.out.weight",
    "attn.ve_gate.weight": "attn.gate.weight",
    "norm_2.weight": "mlp_norm.weight",
    "mlp.fc.weight": "mlp.up.weight",
    "mlp.proj.weight": "mlp.down.weight",
}
PARCAE_STACKS = {"prelude": "prelude", "core_block": "recur", "coda": "coda"}
PARCAE_MODEL = {
    "transformer.wte.weight": "embed.weight",
    "transformer.adapter.A_log": "injection.A_log",
    "transformer.adapter.dt_bias": "injection.dt_bias",
    "transformer.adapter.B": "injection.B",
    "transformer.C.weight": "readout.weight",
    "transformer.ln_prelude.weight": "prelude_norm.weight",
    "transformer.ln_f.weight": "final_norm.weight",
}

#: the same for Hugging Face's Llama
LLAMA_BLOCK = {
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
LLAMA_MODEL = {
    "model.embed_tokens.weight": "embed.weight",
    "model.norm.weight": "final_norm.weight",
    "lm_head.weight": "head.weight",
}


LLAMA_FIELDS = (
    "vocab_size",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "num_hidden_layers",
    "rms_norm_eps",
    "max_position_embeddings",
)


def is_parcae(tensors: Tensors) -> bool:
    return "transformer.wte.weight" in tensors


def is_llama(tensors: Tensors) -> bool:
    return "model.embed_tokens.weight" in tensors


def from_parcae(tensors: Tensors, about: dict[str, Any]) -> tuple[ModelConfig, Tensors]:
    """Config and our tensors of an official Parcae checkpoint.

    ``about`` is its config.json, or empty: then sizes come from the shapes, heads from the gates or freqs_cis, and the
    loops are those of the paper, 8 with 4 backpropagated. Raises InputError where it says what is not read here.
    """
    if about.get("injection_type", "diagonal") != "diagonal":
        raise InputError(f"injection_type: {about['injection_type']!r} is not read here, only 'diagonal' is Parcae's")
    ours = {}
    for name, tensor in tensors.items():
        block = re.fullmatch(r"transformer\.(\w+)\.(\d+)\.(.+)", name)
        if name == "freqs_cis" or name.endswith(".freqs_cis"):
            continue  # rotary angles, which we compute
        if name == "lm_head.weight":
            if not tensor.equal(tensors["transformer.wte.weight"]):
                ours["head.weight"] = tensor
        elif block and block[1] in PARCAE_STACKS and block[3] in PARCAE_BLOCK:
            ours[f"{PARCAE_STACKS[block[1]]}.{block[2]}.{PARCAE_BLOCK[block[3]]}"] = tensor
        else:
            ours[PARCAE_MODEL.get(name, name)] = tensor
    vocab_size, width = ours["embed.weight"].shape
    freqs = next((t for name, t in tensors.items() if name.endswith("freqs_cis")), None)
    gates = [t for name, t in ours.items() if name.endswith("attn.gate.weight")]
    heads = about.get("num_attention_heads") or (len(gates[0]) if gates else width // _head_dim(freqs, width))
    rope_base = about.get("rope_base") or (about.get("rope_settings") or {}).get("rope_base") or 50_000
    state_init: Any = about.get("state_init") or "like-init"
    cfg = ModelConfig(
        vocab_size=vocab_size,
        width=width,
        heads=heads,
        mlp_width=len(_first(ours, "mlp.up.weight")),
        prelude=_layers(ours, "prelude"),
        recur=_layers(ours, "recur"),
        coda=_layers(ours, "coda"),
        context=about.get("block_size") or _context(freqs, width // heads),
        mean_loops=about.get("mean_recurrence", 8),
        backprop_loops=about.get("mean_backprop_depth", "half"),
        depth="poisson",
        depth_per=about.get("recurrent_iteration_method", "per-sequence").removeprefix("per-"),
        injection="lti",
        state_init="prelude" if state_init == "embed" else state_init,
        prelude_norm=about.get("prelude_norm", True),
        readout=True,
        softcap=about.get("logit_softcap") or 0.0,
        norm_eps=about.get("norm_eps", 1e-5),
        rope="interleaved",
        rope_base=float(rope_base),
        qk_norm=about.get("qk_norm", True),
        mlp="half-relu2",
        value_embeddings=bool(gates),
        tied="head.weight" not in ours,
        init="parcae",
    )
    return cfg, ours


def from_llama(tensors: Tensors, about: dict[str, Any]) -> tuple[ModelConfig, Tensors]:
    """Config and our tensors of a Hugging Face Llama; ``about`` is its config.json, which the shapes cannot replace.

    Raises InputError where it has what this library does not: grouped key heads, biases, scaled RoPE.
    """
    missing = [field for field in LLAMA_FIELDS if field not in about]
    if missing:
        raise InputError(f"{missing[0]}: a Llama needs a config.json beside it that states it, restore that")
    heads = about["num_attention_heads"]
    rope = about.get("rope_parameters") or about.get("rope_scaling") or {}
    unsupported = {
        "model_type": about.get("model_type", "llama") != "llama",
        "num_key_value_heads": about.get("num_key_value_heads", heads) != heads,
        "attention_bias": about.get("attention_bias", False),
        "mlp_bias": about.get("mlp_bias", False),
        "hidden_act": about.get("hidden_act", "silu") != "silu",
        "rope_scaling": (rope.get("rope_type") or rope.get("type") or "default") != "default",
        "partial_rotary_factor": (about.get("partial_rotary_factor") or rope.get("partial_rotary_factor") or 1) != 1,
        "head_dim": (about.get("head_dim") or about["hidden_size"] // heads) * heads != about["hidden_size"],
    }
    for field, present in unsupported.items():
        if present:
            raise InputError(f"{field}: {about.get(field)} has no counterpart here, load a Llama without it")
    ours = {}
    for name, tensor in tensors.items():
        block = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", name)
        if block and block[2] in LLAMA_BLOCK:
            ours[f"prelude.{block[1]}.{LLAMA_BLOCK[block[2]]}"] = tensor
        elif not name.endswith("rotary_emb.inv_freq"):
            ours[LLAMA_MODEL.get(name, name)] = tensor
    tied = about.get("tie_word_embeddings", False)
    if tied:
        ours.pop("head.weight", None)
    cfg = ModelConfig(
        vocab_size=about["vocab_size"],
        width=about["hidden_size"],
        heads=heads,
        mlp_width=about["intermediate_size"],
        prelude=about["num_hidden_layers"],
        recur=0,
        coda=0,
        context=about["max_position_embeddings"],
        mean_loops=1,
        backprop_loops="all",
        injection="none",
        state_init="prelude",
        norm_eps=about["rms_norm_eps"],
        qk_norm=False,
        rope="half-split",
        rope_base=float(rope.get("rope_theta") or about.get("rope_theta") or 10_000),
        mlp="swiglu",
        tied=tied,
        init="normal",
    )
    return cfg, ours


def _layers(tensors: Tensors, stack: str) -> int:
    return len({name.split(".")[1] for name in tensors if name.startswith(f"{stack}.")})


def _first(tensors: Tensors, ending: str) -> Tensor:
    found = [tensor for name, tensor in tensors.items() if name.endswith(ending)]
    if not found:
        raise InputError(f"weights: no tensor is named ...{ending}, the file has no block that is known here")
    return found[0]


def _context(freqs: Tensor | None, head_dim: int) -> int:
    """The longest sequence that freqs_cis serves, one complex number a pair or two real ones; 001's models have
    2048."""
    if freqs is None:
        return 2048
    return freqs.numel() // (head_dim // 2 if freqs.is_complex() else head_dim)


def _head_dim(freqs: Tensor | None, width: int) -> int:
    """From freqs_cis, complex [.., D/2] or real [.., D/2, 2]; 001's models have 128."""
    if freqs is not None and (freqs.is_complex() or freqs.shape[-1] == 2):
        return 2 * freqs.shape[-1 if freqs.is_complex() else -2]
    if freqs is None and width % 128 == 0:
        return 128
    raise InputError("num_attention_heads: neither value gates nor freqs_cis tell it, state it in a config.json")
