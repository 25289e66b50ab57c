"""What a model costs: parameters and FLOPs per token, from the config alone. No weights are made.

A matmul weight costs 2 FLOPs a token forward and 4 backward. Honest counts are the matmuls a forward pass needs: the
injection's B e once, the head once, attention over the full square of positions (also where a window masks it), k
experts of E. Loops are those the depth rule makes on average. The papers' own formulas, at their nominal loops, stand
beside it.
"""

import dataclasses
import functools

import numpy as np

from lib.config import ModelConfig, RunConfig
from lib.model import depth
from lib.model.injection import Injection, weightless
from lib.model.layers import GATE_CHANNELS


@dataclasses.dataclass(frozen=True)
class Counts:
    """Parameters: n_once is prelude + coda with their norms and those of the model, n_rec recur + injection; neither
    with tables, and of a mixture of experts the k active ones (the ``_stored`` twins count all E). n_active: parameters
    of every executed layer use and both tables. n_usage: tables, once, and each looped parameter r times (003).
    n_injection: of n_rec, the injection. The fit that 000 publishes counts it among the parameters that run once: that
    split is n_once + n_injection and n_rec - n_injection.

    FLOPs are per token, the honest ones at the depth that training samples and at mean_loops forward. ``published`` and
    ``published_forward`` are the formulas of "000" (and "003", the same), "001" and "004"; flops_per_token_published is
    the one of the paper whose models have this shape: 001 tied, 000 untied around a loop, 004 untied without prelude
    and coda.
    """

    n_params: int
    n_embedding: int
    n_once: int
    n_rec: int
    n_injection: int
    n_once_stored: int
    n_rec_stored: int
    n_active: int
    n_usage: int
    flops_per_token: float
    flops_per_token_forward: float
    flops_per_token_published: float
    published: dict[str, float]
    published_forward: dict[str, float]
    mean_loops: int

    def n_eff(self, phi: float, loops: int | None = None) -> float:
        """000, Eq. 5: N_once + r^phi N_rec, with the injection in the loop."""
        return self.n_once + (self.mean_loops if loops is None else loops) ** phi * self.n_rec


@dataclasses.dataclass(frozen=True)
class _Layer:
    """One unique layer: matmul weights that a token meets, those that are stored, its norms and biases, and its
    window."""

    matmuls: int
    stored: int
    vectors: int
    window: int


@functools.cache  # a plan asks for each of its models many times
def count(cfg: ModelConfig, seq_len: int | None = None, backprop_loops: int | None = None) -> Counts:
    """Counts for a sequence length and a truncation; the config's own where None."""
    S = cfg.context if seq_len is None else seq_len
    if backprop_loops is not None:
        cfg = cfg.replace(backprop_loops=backprop_loops)
    d, r, norm = cfg.width, cfg.mean_loops, cfg.width if cfg.norm_gain else 0
    layers = [_layer(cfg, i, S) for i in range(cfg.layers)]
    recur = layers[cfg.prelude : cfg.prelude + cfg.recur]
    once = layers[: cfg.prelude] + layers[cfg.prelude + cfg.recur :]

    inject = weightless(cfg)
    cost, injection = inject.cost(), sum(weight.numel() for weight in inject.parameters())
    readout = d * d if cfg.readout else 0
    loop_norm = norm * (cfg.loop_norm == "own")
    table = cfg.vocab_size * d
    tables = table * (1 if cfg.tied else 2)
    n_embedding = tables + table * sum(map(cfg.has_values, range(cfg.layers)))

    n_once = sum(layer.matmuls + layer.vectors for layer in once) + readout
    n_once += norm * (1 + cfg.embed_norm + cfg.prelude_norm)
    n_rec = sum(layer.matmuls + layer.vectors for layer in recur) + injection + loop_norm + (d + 1) * cfg.exit_gate
    n_once_stored = n_once + sum(layer.stored - layer.matmuls for layer in once)
    n_rec_stored = n_rec + sum(layer.stored - layer.matmuls for layer in recur)
    n_params = n_embedding + n_once_stored + n_rec_stored
    per_loop_only = injection if inject.per_loop else 0  # each loop has, and uses, its own
    n_active = tables + n_once + r * (n_rec - per_loop_only) + per_loop_only

    no_grad, grad = depth.DepthRule(cfg).expected()
    attention = 4 * S * d  # forward, per layer use: q k^T and p v, 2 S d each
    per_pass = 2 * (sum(layer.matmuls for layer in once) + cost.once + readout + table) + len(once) * attention
    per_loop = 2 * (sum(layer.matmuls for layer in recur) + cost.loop) + cost.flops + len(recur) * attention

    n, k = (int(x) for x in depth.split(np.array(r), cfg.max_backprop_loops))
    published = functools.partial(_published, cfg, S, inject, once, recur, table, n_params, n_active)
    training, forward = published(passes=6, looped=2 * n + 6 * k), published(passes=2, looped=2 * r)
    return Counts(
        n_params=n_params,
        n_embedding=n_embedding,
        n_once=n_once,
        n_rec=n_rec,
        n_injection=injection,
        n_once_stored=n_once_stored,
        n_rec_stored=n_rec_stored,
        n_active=n_active,
        n_usage=n_embedding + n_once + loop_norm + per_loop_only + r * (n_rec - loop_norm - per_loop_only),
        flops_per_token=3 * per_pass + (no_grad + 3 * grad) * per_loop,
        flops_per_token_forward=per_pass + r * per_loop,
        flops_per_token_published=training["001" if cfg.tied else "000" if cfg.recur and once else "004"],
        published=training,
        published_forward=forward,
        mean_loops=r,
    )


