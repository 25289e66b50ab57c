"""What a model costs: parameters and FLOPs per token, from the config alone. Nothing is built.

A matmul weight costs 2 FLOPs a token forward and 4 backward. Honest counts are the matmuls a forward pass needs: the
injection's B e once, the head once, attention over the full square of positions. Loops are those the depth rule
makes on average. "As published" is 001's formula (App. "FLOP Estimate of Parcae").
"""

import dataclasses

import numpy as np

from lib import depth
from lib.config import ModelConfig
from lib.layers import GATE_CHANNELS


@dataclasses.dataclass(frozen=True)
class Counts:
    """n_once: prelude + coda with their norms; n_rec: recur + injection; neither with tables. n_active: parameters of
    every executed layer use and both tables. FLOPs are per token, at ``loops`` = mean_loops or as sampled."""

    n_params: int
    n_embedding: int
    n_once: int
    n_rec: int
    n_active: int
    flops_per_token: float
    flops_per_token_forward: float
    flops_per_token_published: float
    mean_loops: int

    def n_eff(self, phi: float, loops: int | None = None) -> float:
        """000, Eq. 5: N_once + r^phi N_rec."""
        return self.n_once + (self.mean_loops if loops is None else loops) ** phi * self.n_rec


def count(cfg: ModelConfig, seq_len: int | None = None, backprop_loops: int | None = None) -> Counts:
    """Counts for a sequence length and a truncation; the config's own where None."""
    S = cfg.context if seq_len is None else seq_len
    if backprop_loops is not None:
        cfg = cfg.replace(backprop_loops=backprop_loops)
    d, layers = cfg.width, cfg.prelude + cfg.recur + cfg.coda
    norm = d if cfg.norm_gain else 0
    gated = [cfg.value_embeddings and i % 2 == (layers - 1) % 2 for i in range(layers)]

    mlp = (3 if cfg.mlp == "swiglu" else 2) * d * cfg.mlp_width
    matrices = [4 * d * d + mlp + gate * GATE_CHANNELS * cfg.heads for gate in gated]
    norms = (4 if cfg.block == "sandwich" else 2) * norm
    once = [*matrices[: cfg.prelude], *matrices[cfg.prelude + cfg.recur :]]
    rec = matrices[cfg.prelude : cfg.prelude + cfg.recur]

    inject_once = d * d if cfg.injection in ("concat", "concat-identity", "lti") else 0  # B e
    inject_loop = d * d if cfg.injection in ("concat", "concat-identity") else 0  # A-bar h, where A-bar is dense
    inject_vectors = 2 * d if cfg.injection == "lti" else 0  # A_log and dt_bias
    injection = inject_once + inject_loop + inject_vectors
    readout = d * d if cfg.readout else 0
    model_norms = norm * (1 + cfg.embed_norm + cfg.prelude_norm + (cfg.loop_norm == "own"))
    table, values = cfg.vocab_size * d, sum(gated) * cfg.vocab_size * d
    embedding = table * (1 if cfg.tied else 2) + values

    n_once = sum(once) + len(once) * norms + readout + model_norms - norm * (cfg.loop_norm == "own")
    n_rec = sum(rec) + len(rec) * norms + injection + norm * (cfg.loop_norm == "own")
    n_params = embedding + n_once + n_rec

    no_grad, grad = depth.expected(cfg)
    attention = 4 * S * d  # forward, per layer use: q k^T and p v, 2 S d each
    per_pass = 2 * (sum(once) + inject_once + readout + table) + len(once) * attention
    per_loop = 2 * (sum(rec) + inject_loop) + len(rec) * attention
    forward = per_pass + cfg.mean_loops * per_loop
    training = 3 * per_pass + (no_grad + 3 * grad) * per_loop

    # 001, with the nominal mu_rec and mu_bwd: P_nc is everything but the token table and the core, so that value tables
    # count as matmuls and a tied head does not
    core = sum(rec) + len(rec) * norms
    everything_else = n_params - table - core
    n, k = (int(x) for x in depth.split(np.array(cfg.mean_loops), cfg.max_backprop_loops))
    published_attention = 4 * d * S * (3 * len(once) + (n + 3 * k) * len(rec))
    published = 6 * everything_else + core * (2 * n + 6 * k) + published_attention
    return Counts(
        n_params=n_params,
        n_embedding=embedding,
        n_once=n_once,
        n_rec=n_rec,
        n_active=n_once + cfg.mean_loops * n_rec + table * (1 if cfg.tied else 2),
        flops_per_token=training,
        flops_per_token_forward=forward,
        flops_per_token_published=published,
        mean_loops=cfg.mean_loops,
    )
