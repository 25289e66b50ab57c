"""001's runs in its RDM set-up: 001, Sec. "Understanding Instability"."""

from typing import Any

from lib.config import Label, OptimConfig, RunConfig
from lib.papers.parcae.parameters import EndToEnd, Instability
from lib.papers.shared.parameters import text_of, training_of
from lib.presets import instability_model


def run(p: Instability, architecture: str, lr: float, seed: int, **fields: Any) -> RunConfig:
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


def parcae(setup: Instability) -> str:
    """Which Parcae is compared in a set-up: with C and prelude norm where its architectures have that one."""
    return "parcae" if "parcae" in setup.architectures else "parcae-rdm"


def of_size(p: EndToEnd, setup: Instability, d: int, architecture: str, seed: int, **fields: Any) -> RunConfig:
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
    return run(sized, architecture, p.rdm_lr_at.get(d, p.rdm_lr), seed, recur=p.rdm_sizes[d], **fields)


def against_rdm(p: EndToEnd, setup: Instability) -> dict[Label, RunConfig]:
    """(architecture, d, seed) -> run: Parcae and the residual-normalised RDM at p's RDM sizes (001, Table "Zero-Shot
    and Perplexity Results Trained on RDM Setup"). Whether Parcae has C and prelude norm, ``setup`` says."""
    return {
        (name, d, seed): of_size(p, setup, d, name, seed)
        for d in p.rdm_sizes
        for name in ("residual-norm", parcae(setup))
        for seed in p.seeds
    }
