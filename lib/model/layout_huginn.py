"""Huginn-0125 (tomg-group-umd/huginn-0125, and the checkpoints on the way to it).

Its training draws 1 + Poisson loops whose mean is mean_recurrence + 1, ours of the same shape mean_recurrence; both run
mean_recurrence when they are asked for no number.
"""

import math

from lib.base.errors import InputError
from lib.config import ModelConfig
from lib.model.layout import (
    About,
    Names,
    Tensors,
    names,
    need,
    places,
    read_only,
    rename,
    section,
    split,
    state_last,
    with_head,
    without,
)

#: Wqkv and fc hold several of ours, and keep their names until they are split
BLOCK = {
    "norm_1.weight": "attn_norm.weight",
    "attn.Wqkv.weight": "attn.Wqkv.weight",
    "attn.proj.weight": "attn.out.weight",
    "norm_2.weight": "attn_post.weight",
    "norm_3.weight": "mlp_norm.weight",
    "mlp.fc.weight": "mlp.fc.weight",
    "mlp.proj.weight": "mlp.down.weight",
    "norm_4.weight": "mlp_post.weight",
}
MODEL = {
    "transformer.wte.weight": "embed.weight",
    "transformer.adapter.weight": "injection.weight",
    "transformer.ln_f.weight": "final_norm.weight",
}
NEEDED = (
    "n_embd",
    "n_heads",
    "intermediate_size",
    "vocab_size",
    "block_size",
    "n_layers_in_prelude",
    "n_layers_in_recurrent_block",
    "n_layers_in_coda",
    "mean_recurrence",
    "mean_backprop_depth",
    "norm_eps",
    "rope_base",
)
HERE = dict(
    model_type="huginn_raven",
    architecture_class_name="RecurrentGPT",
    block_class_name="SandwichBlock",
    norm_class_name="RMSNorm_llama",
    mlp_class_name="GatedMLP",
    nonlin_name="SiLU",
    injection_type="linear",
    state_init="like-init",
    sampling_scheme="poisson-lognormal-filling",
    bias=False,
    test_time_noise=0,
)


def config(about: About) -> ModelConfig:
    """What its config.json says. Raises InputError where that is not here: another block, norm, MLP, injection, initial
    state or sampler, or noise at test time."""
    need(about, "a Huginn", NEEDED)
    width, heads = about["n_embd"], about["n_heads"]
    vocab = about.get("padded_vocab_size") or about["vocab_size"]
    read_only(about, "a Huginn", HERE | {"num_key_value_heads": heads, "head_dim": width / heads})
    scales = {"std": math.sqrt(2 / (5 * width)), "embed_scale": math.sqrt(width)}
    stated = scales | section(about, "init_values")
    need(stated, "a Huginn", list(scales))
    if not math.isclose(stated["std"], scales["std"], rel_tol=1e-4):  # of the initial state
        raise InputError(f"init_values: std {stated['std']} has no counterpart here, load one with {scales['std']}")
    return ModelConfig(
        vocab_size=vocab,
        width=width,
        heads=heads,
        mlp_width=about["intermediate_size"],
        prelude=about["n_layers_in_prelude"],
        recur=about["n_layers_in_recurrent_block"],
        coda=about["n_layers_in_coda"],
        context=about["block_size"],
        mean_loops=about["mean_recurrence"],
        backprop_loops=about["mean_backprop_depth"],
        depth="lognormal-poisson",
        depth_per="batch",
        injection="concat",
        coda_norm=True,
        block="sandwich",
        norm_eps=about["norm_eps"],
        qk_bias=about.get("qk_bias", True),
        qk_norm=False,
        rope_base=float(about["rope_base"]),
        mlp="swiglu",
        embed_scale=float(stated["embed_scale"]),
        tied=about.get("tie_embeddings", True),
        init="scaled",
    )


def read(tensors: Tensors, about: About) -> tuple[ModelConfig, Tensors, Names]:
    """Config, our tensors, and what they are called there."""
    cfg = config(about)
    block = BLOCK | {"attn.qk_bias": "attn.qk_bias"} if cfg.qk_bias else BLOCK
    model, tensors = with_head(MODEL, tensors, cfg, "lm_head.weight", "transformer.wte.weight")
    at = (
        places("transformer.prelude", "prelude", cfg.prelude)
        | places("transformer.core_block", "recur", cfg.recur)
        | places("transformer.coda", "coda", cfg.coda)
    )
    ours, called = rename(without(tensors, "freqs_cis"), names(model, block, at))
    split(ours, called, "attn.Wqkv.weight", {f"attn.{part}.weight": cfg.width for part in "qkv"}, cfg.width)
    split(ours, called, "mlp.fc.weight", {f"mlp.{part}.weight": cfg.mlp_width for part in ("gate", "up")}, cfg.width)
    for name in ours:
        if name.endswith("attn.qk_bias") and ours[name].ndim == 4:  # [2, 1, H, D], of queries and of keys
            ours[name] = ours[name].flatten(0, 2)
    ours["injection.weight"] = state_last(ours["injection.weight"])
    return cfg, ours, called
