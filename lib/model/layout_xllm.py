"""xLLM's looped models (ifm-ai/xllm-loop: LoopedLM-P2, and of P1 those that are dense with one state).

Gains of norms are stored minus one. Where the state is random, xLLM evaluates with a hash in the place of N(0, 1/d),
which depends on the last bits of a sine; that is not made here: the state is a draw from N(0, 1/d) fixed by a seed, as
in every model of this library. A norm without gain after each loop becomes one with a gain of one. Training depths are
those of the rule, uncapped; a learned prior begins as that rule, and the weights do not say how it ended.
"""

from typing import Any

import torch

from lib.config import ModelConfig
from lib.model.layout import About, Names, Tensors, names, need, read_only, rename, section, state_last

BLOCK = {
    "attention.norm.weight": "attn_norm.weight",
    "attention.wq.weight": "attn.q.weight",
    "attention.wk.weight": "attn.k.weight",
    "attention.wv.weight": "attn.v.weight",
    "attention.wo.weight": "attn.out.weight",
    "nffn.norm.weight": "mlp_norm.weight",
    "nffn.fc1.weight": "mlp.gate.weight",
    "nffn.fc2.weight": "mlp.down.weight",
    "nffn.fc3.weight": "mlp.up.weight",
}
MODEL = {
    "embed.weight": "embed.weight",
    "output.final_norm.weight": "final_norm.weight",
    "output.output.weight": "head.weight",
}
DECAYING = {
    "input_injection.A_log": "injection.A_log",
    "input_injection.dt_bias": "injection.dt_bias",
    "input_injection.input_adapter.weight": "injection.B",
}
INJECTION = {
    "none": {},
    "lti": DECAYING,
    "orthogonal": DECAYING,
    "concat": {"input_injection.adapter.weight": "injection.weight"},
}
WHOSE = "a LoopedLM"
NEEDED = (
    "model_dim",
    "num_layers",
    "num_heads",
    "ffn_hidden_dim",
    "vocab_size",
    "chunk_size",
    "rmsnorm_eps",
    "rope_base",
    "loop_times",
)
#: what a field means that config.json leaves out
DEFAULTS: About = dict(
    arch="transformer",
    apply_rmsnorm=False,
    swiglu=False,
    rmsnorm_eps=1e-6,
    rope_base=100_000,
    chunk_size=2048,
    apply_bias_term=False,
    loop_times=1,
    loop_start_layer=0,
    huginn_prelude_layers=1,
    huginn_coda_layers=1,
    huginn_state_init="zero",
    huginn_input_injection="diagonal",
    huginn_sampling_scheme="fixed",
)
HERE = dict(
    arch=("transformer", "huginn"),
    apply_rmsnorm=True,
    swiglu=True,
    qknorm=False,
    attn_act_func="softmax",
    apply_attn_gate=False,
    num_values=0,
    num_experts=0,
    layernorm_num_groups=1,
    norm_affine=True,
    residual_func=("base", "add"),
    scale_emb=False,
    loop_input_injection="none",
    dense_prelude_input_injection="none",
    huginn_hierarchical_state="none",
    huginn_split_module_repeats=1,
    huginn_state_init=("zero", "input", "normal"),
    huginn_input_injection=("none", "diagonal", "linear"),
    huginn_prelude_norm=("none", "rms"),
    huginn_recurrent_exit_norm=("none", "parameterless_rms"),
    huginn_ortho_projection_eps=1e-6,
    huginn_sampling_scheme=("fixed", "poisson-lognormal-capped"),
    huginn_poisson_lognormal_sigma=0.5,
    huginn_antithetic_sampling=False,
)


#: what has an effect there only beside huginn_depth_control
WITH_DEPTH_CONTROL = (
    "huginn_prelude_norm",
    "huginn_recurrent_exit_norm",
    "huginn_prelude_orthogonal",
    "huginn_sampling_scheme",
    "huginn_backprop_depth",
)


