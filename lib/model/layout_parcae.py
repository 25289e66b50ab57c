"""The official Parcae checkpoints of 001, whose config.json may be missing."""

from typing import Any

from torch import Tensor

from lib.base.errors import InputError
from lib.config import ModelConfig
from lib.model.layout import (
    About,
    Names,
    Tensors,
    is_tied,
    names,
    need,
    places,
    read_only,
    rename,
    section,
    with_head,
    without,
)

BLOCK = {
    "norm_1.weight": "attn_norm.weight",
    "attn.c_q.weight": "attn.q.weight",
    "attn.c_k.weight": "attn.k.weight",
    "attn.c_v.weight": "attn.v.weight",
    "attn.c_proj.weight": "attn.out.weight",
    "norm_2.weight": "mlp_norm.weight",
    "mlp.fc.weight": "mlp.up.weight",
    "mlp.proj.weight": "mlp.down.weight",
}
GATE = "attn.ve_gate.weight"  # where a layer has a value table
STACKS = {"transformer.prelude": "prelude", "transformer.core_block": "recur", "transformer.coda": "coda"}
MODEL = {
    "transformer.wte.weight": "embed.weight",
    "transformer.adapter.A_log": "injection.A_log",
    "transformer.adapter.dt_bias": "injection.dt_bias",
    "transformer.adapter.B": "injection.B",
    "transformer.C.weight": "readout.weight",
    "transformer.ln_f.weight": "final_norm.weight",
}
SIZES = ("num_attention_heads", "rope_base", "block_size", "mean_recurrence", "mean_backprop_depth", "norm_eps")
#: what a config.json may say, where it says it
HERE = dict(
    injection_type="diagonal",
    state_init=("like-init", "normal", "zero", "unit", "embed"),
    block_class_name="TransformerPreNormBlock",
    norm_class_name="RMSNorm",
    mlp_class_name="BaseMLP",
    nonlin_name="ReLU2",
    mup_model_scaling_factor=1,
    bias=False,
    qk_bias=False,
    clip_qkv=None,
)


def read(tensors: Tensors, about: About) -> tuple[ModelConfig, Tensors, Names]:
    """Config, our tensors, and what they are called there. ``about`` is config.json, or empty: then sizes come from the
    shapes, heads from the gates or freqs_cis, and the loops are those of the paper, 8 with 4 backpropagated. Raises
    InputError where it says what is not read here."""
    cfg = _config(tensors, about)
    ours = dict(MODEL)
    if cfg.prelude_norm:
        ours["transformer.ln_prelude.weight"] = "prelude_norm.weight"
    ours, tensors = with_head(ours, tensors, cfg, "lm_head.weight", "transformer.wte.weight")
    blocks = {at: to for stack, to in STACKS.items() for at, to in places(stack, to, _layers(tensors, stack)).items()}
    for layer, (at, to) in enumerate(blocks.items()):
        if cfg.has_values(layer):
            ours[f"{at}.{GATE}"] = f"{to}.attn.gate.weight"
            ours[f"value_embeds.{layer}.weight"] = f"value_embeds.{layer}.weight"
    return cfg, *rename(without(tensors, "freqs_cis"), names(ours, BLOCK, blocks))


def _config(tensors: Tensors, about: About) -> ModelConfig:
    need(about, "a Parcae", [field for field in SIZES if about.get(field) is not None])
    read_only(about, "a Parcae", HERE)
    vocab_size, width = _matrix(tensors, "transformer.wte.weight").shape
    freqs = next((t for name, t in tensors.items() if name.endswith("freqs_cis")), None)
    gated = any(name.endswith(GATE) for name in tensors)
    heads = about.get("num_attention_heads")
    heads = heads or (len(_matrix(tensors, GATE)) if gated else width // _head_dim(freqs, width))
    rope_base = about.get("rope_base") or section(about, "rope_settings").get("rope_base") or 50_000
    state_init: Any = about.get("state_init") or "like-init"
    prelude, recur, coda = (_layers(tensors, stack) for stack in STACKS)
    return ModelConfig(
        vocab_size=vocab_size,
        width=width,
        heads=heads,
        mlp_width=len(_matrix(tensors, "mlp.fc.weight")),
        prelude=prelude,
        recur=recur,
        coda=coda,
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
        value_embeddings=gated,
        tied=is_tied(tensors, "lm_head.weight", "transformer.wte.weight"),
        init="parcae",
    )


def _layers(tensors: Tensors, stack: str) -> int:
    """Of one of ``STACKS``, by the names of its tensors."""
    return len({name.removeprefix(f"{stack}.").split(".")[0] for name in tensors if name.startswith(f"{stack}.")})


def _matrix(tensors: Tensors, ending: str) -> Tensor:
    """The first whose name ends so."""
    name = next((name for name in tensors if name.endswith(ending)), None)
    if name is None:
        raise InputError(f"weights: no tensor is named ...{ending}, the file has no block that is known here")
    if tensors[name].ndim != 2:
        raise InputError(f"weights: {name} has shape {tuple(tensors[name].shape)} and is no matrix, restore it")
    return tensors[name]


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
