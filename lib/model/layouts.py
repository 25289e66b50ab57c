"""The layouts of other people's checkpoints that are read here.

A layout is a table of names and a reading of config.json. What it does not read is refused before a tensor is touched:
a field that is missing, or one that says what this library does not have. Then every tensor must be in the table, and
every name in the table of what the model has among the tensors (``weights.renamed``). Errors call fields and tensors as
the checkpoint does.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from lib.base.errors import InputError
from lib.config import ModelConfig
from lib.model.weights import Names, Tensors

#: a config.json
About = dict[str, Any]
MOST = 2.0**63  # of anything that a config.json counts
STACKS = ("transformer.prelude", "transformer.core_block", "transformer.coda")  # of Huginn and Parcae
COMPUTED = ("freqs_cis", "rotary_emb.inv_freq")  # here, and not stored: rotary angles


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a checkpoint is known, what its config.json may say, and what its tensors are called."""

    tensor: str  # it is known by one of this name, or by the model_type in ``here``
    here: dict[str, Any]  # what fields may say where they say anything; a tuple has several such values
    sizes: tuple[str, ...]  # fields that must be stated, numbers
    build: Callable[[About, Tensors], ModelConfig]  # the config, of fields that are so. Raises InputError, naming one
    model: Names
    block: Names  # of each layer
    stacks: tuple[str, ...]  # what its layers begin with: prelude, recur and coda, or all of them
    stated: Callable[[About], About] = dict  # the fields, of config.json
    gains_less_one: bool = False  # stored so

    def config(self, about: About, tensors: Tensors) -> ModelConfig:
        """What config.json says, and shapes where it does not. Raises InputError where it says what is not here."""
        about = self.stated(about)
        need(about, self.sizes)
        read_only(about, self.here)
        return self.build(about, tensors)

    def names(self, cfg: ModelConfig) -> Names:
        """Their name -> ours, of every tensor that its models may have."""
        sizes = {"prelude": cfg.prelude, "recur": cfg.recur, "coda": cfg.coda}
        ours = [f"{stack}.{i}." for stack, n in sizes.items() for i in range(n)]
        lengths = sizes.values() if len(self.stacks) > 1 else [cfg.layers]
        theirs = [f"{stack}.{i}." for stack, n in zip(self.stacks, lengths, strict=True) for i in range(n)]
        names = self.model | {f"value_embeds.{i}.weight": f"value_embeds.{i}.weight" for i in range(cfg.layers)}
        for at, to in zip(theirs, ours, strict=True):
            names |= {at + leaf: " ".join(to + part for part in parts.split()) for leaf, parts in self.block.items()}
        return names

    def tensors(self, cfg: ModelConfig, tensors: Tensors) -> Tensors:
        """Those that are stored, with the numbers of ours. Raises InputError where a head is said to be tied and is
        not."""
        called = {ours: theirs for theirs, ours in self.model.items()}
        head, table = called["head.weight"], called["embed.weight"]
        spare = COMPUTED if not cfg.tied else (*COMPUTED, head)
        if cfg.tied and not is_tied(tensors, head, table):
            raise InputError(f"{head}: it is not {table}, though config.json says that they are one, restore either")
        found = {name: self._ours(name, tensor) for name, tensor in tensors.items() if not name.endswith(spare)}
        # a norm without a gain is one with a gain of one
        return ({"loop_norm.weight": torch.ones(cfg.width)} if cfg.loop_norm == "own" else {}) | found

    def _ours(self, name: str, tensor: Tensor) -> Tensor:
        if name.endswith(".adapter.weight") and tensor.ndim == 2:  # W [h ; e], where ours is W [e ; h]
            return torch.cat(tensor.chunk(2, -1)[::-1], -1)
        if name.endswith("attn.qk_bias") and tensor.ndim == 4:  # [2, 1, H, D], of queries and of keys
            return tensor.flatten(0, 2)
        is_gain = self.gains_less_one and name.endswith(("norm.weight", "norm_module.weight"))
        return 1 + tensor.float() if is_gain else tensor


def need(about: About, fields: Iterable[str], least: float = 1e-12) -> None:
    """Raises InputError where config.json does not state one of these fields, numbers that are at least so large."""
    for field in fields:
        value = about.get(field)
        if value is None:
            raise InputError(f"{field}: such a checkpoint needs a config.json beside it that states it, restore that")
        if isinstance(value, bool) or not isinstance(value, int | float) or value < least:
            raise InputError(f"{field}: {json.dumps(value)} is no size, restore the config.json")