def config(about: About) -> ModelConfig:
    """What its config.json says. Raises InputError where that is not here: experts, gates, states of several
    parts, other norms and residuals, embeddings injected again."""
    fields = DEFAULTS | {field: value for field, value in section(about, "model").items() if value is not None}
    need(fields, WHOSE, NEEDED)
    need(fields, WHOSE, ("loop_start_layer", "huginn_prelude_layers", "huginn_coda_layers"), least=0)
    read_only(fields, WHOSE, HERE | {"output_size": (-1, fields["vocab_size"])})
    width, heads = fields["model_dim"], fields["num_heads"]
    read_only(fields, WHOSE, dict.fromkeys(("head_dim", "v_head_dim", "rope_head_dim"), width / heads))
    huginn, loops = fields["arch"] == "huginn", fields["loop_times"]
    if huginn and not fields.get("huginn_depth_control"):  # which these need there
        fields = {name: value for name, value in fields.items() if name not in WITH_DEPTH_CONTROL}
        fields |= {"huginn_sampling_scheme": "fixed"}
    return ModelConfig(
        vocab_size=fields["vocab_size"],
        width=width,
        heads=heads,
        kv_heads=fields.get("num_kv_heads"),
        mlp_width=fields["ffn_hidden_dim"],
        context=16 * fields["chunk_size"],  # as far as its rotary angles go
        norm_eps=fields["rmsnorm_eps"],
        qk_norm=False,
        rope_base=float(fields["rope_base"]),
        mlp="swiglu",
        tied=False,
        init="normal",
        mean_loops=loops,
        **(_huginn(fields) if huginn else _looped(fields)),
    )


def _huginn(fields: About) -> dict[str, Any]:
    """Prelude, loop and coda."""
    prelude, coda = fields["huginn_prelude_layers"], fields["huginn_coda_layers"]
    recur = fields["num_layers"] - prelude - coda
    read_only(fields, WHOSE, {"huginn_recurrent_layers": recur})
    sampled = fields["huginn_sampling_scheme"] != "fixed"
    if sampled:
        read_only(fields, WHOSE, {"huginn_poisson_lognormal_target_mean": fields["loop_times"]})
    injection = {"none": "none", "linear": "concat", "diagonal": "lti"}[fields["huginn_input_injection"]]
    return dict(
        prelude=prelude,
        recur=recur,
        coda=coda,
        backprop_loops=fields.get("huginn_backprop_depth") or "all",
        depth="lognormal-poisson" if sampled else "fixed",
        depth_per="batch",
        injection="orthogonal" if fields.get("huginn_prelude_orthogonal") else injection,
        injection_bias=injection == "concat" and fields["apply_bias_term"],
        state_init={"zero": "zero", "input": "prelude", "normal": "narrow"}[fields["huginn_state_init"]],
        prelude_norm=fields.get("huginn_prelude_norm") == "rms",
        loop_norm="own" if fields.get("huginn_recurrent_exit_norm") == "parameterless_rms" else "none",
    )


def _looped(fields: About) -> dict[str, Any]:
    """A Transformer, some of WHOSE layers may loop without injection."""
    layers, start = fields["num_layers"], fields["loop_start_layer"]
    end = fields.get("loop_end_layers") or layers
    if fields["loop_times"] == 1:
        start = end = layers
    return dict(
        prelude=start,
        recur=end - start,
        coda=layers - end,
        backprop_loops="all",
        injection="none",
        state_init="prelude",
    )


def read(tensors: Tensors, about: About) -> tuple[ModelConfig, Tensors, Names]:
    """Config, our tensors, and what they are called there."""
    cfg = config(about)
    model = MODEL | INJECTION[cfg.injection]
    if cfg.injection_bias:
        model["input_injection.adapter.bias"] = "injection.bias"
    if cfg.prelude_norm:
        model["huginn_prelude_norm_module.weight"] = "prelude_norm.weight"
    stacks = {"prelude": cfg.prelude, "recur": cfg.recur, "coda": cfg.coda}
    blocks = [f"{stack}.{i}" for stack, layers in stacks.items() for i in range(layers)]
    at = {f"layers.{i}": block for i, block in enumerate(blocks)}
    ours, called = rename(tensors, names(model, BLOCK, at))
    for name in ours:
        if name.endswith("norm.weight"):
            ours[name] = 1 + ours[name].float()
    if cfg.injection == "concat":
        ours["injection.weight"] = state_last(ours["injection.weight"])
    if cfg.loop_norm == "own":
        ours["loop_norm.weight"] = torch.ones(cfg.width)
    return cfg, ours, called