def run_flops(cfg: RunConfig, steps: int | None = None) -> float:
    """FLOPs of a run's training, or of its first ``steps``, by the honest count."""
    steps = cfg.train.steps if steps is None else steps
    before = min(steps, cfg.train.grown)  # while it makes fewer loops
    flops = (steps - before) * cfg.tokens_per_step * count(cfg.model, cfg.data.context).flops_per_token
    if before:
        small = count(cfg.model.replace(mean_loops=cfg.train.grow_from), cfg.data.context)
        flops += before * cfg.tokens_per_step * small.flops_per_token
    return flops


def _layer(cfg: ModelConfig, i: int, S: int) -> _Layer:
    d, E, k = cfg.width, cfg.experts, cfg.active_experts
    attention = 2 * d * d + 2 * d * cfg.key_heads * cfg.head_dim + cfg.has_values(i) * GATE_CHANNELS * cfg.heads
    mlp = (3 if cfg.mlp == "swiglu" else 2) * d * cfg.mlp_width  # k experts of mlp_width / k
    router = d * E if E > 1 else 0
    norms = (4 if cfg.block in ("sandwich", "peri-norm") else 2) * d * cfg.norm_gain
    biases = cfg.qk_bias * (cfg.heads + cfg.key_heads) * cfg.head_dim
    matmuls, stored = attention + mlp + router, attention + mlp * E // k + router
    return _Layer(matmuls, stored, norms + biases, min(cfg.window(i) or S, S))


def _published(
    cfg: ModelConfig,
    S: int,
    injection: Injection,
    once: list[_Layer],
    recur: list[_Layer],
    table: int,
    n_params: int,
    n_active: int,
    passes: int,
    looped: int,
) -> dict[str, float]:
    """By paper. ``passes``: FLOPs per weight that is used once, 6 in training and 2 forward; ``looped``: of all loops
    together, 2 for each without gradient and 6 with.

    000 (and 003): 6 (prelude + coda + head) + (2 (r-k) + 6 k)(recur + inject) + 12 h q window per layer use, the norms
    inside blocks counted with the matmuls; hyper-connections cost (K^2 + 2K) d a loop (App. G.1).
    001, App. "FLOP Estimate of Parcae": 6 P_nc + 2 P_core n + 6 P_core k + attention. P_nc is everything but the token
    table and the core, so that value tables count as matmuls and a tied head does not.
    004: C = 6 N_active D, with the parameters of every executed layer use, tables included."""
    core = sum(layer.matmuls + layer.vectors for layer in recur)
    inject = injection.cost().once + injection.cost().loop
    if injection.per_loop:  # each of a loop's numbers is multiplied by a state
        inject += sum(weight.numel() for weight in injection.parameters()) // cfg.mean_loops * cfg.width
    windows = passes * sum(layer.window for layer in once) + looped * sum(layer.window for layer in recur)
    of_000 = passes * (sum(layer.matmuls + layer.vectors for layer in once) + table)
    of_000 += looped * (core + inject) + 2 * cfg.width * windows
    everything_else = n_params - table - sum(layer.stored + layer.vectors for layer in recur)
    attention = 2 * cfg.width * S * (passes * len(once) + looped * len(recur))
    return {
        "000": of_000,
        "001": passes * everything_else + looped * core + attention,
        "003": of_000,
        "004": passes * n_active,
    }
