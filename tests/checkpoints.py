"""Small checkpoints with the tensor names, shapes and config.json of those that others have published, and their
published sizes."""

import json
import math
from pathlib import Path

import safetensors.torch
import torch

from tests.models import CONTEXT, HIDDEN, D, V, official_parcae

HEADS = 4
#: what their config.json say beside sizes
SAID = json.loads(Path(__file__).with_suffix(".json").read_text())


def drawn(shapes, gain=1.0):
    """Random tensors of these shapes. Norms' weights lie around ``gain``."""
    generator = torch.Generator().manual_seed(0)

    def draw(name, shape):
        around = gain if "norm" in name or "ln_f" in name else 0.0
        std = 1.0 if "embed" in name or "wte" in name else 0.1
        return around + std * torch.randn(shape, generator=generator)

    return {name: draw(name, shape) for name, shape in shapes.items()}


def saved(folder, about, tensors):
    """Them as files in the folder."""
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(about))
    return folder


# ---- Huginn ----------------------------------------------------------------------------------------------------------


def huginn_about(n_embd=D, n_heads=HEADS, intermediate_size=HIDDEN, vocab_size=V, block_size=CONTEXT, stacks=(2, 3, 1)):
    heads = {"n_heads": n_heads, "num_key_value_heads": n_heads, "head_dim": n_embd // n_heads}
    sizes = {"n_embd": n_embd, "intermediate_size": intermediate_size, "block_size": block_size}
    sizes |= {"vocab_size": vocab_size, "padded_vocab_size": vocab_size}
    layers = zip(("prelude", "recurrent_block", "coda"), stacks, strict=True)
    sizes |= {f"n_layers_in_{stack}": n for stack, n in layers}
    init = {"init_values": {"std": math.sqrt(2 / (5 * n_embd)), "embed_scale": math.sqrt(n_embd)}}
    return SAID["huginn"] | heads | sizes | init


def huginn_shapes(about):
    d, H, F, vocab = (about[field] for field in ("n_embd", "n_heads", "intermediate_size", "vocab_size"))
    shapes = {
        "transformer.wte.weight": (vocab, d),
        "transformer.adapter.weight": (d, 2 * d),
        "transformer.ln_f.weight": (d,),
        "freqs_cis": (1, about["block_size"], 1, d // H // 2, 2),
    }
    stacks = {"prelude": "prelude", "recurrent_block": "core_block", "coda": "coda"}
    for field, stack in stacks.items():
        for i in range(about[f"n_layers_in_{field}"]):
            block = f"transformer.{stack}.{i}"
            shapes |= {f"{block}.norm_{j}.weight": (d,) for j in (1, 2, 3, 4)}
            shapes |= {
                f"{block}.attn.Wqkv.weight": (3 * d, d),
                f"{block}.attn.qk_bias": (2, 1, H, d // H),
                f"{block}.attn.proj.weight": (d, d),
                f"{block}.mlp.fc.weight": (2 * F, d),
                f"{block}.mlp.proj.weight": (d, F),
            }
    return shapes


def huginn(**changes):
    """(config.json, tensors), with both copies of the tied table as published."""
    about = huginn_about(**changes)
    tensors = drawn(huginn_shapes(about))
    # tables are scaled by sqrt(d) as they are looked up
    tensors["transformer.wte.weight"] /= math.sqrt(about["n_embd"])
    return about, tensors | {"lm_head.weight": tensors["transformer.wte.weight"].clone()}


HUGINN_0125 = huginn_about(5280, 55, 17920, 65536, 4096, (2, 4, 2))


# ---- Ouro, and Llama, of whose parts it is made ----------------------------------------------------------------------


def llama_about(hidden_size=D, layers=3, heads=HEADS, key_heads=2, intermediate_size=HIDDEN, vocab_size=V):
    sizes = {"hidden_size": hidden_size, "intermediate_size": intermediate_size, "num_hidden_layers": layers}
    sizes |= {"num_attention_heads": heads, "num_key_value_heads": key_heads, "head_dim": hidden_size // heads}
    return SAID["llama"] | sizes | {"max_position_embeddings": CONTEXT, "vocab_size": vocab_size}


def ouro_about(**sizes):
    about = llama_about(**sizes)
    return about | {
        "model_type": "ouro",
        "layer_types": ["full_attention"] * about["num_hidden_layers"],
        "sliding_window": None,
        "use_sliding_window": False,
        "total_ut_steps": 4,
    }


def llama_shapes(about, norms=("input_layernorm", "post_attention_layernorm")):
    d, F, vocab = (about[field] for field in ("hidden_size", "intermediate_size", "vocab_size"))
    kv = about["head_dim"] * about["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": (vocab, d), "model.norm.weight": (d,), "lm_head.weight": (vocab, d)}
    for i in range(about["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        shapes |= {f"{layer}.{norm}.weight": (d,) for norm in norms}
        rows = {"q": d, "k": kv, "v": kv, "o": d}
        shapes |= {f"{layer}.self_attn.{part}_proj.weight": (n, d) for part, n in rows.items()}
        shapes |= {f"{layer}.mlp.{part}_proj.weight": (F, d) for part in ("gate", "up")}
        shapes[f"{layer}.mlp.down_proj.weight"] = (d, F)
    return shapes


def ouro_shapes(about):
    norms = [f"{norm}_layernorm{n}" for norm in ("input", "post_attention") for n in ("", "_2")]
    gate = {"model.early_exit_gate.weight": (1, about["hidden_size"]), "model.early_exit_gate.bias": (1,)}
    return llama_shapes(about, norms) | gate


def llama():
    """(config.json, tensors)."""
    about = llama_about()
    return about, drawn(llama_shapes(about))


def ouro(**sizes):
    """(config.json, tensors), with a gate that is open by about a third."""
    about = ouro_about(**sizes)
    return about, drawn(ouro_shapes(about)) | {"model.early_exit_gate.bias": torch.tensor([-0.7])}


OURO_1_4B = ouro_about(hidden_size=2048, layers=24, heads=16, key_heads=16, intermediate_size=5632, vocab_size=49152)


# ---- xLLM's looped models --------------------------------------------------------------------------------------------

HALF_LOG_5 = 0.5 * math.log(5)
PLN5 = {
    "huginn_sampling_scheme": "poisson-lognormal-capped",
    "huginn_poisson_lognormal_target_mean": 5.0,
    "huginn_poisson_lognormal_sigma": 0.5,
    "huginn_backprop_depth": 10,
}
#: the recipes of LoopedLM-P2
XLLM = {
    "diagonal": {},
    "diagonal pln": PLN5,
    "linear": PLN5 | {"huginn_input_injection": "linear", "huginn_recurrent_exit_norm": "parameterless_rms"},
    "parcae": PLN5 | {"huginn_diagonal_dt_init": HALF_LOG_5, "huginn_prelude_norm": "rms"},
    "orthoinj": PLN5 | {"huginn_diagonal_dt_init": HALF_LOG_5, "huginn_prelude_orthogonal": True},
    "d4": {"arch": "transformer", "huginn_depth_control": False, "loop_times": 1, "huginn_backprop_depth": None},
}


def xllm_about(recipe, model_dim=D, num_heads=HEADS, num_kv_heads=2, ffn_hidden_dim=HIDDEN, vocab_size=V, **changes):
    sizes = {"model_dim": model_dim, "ffn_hidden_dim": ffn_hidden_dim, "vocab_size": vocab_size}
    sizes |= {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
    sizes |= dict.fromkeys(("head_dim", "rope_head_dim"), model_dim // num_heads)
    return {"model": SAID["xllm"] | sizes | XLLM[recipe] | changes}


def xllm_shapes(about):
    model = about["model"]
    d, F, vocab = (model[field] for field in ("model_dim", "ffn_hidden_dim", "vocab_size"))
    kv = model["head_dim"] * model["num_kv_heads"]
    shapes = {"embed.weight": (vocab, d), "output.final_norm.weight": (d,), "output.output.weight": (vocab, d)}
    for i in range(model["num_layers"]):
        shapes |= {f"layers.{i}.{part}.norm.weight": (d,) for part in ("attention", "nffn")}
        rows = {"wq": d, "wk": kv, "wv": kv, "wo": d}
        shapes |= {f"layers.{i}.attention.{part}.weight": (n, d) for part, n in rows.items()}
        shapes |= {f"layers.{i}.nffn.{part}.weight": (F, d) for part in ("fc1", "fc3")}
        shapes[f"layers.{i}.nffn.fc2.weight"] = (d, F)
    if model["arch"] == "transformer":
        return shapes
    if model["huginn_input_injection"] == "linear":
        return shapes | {"input_injection.adapter.weight": (d, 2 * d), "input_injection.adapter.bias": (d,)}
    shapes |= {f"input_injection.{name}": (d,) for name in ("A_log", "dt_bias")}
    shapes["input_injection.input_adapter.weight"] = (d, d)
    if model["huginn_prelude_norm"] == "rms":
        shapes["huginn_prelude_norm_module.weight"] = (d,)
    return shapes


def xllm(recipe, **changes):
    """(config.json, tensors) in bf16, with gains minus one."""
    about = xllm_about(recipe, **changes)
    return about, {name: t.to(torch.bfloat16) for name, t in drawn(xllm_shapes(about), gain=0.0).items()}


# ---- all of them -----------------------------------------------------------------------------------------------------

#: layout, and recipe where their tensors differ -> makes (config.json, tensors)
OFFICIAL = {
    "Parcae": lambda: ({}, official_parcae()),
    "Llama": llama,
    "Ouro": ouro,
    "Huginn": huginn,
    "LoopedLM diagonal": lambda: xllm("diagonal"),
    "LoopedLM linear": lambda: xllm("linear"),
    "LoopedLM parcae": lambda: xllm("parcae"),
    "LoopedLM orthoinj": lambda: xllm("orthoinj"),
    "LoopedLM d4": lambda: xllm("d4"),
}
