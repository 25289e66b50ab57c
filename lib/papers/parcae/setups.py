"""001's runs: Parcae, its variants and its Transformer at any size in its Transformer set-up, a simplified nanochat;
Parcae and the recurrent depth models that it replaces in its RDM set-up (001, Sec. "Understanding Instability")."""

import itertools
from typing import Any

from lib.config import Label, ModelConfig, OptimConfig, RunConfig
from lib.flops import count
from lib.papers.parcae.parameters import EndToEnd, Instability, LoopGrid, OneSize, StabilityAblation
from lib.papers.shared.budgets import steps_for
from lib.papers.shared.parameters import text_of, training_of
from lib.presets import head_count, instability_model, optimizer, preset

#: 001, Table "Stability Results": a Transformer made into a recurrent depth model, and what is added to it one by one
LADDER: dict[str, dict[str, Any]] = {
    "RDM": {"injection": "concat", "readout": False, "depth_per": "batch", "prelude_norm": False},
    "+ constrained A": {"depth_per": "batch", "prelude_norm": False},
    "+ per-sequence": {"prelude_norm": False},
    "+ prelude norm": {},
}


# ---- the Transformer set-up ------------------------------------------------------------------------------------------


def model(p: OneSize, mean_loops: int, **fields: Any) -> ModelConfig:
    """Parcae of p's size, with ``fields`` changed. Nothing is sampled without looping, at mean_loops = 1. A mu_bwd of
    ceil(mu_rec / 2) is called "half", so that it is the same run however it was asked for."""
    if mean_loops == 1:
        fields |= {"depth": "fixed", "backprop_loops": "all"}
    elif fields.get("backprop_loops") == -(-mean_loops // 2):
        fields["backprop_loops"] = "half"
    return preset(
        "parcae-140m", **_shape(p), prelude=p.layers, recur=p.layers, coda=p.layers, mean_loops=mean_loops, **fields
    )


def transformer(p: OneSize) -> ModelConfig:
    """Its Transformer: the same three stacks, each run once, without injection, readout and prelude norm."""
    return preset("gpt-140m", **_shape(p), prelude=3 * p.layers, recur=0, coda=0)


def _shape(p: OneSize) -> dict[str, int]:
    """The sizes that both models share. Raises InputError where head_dim does not divide the width."""
    return dict(
        width=p.width,
        heads=head_count(p.width, p.head_dim),
        mlp_width=4 * p.width,
        vocab_size=p.vocab_size,
        context=p.context,
    )


def against_transformer(p: EndToEnd) -> dict[Label, RunConfig]:
    """(architecture, d, seed) -> run: Parcae and the Transformer of the same stacks at each size (001, Table "Comparing
    Parcae to Fixed-Depth Transformers")."""
    runs: dict[Label, RunConfig] = {}
    for d, one in ((d, p.at(d)) for d in p.sizes):
        runs |= {("transformer", d, seed): run(one, transformer(one), one.steps, seed) for seed in p.seeds}
        runs |= {("parcae", d, seed): run(one, model(one, p.mean_loops), one.steps, seed) for seed in p.seeds_of(d)}
    return runs


def ladder(p: StabilityAblation) -> dict[Label, RunConfig]:
    """(rung, seed) -> run."""
    return {
        (rung, seed): run(p, model(p, p.mean_loops, **changes), p.steps, seed)
        for rung, changes in LADDER.items()
        for seed in p.seeds
    }


def run(p: OneSize, cfg: ModelConfig, steps: int, seed: int, injection_lr: float | None = None) -> RunConfig:
    """The model trained for ``steps`` as 001 trains its 140M models: Muon and AdamW at p's rates, which are constant
    and fall to 0 over the last half. AdamW's rate of the injection is called none where it is p's, so that it is the
    same run however it was asked for."""
    return RunConfig(
        model=cfg,
        data=text_of(p),
        optim=optimizer(
            "parcae-140m",
            steps,
            lr=p.lr,
            muon_lr=p.muon_lr,
            injection_lr=None if injection_lr == p.lr else injection_lr,
        ),
        # all have traces of the state, so that notebooks that look inside share their runs with those that do not
        train=training_of(p, steps=steps, seed=seed, trace_every=max(1, steps // 6)),
    )


def grid(p: LoopGrid) -> dict[Label, RunConfig]:
    """("mean_loops = ...", width, budget, mean_loops, seed) -> run, for every number of loops, size, budget of it and
    seed."""
    runs: dict[Label, RunConfig] = {}
    for mu, width in itertools.product(p.loops, p.sizes):
        one = p.at(width)
        cfg = model(one, mu)
        for budget, seed in itertools.product(p.budgets_of(width), p.seeds_of(width)):
            steps = steps_for(p, budget, count(cfg, p.context).published["001"], width)
            runs[f"mean_loops = {mu}", width, budget, mu, seed] = run(one, cfg, steps, seed)
    return runs


def held_out(p: LoopGrid) -> dict[Label, RunConfig]:
    """The runs that the laws are asked to predict, labelled as those of ``grid``: Parcae of every size at p's
    mean_loops and steps, one for each seed."""
    runs: dict[Label, RunConfig] = {}
    for width in p.sizes:
        one = p.at(width)
        cfg = model(one, p.mean_loops)
        budget = one.steps * p.batch * p.context * count(cfg, p.context).published["001"]
        for seed in p.seeds_of(width):
            runs["held out", width, budget, p.mean_loops, seed] = run(one, cfg, one.steps, seed)
    return runs


# ---- the RDM set-up --------------------------------------------------------------------------------------------------


def rdm_run(p: Instability, architecture: str, lr: float, seed: int, **fields: Any) -> RunConfig:
    """An architecture in 001's RDM set-up, with the sizes, schedule and text of ``p``. ``fields`` change others of its
    fields."""
    sizes = dict(
        vocab_size=p.vocab_size,
        width=p.width,
        heads=p.heads,
        mlp=p.mlp,
        mlp_width=p.mlp_width,
        qk_norm=p.qk_norm,
        context=p.context,
        mean_loops=p.mean_loops,
        backprop_loops=p.backprop_loops,
    )
    return RunConfig(
        model=instability_model(architecture, **sizes | fields),
        data=text_of(p),
        optim=OptimConfig(
            lr=lr,
            eps=p.eps,
            warmup_steps=p.warmup_steps,
            cooldown_steps=p.cooldown_steps,
            update_clipping=p.update_clipping,
        ),
        train=training_of(p, steps=p.steps, seed=seed, max_state_rms=p.max_state_rms),
    )


def rdm_of_size(p: EndToEnd, setup: Instability, d: int, architecture: str, seed: int, **fields: Any) -> RunConfig:
    """An architecture at one of p's RDM sizes, with its loops, half of which carry gradient, steps and rate. All else
    is as ``setup`` has it; ``fields`` change others of the model's."""
    sized = setup.replace(
        width=d,
        heads=max(1, d * setup.heads // setup.width),
        mlp_width=d * setup.mlp_width // setup.width,
        steps=p.rdm_steps_at.get(d) or p.rdm_steps or setup.steps,
    )
    if d in p.rdm_loops_at:
        sized = sized.replace(mean_loops=p.rdm_loops_at[d], backprop_loops=-(-p.rdm_loops_at[d] // 2))
    return rdm_run(sized, architecture, p.rdm_lr_at.get(d, p.rdm_lr), seed, recur=p.rdm_sizes[d], **fields)


def against_rdm(p: EndToEnd, setup: Instability) -> dict[Label, RunConfig]:
    """(architecture, d, seed) -> run: Parcae and the residual-normalised RDM at p's RDM sizes (001, Table "Zero-Shot
    and Perplexity Results Trained on RDM Setup"). Whether Parcae has C and prelude norm, ``setup`` says."""
    return {
        (name, d, seed): rdm_of_size(p, setup, d, name, seed)
        for d in p.rdm_sizes
        for name in ("residual-norm", setup.parcae)
        for seed in p.seeds
    }
