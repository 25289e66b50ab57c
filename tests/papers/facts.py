"""What a planned run is, under the names that the transcriptions of the papers' tables use (tests/papers/stated)."""

from typing import Any

from lib.config import RunConfig
from lib.flops import count

#: how a paper counts a budget's FLOPs
COUNTED_AS = {"000": "000", "001": "001", "003": "003", "004": "004"}

_EVERY = """
width heads|head_dim mlp mlp_width|mlp_ratio prelude|layers recur coda qk_norm block injection loops backprop_loops
depth depth_per vocabulary tokenizer text context batch|batch_tokens tokens|budget|tokens_per_parameter|tokens_per_use
precision seed optimizer lr|muon_lr betas eps weight_decay clip warmup|warmup_steps cooldown|cooldown_steps
cooldown_shape final
"""
#: what every run has to be accounted for in, stated by its paper or listed as ours with a reason, by any of the names
ACCOUNTED = [names.split("|") for names in _EVERY.split()]

#: fields of a config that the tables have under their own names
OF_MODEL = """
width heads head_dim mlp mlp_width prelude recur coda layers depth fill injection state_init block norm_gain
prelude_norm value_embeddings qk_norm rope_base tied init residual softcap experts active_experts
"""
OF_OPTIM = """
scaling lr muon_lr embedding_lr head_lr norm_lr eps weight_decay decay update_clipping muon_momentum
muon_weight_decay muon_cautious warmup_steps cooldown_steps final clip
"""


def facts(cfg: RunConfig, paper: str) -> dict[str, Any]:
    """warmup and cooldown are shares of the steps; tokens_per_use counts a parameter outside the tables as often as it
    is used; budget is in FLOPs as the paper counts them."""
    model, optim, train = cfg.model, cfg.optim, cfg.train
    counts = count(model, cfg.data.context)
    found = {name: getattr(model, name) for name in OF_MODEL.split()} | {
        name: getattr(optim, name) for name in OF_OPTIM.split()
    }
    found |= {
        "mlp_ratio": model.mlp_width / model.width,
        "effective_layers": model.prelude + model.coda + model.recur * model.mean_loops,
        "loops": model.mean_loops,
        "backprop_loops": model.max_backprop_loops if model.recur and model.truncates else "all",
        "depth_per": model.depth_per if model.depth != "fixed" else "none",
        "vocabulary": model.vocab_size,
        "parameters": counts.n_params,
        "context": cfg.data.context,
        "batch": train.batch,
        "batch_tokens": cfg.tokens_per_step,
        "tokens": cfg.tokens,
        "tokens_per_parameter": cfg.tokens / counts.n_params,
        "tokens_per_use": cfg.tokens / (counts.n_once + model.mean_loops * counts.n_rec),
        "optimizer": optim.name,
        "betas": list(optim.betas),
        "warmup": round(optim.warmup_steps / train.steps, 3),
        "cooldown": round(optim.cooldown_steps / train.steps, 3),
        "cooldown_shape": optim.cooldown,
        "precision": train.precision,
        "text": cfg.data.source,
        "tokenizer": cfg.data.tokenizer,
        "seed": train.seed,
    }
    if paper in COUNTED_AS:
        found["budget"] = cfg.tokens * counts.published[paper]
    return found