def read_only(about: About, here: dict[str, Any]) -> None:
    """Raises InputError where config.json states another value than what is here; a tuple has several that are.

    What it does not state, or states as null, is as here.
    """
    for field, known in here.items():
        value = about.get(field)
        options = known if isinstance(known, tuple) else (known,)
        if value is not None and value not in options:
            wanted = " or ".join(json.dumps(option) for option in options)
            raise InputError(f"{field}: {json.dumps(value)} has no counterpart here, load one with {wanted}")


def section(about: About, field: str) -> About:
    """An object in config.json, empty where it is missing or null. Raises InputError where it is none."""
    value = about.get(field) or {}
    if not isinstance(value, dict):
        raise InputError(f"{field}: {json.dumps(value)} is no JSON object, restore the config.json")
    return value


def is_tied(tensors: Tensors, head: str, table: str) -> bool:
    """Whether there are no two of them that differ."""
    return not {head, table} <= tensors.keys() or torch.equal(tensors[head], tensors[table])


# ---- Huginn ----------------------------------------------------------------------------------------------------------


def _huginn(about: About, tensors: Tensors) -> ModelConfig:
    width, heads = about["n_embd"], about["n_heads"]
    read_only(about, {"num_key_value_heads": heads, "head_dim": width / heads})
    scales = {"std": math.sqrt(2 / (5 * width)), "embed_scale": math.sqrt(width)}
    stated = scales | section(about, "init_values")
    need(stated, scales)
    if not math.isclose(stated["std"], scales["std"], rel_tol=1e-4):  # of the initial state
        raise InputError(f"init_values: std {stated['std']} has no counterpart here, load one with {scales['std']}")
    return ModelConfig(
        vocab_size=about.get("padded_vocab_size") or about["vocab_size"],
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


#: Huginn-0125 (tomg-group-umd/huginn-0125, and the checkpoints on the way to it). Its training draws 1 + Poisson loops
#: whose mean is mean_recurrence + 1, ours of the same shape mean_recurrence; both run mean_recurrence when they are
#: asked for no number.
HUGINN = Layout(
    tensor="transformer.adapter.weight",
    here=dict(
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
    ),
    sizes=(
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
    ),
    build=_huginn,
    model={
        "transformer.wte.weight": "embed.weight",
        "transformer.adapter.weight": "injection.weight",
        "transformer.ln_f.weight": "final_norm.weight",
        "lm_head.weight": "head.weight",
    },
    block={
        "norm_1.weight": "attn_norm.weight",
        "attn.Wqkv.weight": "attn.q.weight attn.k.weight attn.v.weight",
        "attn.qk_bias": "attn.qk_bias",
        "attn.proj.weight": "attn.out.weight",
        "norm_2.weight": "attn_post.weight",
        "norm_3.weight": "mlp_norm.weight",
        "mlp.fc.weight": "mlp.gate.weight mlp.up.weight",
        "mlp.proj.weight": "mlp.down.weight",
        "norm_4.weight": "mlp_post.weight",
    },
    stacks=STACKS,
)

# ---- Parcae ----------------------------------------------------------------------------------------------------------

GATE = "attn.ve_gate.weight"  # where a layer has a value table


def _parcae(about: About, tensors: Tensors) -> ModelConfig:
    sizes = ("num_attention_heads", "rope_base", "block_size", "mean_recurrence", "mean_backprop_depth", "norm_eps")
    need(about, [field for field in sizes if about.get(field) is not None])
    vocab_size, width = _matrix(tensors, "transformer.wte.weight").shape
    stored = next((tensor for name, tensor in tensors.items() if name.endswith("freqs_cis")), None)
    angles = torch.view_as_real(stored) if stored is not None and stored.is_complex() else stored
    gated = any(name.endswith(GATE) for name in tensors)
    heads = about.get("num_attention_heads")
    heads = heads or (len(_matrix(tensors, GATE)) if gated else width // _head_dim(angles, width))
    prelude, recur, coda = (
        len({name.removeprefix(stack).split(".")[1] for name in tensors if name.startswith(f"{stack}.")})
        for stack in STACKS
    )
    state_init: Any = about.get("state_init") or "like-init"
    return ModelConfig(
        vocab_size=vocab_size,
        width=width,
        heads=heads,
        mlp_width=len(_matrix(tensors, "mlp.fc.weight")),
        prelude=prelude,
        recur=recur,
        coda=coda,
        # the longest sequence that the angles serve; 001's models have 2048
        context=about.get("block_size") or (2048 if angles is None else angles.numel() // (width // heads)),
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
        rope_base=float(about.get("rope_base") or section(about, "rope_settings").get("rope_base") or 50_000),
        qk_norm=about.get("qk_norm", True),
        mlp="half-relu2",
        value_embeddings=gated,
        tied=is_tied(tensors, "lm_head.weight", "transformer.wte.weight"),
        init="parcae",
    )


def _matrix(tensors: Tensors, ending: str) -> Tensor:
    """The first whose name ends so."""
    name = next((name for name in tensors if name.endswith(ending)), None)
    if name is None:
        raise InputError(f"weights: no tensor is named ...{ending}, the file has no block that is known here")
    if tensors[name].ndim != 2:
        raise InputError(f"weights: {name} has shape {tuple(tensors[name].shape)} and is no matrix, restore it")
    return tensors[name]


def _head_dim(angles: Tensor | None, width: int) -> int:
    """From rotary angles [.., D/2, 2]; 001's models have 128."""
    if angles is not None and angles.shape[-1] == 2:
        return 2 * angles.shape[-2]
    if angles is None and width % 128 == 0:
        return 128
    raise InputError("num_attention_heads: neither value gates nor freqs_cis tell it, state it in a config.json")


#: The official checkpoints of 001, whose config.json may be missing: then sizes come from the shapes, heads from the
#: gates or freqs_cis, and the loops are those of the paper, 8 with 4 backpropagated.
PARCAE = Layout(
    tensor="transformer.wte.weight",
    here=dict(
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
    ),
    sizes=(),
    build=_parcae,
    model={
        "transformer.wte.weight": "embed.weight",
        "transformer.ln_prelude.weight": "prelude_norm.weight",
        "transformer.adapter.A_log": "injection.A_log",
        "transformer.adapter.dt_bias": "injection.dt_bias",
        "transformer.adapter.B": "injection.B",
        "transformer.C.weight": "readout.weight",
        "transformer.ln_f.weight": "final_norm.weight",
        "lm_head.weight": "head.weight",
    },
    block={
        "norm_1.weight": "attn_norm.weight",
        "attn.c_q.weight": "attn.q.weight",
        "attn.c_k.weight": "attn.k.weight",
        "attn.c_v.weight": "attn.v.weight",
        GATE: "attn.gate.weight",
        "attn.c_proj.weight": "attn.out.weight",
        "norm_2.weight": "mlp_norm.weight",
        "mlp.fc.weight": "mlp.up.weight",
        "mlp.proj.weight": "mlp.down.weight",
    },
    stacks=STACKS,
)

# ---- Llama, and Ouro, which is made of its parts ---------------------------------------------------------------------


def _parts_of_llama(about: About) -> dict[str, Any]:
    """What a Llama and an Ouro have in common. Raises InputError where biases are stated, scaled RoPE, or heads that do
    not fill the width."""
    heads = about["num_attention_heads"]
    rope: About = {"rope_theta": about.get("rope_theta") or 10_000}
    read_only(
        about, dict(attention_bias=False, mlp_bias=False, hidden_act="silu", head_dim=about["hidden_size"] / heads)
    )
    for field in ("rope_scaling", "rope_parameters"):  # as it was called, and as transformers 5 calls it
        stated = section(about, field)
        read_only({field: stated.get("rope_type") or stated.get("type")}, {field: "default"})
        rope |= {name: value for name, value in stated.items() if value is not None}
    need(rope, ["rope_theta"])
    read_only(about | rope, {"partial_rotary_factor": 1})
    return dict(
        vocab_size=about["vocab_size"],
        width=about["hidden_size"],
        heads=heads,
        kv_heads=about.get("num_key_value_heads"),
        mlp_width=about["intermediate_size"],
        coda=0,
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


#: Hugging Face's, a plain Transformer
LLAMA = Layout(
    tensor="model.embed_tokens.weight",
    here={"model_type": "llama"},
    sizes=(
        "vocab_size",
        "hidden_size",
        "num_attention_heads",
        "intermediate_size",
        "num_hidden_layers",
        "rms_norm_eps",
        "max_position_embeddings",
    ),
    build=lambda about, _: ModelConfig(
        prelude=about["num_hidden_layers"], recur=0, mean_loops=1, **_parts_of_llama(about)
    ),
    model={
        "model.embed_tokens.weight": "embed.weight",
        "model.norm.weight": "final_norm.weight",
        "lm_head.weight": "head.weight",
    },
    block={
        "input_layernorm.weight": "attn_norm.weight",
        "self_attn.q_proj.weight": "attn.q.weight",
        "self_attn.k_proj.weight": "attn.k.weight",
        "self_attn.v_proj.weight": "attn.v.weight",
        "self_attn.o_proj.weight": "attn.out.weight",
        "post_attention_layernorm.weight": "mlp_norm.weight",
        "mlp.gate_proj.weight": "mlp.gate.weight",
        "mlp.up_proj.weight": "mlp.up.weight",
        "mlp.down_proj.weight": "mlp.down.weight",
    },
    stacks=("model.layers",),
)


def _stated_by_ouro(about: About) -> About:
    if about.get("use_sliding_window") is False:  # then a window that is stated is not used
        about = about | {"sliding_window": None}
    other = [layer for layer in about.get("layer_types") or () if layer != "full_attention"]
    return about | {"layer_types": other[0] if other else None}


#: Ouro (ByteDance/Ouro-1.4B, -2.6B and their Thinking models): a Llama whose whole stack is the loop. Its blocks norm
#: each branch at both ends, its final norm closes every loop and is the head's, and a gate says with which chance a
#: token leaves after a loop: its exit at a threshold q is ``lib.decode``'s by the criterion "gate" at 1 - q. A plain
#: pass makes all its loops, whatever ``early_exit_threshold`` says.
OURO = dataclasses.replace(
    LLAMA,
    tensor="model.early_exit_gate.weight",
    here=dict(
        model_type="ouro",
        use_sliding_window=False,
        sliding_window=None,
        layer_types="full_attention",
        early_exit_step=None,
    ),
    sizes=(*LLAMA.sizes, "total_ut_steps"),
    stated=_stated_by_ouro,
    build=lambda about, _: ModelConfig(
        prelude=0,
        recur=about["num_hidden_layers"],
        mean_loops=about["total_ut_steps"],
        block="peri-norm",
        loop_norm="closing",
        exit_gate=True,
        **_parts_of_llama(about),
    ),
    model=LLAMA.model
    | {"model.early_exit_gate.weight": "exit_gate.weight", "model.early_exit_gate.bias": "exit_gate.bias"},
    block=LLAMA.block
    | {"input_layernorm_2.weight": "attn_post.weight", "post_attention_layernorm_2.weight": "mlp_post.weight"},
)

# ---- xLLM's looped models --------------------------------------------------------------------------------------------

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
#: what has an effect there only beside huginn_depth_control
WITH_DEPTH_CONTROL = (
    "huginn_prelude_norm",
    "huginn_recurrent_exit_norm",
    "huginn_prelude_orthogonal",
    "huginn_sampling_scheme",
    "huginn_backprop_depth",
)


def _xllm(about: About, tensors: Tensors) -> ModelConfig:
    need(about, ("loop_start_layer", "huginn_prelude_layers", "huginn_coda_layers"), least=0)
    width, heads = about["model_dim"], about["num_heads"]
    head_dims = dict.fromkeys(("head_dim", "v_head_dim", "rope_head_dim"), width / heads)
    read_only(about, head_dims | {"output_size": (-1, about["vocab_size"])})
    return ModelConfig(
        vocab_size=about["vocab_size"],
        width=width,
        heads=heads,
        kv_heads=about.get("num_kv_heads"),
        mlp_width=about["ffn_hidden_dim"],
        context=16 * about["chunk_size"],  # as far as its rotary angles go
        norm_eps=about["rmsnorm_eps"],
        qk_norm=False,
        rope_base=float(about["rope_base"]),
        mlp="swiglu",
        tied=False,
        init="normal",
        mean_loops=about["loop_times"],
        **(_with_prelude_and_coda if about["arch"] == "huginn" else _whose_layers_may_loop)(about),
    )


def _with_prelude_and_coda(about: About) -> dict[str, Any]:
    prelude, coda = about["huginn_prelude_layers"], about["huginn_coda_layers"]
    recur = about["num_layers"] - prelude - coda
    read_only(about, {"huginn_recurrent_layers": recur})
    if not about.get("huginn_depth_control"):  # which these need there
        about = {name: value for name, value in about.items() if name not in WITH_DEPTH_CONTROL}
    sampled = about.get("huginn_sampling_scheme", "fixed") != "fixed"
    if sampled:
        read_only(about, {"huginn_poisson_lognormal_target_mean": about["loop_times"]})
    injection = {"none": "none", "linear": "concat", "diagonal": "lti"}[about["huginn_input_injection"]]
    return dict(
        prelude=prelude,
        recur=recur,
        coda=coda,
        backprop_loops=about.get("huginn_backprop_depth") or "all",
        depth="lognormal-poisson" if sampled else "fixed",
        depth_per="batch",
        injection="orthogonal" if about.get("huginn_prelude_orthogonal") else injection,
        injection_bias=injection == "concat" and about["apply_bias_term"],
        state_init={"zero": "zero", "input": "prelude", "normal": "narrow"}[about["huginn_state_init"]],
        prelude_norm=about.get("huginn_prelude_norm") == "rms",
        loop_norm="own" if about.get("huginn_recurrent_exit_norm") == "parameterless_rms" else "none",
    )


def _whose_layers_may_loop(about: About) -> dict[str, Any]:
    """Of a Transformer, without injection."""
    layers, start = about["num_layers"], about["loop_start_layer"]
    end = about.get("loop_end_layers") or layers
    if about["loop_times"] == 1:
        start = end = layers
    return dict(
        prelude=start,
        recur=end - start,
        coda=layers - end,
        backprop_loops="all",
        injection="none",
        state_init="prelude",
    )


#: xLLM's looped models (ifm-ai/xllm-loop: LoopedLM-P2, and of P1 those that are dense with one state). Where the state
#: is random, xLLM evaluates with a hash in the place of N(0, 1/d), which depends on the last bits of a sine; that is
#: not made here: the state is a draw from N(0, 1/d) fixed by a seed, as in every model of this library. Training depths
#: are those of the rule, uncapped; a learned prior begins as that rule, and the weights do not say how it ended.
XLLM = Layout(
    tensor="output.final_norm.weight",
    here=dict(
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
    ),
    sizes=(
        "model_dim",
        "num_layers",
        "num_heads",
        "ffn_hidden_dim",
        "vocab_size",
        "chunk_size",
        "rmsnorm_eps",
        "rope_base",
        "loop_times",
    ),
    stated=lambda about: DEFAULTS | {name: x for name, x in section(about, "model").items() if x is not None},
    build=_xllm,
    model={
        "embed.weight": "embed.weight",
        "huginn_prelude_norm_module.weight": "prelude_norm.weight",
        "input_injection.A_log": "injection.A_log",
        "input_injection.dt_bias": "injection.dt_bias",
        "input_injection.input_adapter.weight": "injection.B",
        "input_injection.adapter.weight": "injection.weight",
        "input_injection.adapter.bias": "injection.bias",
        "output.final_norm.weight": "final_norm.weight",
        "output.output.weight": "head.weight",
    },
    block={
        "attention.norm.weight": "attn_norm.weight",
        "attention.wq.weight": "attn.q.weight",
        "attention.wk.weight": "attn.k.weight",
        "attention.wv.weight": "attn.v.weight",
        "attention.wo.weight": "attn.out.weight",
        "nffn.norm.weight": "mlp_norm.weight",
        "nffn.fc1.weight": "mlp.gate.weight",
        "nffn.fc2.weight": "mlp.down.weight",
        "nffn.fc3.weight": "mlp.up.weight",
    },
    stacks=("layers",),
    gains_less_one=True,
)

# ---- all of them -----------------------------------------------------------------------------------------------------

#: the first that knows a checkpoint reads it: what is named like another, and has more, stands before it
LAYOUTS = {"Huginn": HUGINN, "Parcae": PARCAE, "Ouro": OURO, "Llama": LLAMA, "LoopedLM": XLLM}


def read(path: object, tensors: Tensors, about: About) -> tuple[ModelConfig, Tensors, Names]:
    """Config and tensors of what lies at ``path``, whoever wrote it, and their name -> ours. Raises InputError, naming
    a field or a tensor, where it cannot be read."""
    for field, value in (about | section(about, "model")).items():
        if isinstance(value, int | float) and abs(value) > MOST:
            raise InputError(f"{field}: {value!s:.80} is no size of a model, restore the config.json of {path}")
    for whose, layout in LAYOUTS.items():
        known = layout.here.get("model_type")
        if layout.tensor in tensors or (known is not None and about.get("model_type") == known):
            try:
                cfg = layout.config(about, tensors)
                return cfg, layout.tensors(cfg, tensors), layout.names(cfg)
            except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError) as error:
                # what no field is asked for
                raise InputError(f"path: {path} is no {whose} ({error!r:.120}), restore its config.json") from None
    names = " or ".join((", ".join([*LAYOUTS][:-1]), [*LAYOUTS][-1]))
    raise InputError(f"path: {path} carries no config of ours and is not in the layout of {names}, give one of them")
