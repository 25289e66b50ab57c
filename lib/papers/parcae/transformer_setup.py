"""001's runs in its Transformer set-up, a simplified nanochat, at any size: Parcae, its variants and its Transformer.

``p`` is everywhere the parameters of a notebook: width, layers (of each of the three stacks), head_dim, mean_loops,
vocab_size, context; the text; lr, muon_lr; batch, micro_batch and precision.
"""

from typing import Any

from lib.base.errors import InputError
from lib.config import DataConfig, Label, ModelConfig, RunConfig, TrainConfig
from lib.presets import head_count, optimizer, preset

#: Table of stability results: a Transformer made into a recurrent depth model, and what is added to it one by one
LADDER: dict[str, dict[str, Any]] = {
    "RDM": {"injection": "concat", "readout": False, "depth_per": "batch", "prelude_norm": False},
    "+ constrained A": {"depth_per": "batch", "prelude_norm": False},
    "+ per-sequence": {"prelude_norm": False},
    "+ prelude norm": {},
}


#: traces of the state in every run, so that notebooks which look inside share their runs with those that do not
TRACES = 6


def model(p: dict[str, Any], **fields: Any) -> ModelConfig:
    """Parcae of p's size, with ``fields`` changed. Without looping, at mean_loops = 1, nothing is sampled; mu_bwd =
    ceil(mu_rec / 2) is called "half", so that it is the same run however it was asked for."""
    cfg = {"mean_loops": p.get("mean_loops"), **_shape(p), **fields}
    if cfg["mean_loops"] == 1:
        cfg |= {"depth": "fixed", "backprop_loops": "all"}
    elif cfg.get("backprop_loops") == -(-cfg["mean_loops"] // 2):
        cfg["backprop_loops"] = "half"
    return preset("parcae-140m", **cfg)


def transformer(p: dict[str, Any]) -> ModelConfig:
    """Its Transformer: the same three stacks, each run once, without injection, readout and prelude norm."""
    return preset("gpt-140m", **{**_shape(p), "prelude": 3 * p["layers"], "recur": 0, "coda": 0})


def against_transformer(p: dict[str, Any]) -> dict[Label, RunConfig]:
    """(architecture, d, seed) -> run: Parcae and the Transformer of the same stacks, at each of ``sizes``, d -> layers
    of a stack (Table "Comparing Parcae to Fixed-Depth Transformers")."""
    of_size = {d: {**p, "width": d, "layers": layers} for d, layers in p["sizes"].items()}
    return {
        (name, d, seed): run(q, cfg(q), p["steps"], seed)
        for d, q in of_size.items() for seed in p["seeds"]
        for name, cfg in (("transformer", transformer), ("parcae", model))
    }  # fmt: skip


def ladder(p: dict[str, Any]) -> dict[Label, RunConfig]:
    """(rung, seed) -> run of LADDER."""
    return {
        (rung, seed): run(p, model(p, **changes), p["steps"], seed)
        for rung, changes in LADDER.items() for seed in p["seeds"]
    }  # fmt: skip


def sampler(name: str, mean_loops: int) -> dict[str, Any]:
    """The fields of the three models that 001 compares at mu_bwd = mu_rec (App. "Sampling of Truncated Recurrence")."""
    rules: dict[str, dict[str, Any]] = {
        "full backpropagation": {"backprop_loops": "all"},
        "fill": {"backprop_loops": mean_loops, "fill": True},
        "correction": {"backprop_loops": mean_loops},
    }
    if name not in rules:
        raise InputError(f"samplers: {name!r} is not known, use {', '.join(rules)}")
    return {"mean_loops": mean_loops, **rules[name]}


def run(p: dict[str, Any], cfg: ModelConfig, steps: int, seed: int) -> RunConfig:
    """The model trained for ``steps`` as 001 trains its 140M models, at p's rates: Muon and AdamW, constant, then
    falling to 0 over the last half."""
    return RunConfig(
        model=cfg, data=DataConfig.of(p), optim=optimizer("parcae-140m", steps, lr=p["lr"], muon_lr=p["muon_lr"]),
        train=TrainConfig(
            steps=steps, batch=p["batch"], micro_batch=p["micro_batch"] or None, precision=p["precision"], seed=seed,
            trace_every=max(1, steps // TRACES),
        ),
    )  # fmt: skip


def _shape(p: dict[str, Any]) -> dict[str, Any]:
    width, head_dim = p["width"], p["head_dim"]
    stacks = dict.fromkeys(("prelude", "recur", "coda"), p["layers"])
    return dict(
        width=width, heads=head_count(width, head_dim), mlp_width=4 * width, **stacks,
        vocab_size=p["vocab_size"], context=p["context"],
    )  # fmt: skip
