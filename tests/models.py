"""Small models of every kind and family, and checkpoints in the layouts of others."""

import functools

import numpy as np
import torch

from lib.config import ModelConfig
from lib.decode.exits import measure_exits
from lib.model.looped import LoopedLM
from lib.presets import preset

# ---- every kind that a config can say

LOOP_ALONE = dict(injection="none", state_init="prelude", prelude=0, coda=0, recur=2, backprop_loops="all")
LANES = dict(injection="hyper-connections", state_init="prelude", loop_norm="own", backprop_loops="all", mean_loops=6)
EXPERTS = dict(mlp="swiglu", experts=5, active_experts=2, balance_loss=0.0, router_z_loss=0.0)
ISODEPTH = dict(injection="concat-identity", state_init="prelude", loop_norm="own", embed_norm=True, tied=False)
GROUPED = dict(injection="concat", injection_bias=True, state_init="like-init", block="sandwich", coda_norm=True)
GATED = dict(block="peri-norm", loop_norm="closing", exit_gate=True, kv_heads=1, mlp="swiglu", tied=False)
KINDS = {
    "parcae": dict(injection="lti", state_init="like-init", prelude_norm=True, readout=True),
    "base": dict(injection="concat", state_init="like-init"),
    "residual": dict(injection="concat", state_init="like-init", block="sandwich", loop_norm="final", mlp="swiglu"),
    "iso-depth": ISODEPTH,
    "additive": dict(injection="add", state_init="zero", rope="half-split"),
    "passthrough": LOOP_ALONE | dict(mean_loops=6),
    "scaled residual": LOOP_ALONE | dict(mean_loops=6, residual="1/(N sqrt(L))", mlp="swiglu"),
    "values": dict(injection="lti", state_init="unit", value_embeddings=True, mlp="half-relu2", init="parcae"),
    "normal": dict(injection="lti", state_init="normal", norm_gain=False),
    "experts": EXPERTS | dict(state_init="prelude", norm_gain=False, tied=False),
    "nanochat": ISODEPTH | dict(softcap=5.0, block="sandwich", windows="LS", init="uniform"),
    "hyper-connections": LANES,
    "lanes of outputs": LANES | dict(lanes_receive="s"),
    "grouped": GROUPED | dict(kv_heads=1, qk_bias=True, qk_norm=False, embed_scale=3.0),
    "orthogonal": dict(injection="orthogonal", state_init="narrow", kv_heads=1),
    "boundary": dict(injection="boundary", state_init="prelude", embed_norm=True, norm_gain=False),
    "gated": LOOP_ALONE | GATED,
}


def config(kind="parcae", **changes) -> ModelConfig:
    sizes = dict(vocab_size=61, width=32, heads=2, mlp_width=48, context=24, mean_loops=4, backprop_loops=2)
    return ModelConfig(**{**sizes, **KINDS[kind], **changes})


def randomized(cfg: ModelConfig) -> LoopedLM:
    """A model whose every parameter is random, so that no zero or identity of the init hides a fault."""
    model = LoopedLM(cfg)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def tokens(rows=4, length=16, vocab=61):
    return torch.randint(vocab, (rows, length), generator=torch.Generator().manual_seed(2))


# ---- the families that decode, the papers' among them

SMALL = dict(vocab_size=61, width=32, heads=2, mlp_width=48, context=24)
#: every family: the kinds of the model's own tests, and the papers' that are missing there
FAMILIES = {kind: config(kind) for kind in KINDS} | {
    "transformer": preset("gpt-140m", **SMALL | {"width": 64, "heads": 2}),
    "moe": preset("moe-128", **SMALL, prelude=3),
    "looped-moe": preset("looped-moe-128", **SMALL, recur=2, mean_loops=3),
    "post-norm": preset("residual-L12-N4", **SMALL, recur=2, block="post-norm", residual="1/N"),
}
LOOPED = [kind for kind, cfg in FAMILIES.items() if cfg.recur]


@functools.cache
def built(kind):
    return randomized(FAMILIES[kind]).eval()


def prompts_of(*lengths, seed=3):
    x = np.random.default_rng(seed).integers(0, 61, (len(lengths), max(lengths)))
    return [row[:n].tolist() for row, n in zip(x, lengths, strict=True)]


@functools.cache
def middling(model, criterion="entropy"):
    """A threshold below which some tokens are after one loop, and others are not."""
    x = tokens()
    scores = measure_exits(model, x[:, :-1], x[:, 1:]).scores[criterion]
    first = {"entropy": 0, "kl": 1, "l2": 1, "acceleration": 2}[criterion]
    return float(np.median(scores[first]))


# ---- checkpoints of others

V, D, HEADS, HIDDEN, CONTEXT = 61, 64, 2, 96, 32


def official_parcae(stacks=(2, 3, 1)) -> dict[str, torch.Tensor]:
    """Random tensors under the names of the released checkpoints."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape, std=0.15):
        return std * torch.randn(*shape, generator=generator)

    tensors = {
        "transformer.wte.weight": draw(V, D, std=1.0),
        "transformer.adapter.A_log": draw(D),
        "transformer.adapter.dt_bias": draw(D),
        "transformer.adapter.B": draw(D, D),
        "transformer.C.weight": draw(D, D),
        "transformer.ln_prelude.weight": 1 + draw(D),
        "transformer.ln_f.weight": 1 + draw(D),
        "freqs_cis": torch.zeros(1, CONTEXT, 1, D // HEADS // 2, 2),
    }
    unique = 0
    for stack, layers in zip(("prelude", "core_block", "coda"), stacks, strict=True):
        for i in range(layers):
            block = f"transformer.{stack}.{i}"
            tensors |= {f"{block}.norm_{j}.weight": 1 + draw(D) for j in (1, 2)}
            tensors |= {f"{block}.attn.{name}.weight": draw(D, D) for name in ("c_q", "c_k", "c_v", "c_proj")}
            tensors |= {f"{block}.mlp.fc.weight": draw(HIDDEN, D), f"{block}.mlp.proj.weight": draw(D, HIDDEN)}
            if unique % 2 == (sum(stacks) - 1) % 2:
                tensors[f"{block}.attn.ve_gate.weight"] = draw(HEADS, 32)
                tensors[f"value_embeds.{unique}.weight"] = draw(V, D, std=1.0)
            unique += 1
    return tensors


def llama(tmp_path, **changes):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = dict(vocab_size=V, hidden_size=D, num_attention_heads=4, num_key_value_heads=4, intermediate_size=HIDDEN)
    config = LlamaConfig(**{**sizes, "num_hidden_layers": 3, "max_position_embeddings": CONTEXT, **changes})
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.2)
    model.save_pretrained(tmp_path)
    return model
