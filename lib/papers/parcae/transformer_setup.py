"""001's runs in its Transformer set-up, a simplified nanochat: Parcae, its variants and its Transformer at any size."""

from typing import Any

from lib.config import Label, ModelConfig, RunConfig
from lib.papers.parcae.parameters import EndToEnd, OneSize, StabilityAblation
from lib.papers.shared.parameters import text_of, training_of
from lib.presets import head_count, optimizer, preset

#: 001, Table "Stability Results": a Transformer made into a recurrent depth model, and what is added to it one by one
LADDER: dict[str, dict[str, Any]] = {
    "RDM": {"injection": "concat", "readout": False, "depth_per": "batch", "prelude_norm": False},
    "+ constrained A": {"depth_per": "batch", "prelude_norm": False},
    "+ per-sequence": {"prelude_norm": False},
    "+ prelude norm": {},
}

#: 001, Table of parameter counts: of the Transformer and of Parcae at each size
PARAMETERS = {
    "140m": (143_141_184, 144_323_136),
    "370m": (385_903_104, 388_003_328),
    "770m": (773_375_040, 776_655_680),
    "1.3b": (1_333_868_544, 1_338_591_744),
}

#: Every run has traces of the state: so notebooks that look inside share their runs with those that do not.
TRACES = 6


def model(p: OneSize, mean_loops: int, **fields: Any) -> ModelConfig:
    """Parcae of p's size, with ``fields`` changed. Nothing is sampled without looping, at mean_loops = 1. A mu_bwd of
    ceil(mu_rec / 2) is called "half", so that it is the same run however it was asked for."""
    if mean_loops == 1:
        fields |= {"depth": "fixed", "backprop_loops": "all"}
    elif fields.get("backprop_loops") == -(-mean_loops // 2):
        fields["backprop_loops"] = "half"
    stacks = dict.fromkeys(("prelude", "recur", "coda"), p.layers)
    return preset("parcae-140m", **_shape(p), **stacks, mean_loops=mean_loops, **fields)


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
    for d in p.sizes:
        one = p.at(d)
        for seed in p.seeds:
            runs["transformer", d, seed] = run(one, transformer(one), one.steps, seed)
            if seed in p.seeds_of(d):
                runs["parcae", d, seed] = run(one, model(one, p.mean_loops), one.steps, seed)
    return runs


def ladder(p: StabilityAblation) -> dict[Label, RunConfig]:
    """(rung, seed) -> run."""
    models = {rung: model(p, p.mean_loops, **changes) for rung, changes in LADDER.items()}
    return {(rung, seed): run(p, cfg, p.steps, seed) for rung, cfg in models.items() for seed in p.seeds}


def run(p: OneSize, cfg: ModelConfig, steps: int, seed: int, injection_lr: float | None = None) -> RunConfig:
    """The model trained for ``steps`` as 001 trains its 140M models: Muon and AdamW at p's rates, which are constant
    and fall to 0 over the last half. AdamW's rate of the injection is called none where it is p's, so that it is the
    same run however it was asked for."""
    of_injection = None if injection_lr == p.lr else injection_lr
    return RunConfig(
        model=cfg,
        data=text_of(p),
        optim=optimizer("parcae-140m", steps, lr=p.lr, muon_lr=p.muon_lr, injection_lr=of_injection),
        train=training_of(p, steps=steps, seed=seed, trace_every=max(1, steps // TRACES)),
    )
