"""The runs that ask how to sample a depth and through how much of it to backpropagate: 001, App. "Per-sequence
Sampling", "Sampling of Truncated Recurrence" and "Selecting mu_rec and mu_bwd".

The paper's are in its RDM set-up; small ones are in the Transformer set-up, where they are rungs of its ladder.
"""

from typing import Any

from lib.base.parameters import Training
from lib.config import Label, RunConfig
from lib.papers.parcae import rdm_setup, transformer_setup
from lib.papers.parcae.parameters import BackpropDepth, DepthSampling, EndToEnd, Instability

#: one depth a batch or one a sequence: the rungs of the ladder that they are
PAIR = {"per batch": "+ constrained A", "per sequence": "+ per-sequence"}
#: one depth a batch, as 001's released code samples it (``transformer_setup.RELEASED``)
RELEASED = "per batch, as released"
#: the models at mu_bwd = mu_rec (``transformer_setup.sampler``)
THREE = ("full backpropagation", "fill", "correction")


def samplings(p: DepthSampling, ends: EndToEnd, setup: Instability) -> dict[Label, RunConfig]:
    """(variant, d, seed) -> run of PAIR, RELEASED and THREE. In the RDM set-up the first three have every RDM size of
    ``ends``, with its loops, and THREE have the smallest, with p's mean_loops."""
    three = {name: transformer_setup.sampler(name, p.mean_loops) for name in THREE}
    if not p.rdm:
        changes = {name: transformer_setup.LADDER[rung] for name, rung in PAIR.items()}
        changes |= {RELEASED: transformer_setup.RELEASED["+ constrained A, as released"]} | three
        models = {name: transformer_setup.model(p, p.mean_loops, **fields) for name, fields in changes.items()}
        return {
            (name, p.width, seed): transformer_setup.run(p, model, p.steps, seed)
            for name, model in models.items()
            for seed in p.seeds
        }
    setup = _with_the_text_of(p, setup)
    own = rdm_setup.parcae(setup)
    sampled: dict[str, dict[str, Any]] = {
        "per batch": {"depth_per": "batch"},
        "per sequence": {"depth_per": "sequence"},
        RELEASED: {"depth_per": "batch", "on_top": True},
    }
    smallest = min(ends.rdm_sizes)
    cells = {(name, d): fields for d in ends.rdm_sizes for name, fields in sampled.items()}
    cells |= {(name, smallest): {"mean_loops": p.mean_loops, **fields} for name, fields in three.items()}
    return {
        (name, d, seed): rdm_setup.of_size(ends, setup, d, own, seed, **fields)
        for (name, d), fields in cells.items()
        for seed in p.seeds
    }


def truncations(p: BackpropDepth, ends: EndToEnd, setup: Instability) -> dict[Label, RunConfig]:
    """(study, mu_rec, mu_bwd, seed) -> run: "mean_loops" at p's fixed mu_bwd, "backprop_loops" at its fixed mu_rec. In
    the RDM set-up they are residual-normalised RDMs of the smallest size of ``ends``."""
    studies = [("mean_loops", mean, p.fixed_backprop, p.steps) for mean in p.means]
    studies += [("backprop_loops", p.fixed_mean, k, p.backprops_steps or p.steps) for k in p.backprops]
    return {
        (study, mean, k, seed): _truncated(p, ends, setup, mean, k, steps, seed)
        for study, mean, k, steps in studies
        for seed in p.seeds
    }


def _truncated(
    p: BackpropDepth, ends: EndToEnd, setup: Instability, mean: int, k: int, steps: int, seed: int
) -> RunConfig:
    fields: dict[str, Any] = {"backprop_loops": k} | ({"fill": True} if p.fill else {})
    if not p.rdm:
        return transformer_setup.run(p, transformer_setup.model(p, mean, **fields), steps, seed)
    smallest = min(ends.rdm_sizes)
    ends = ends.replace(rdm_steps=steps, rdm_steps_at={})
    looped = {"mean_loops": mean, **fields}
    return rdm_setup.of_size(ends, _with_the_text_of(p, setup), smallest, "residual-norm", seed, **looped)


def _with_the_text_of(p: Training, setup: Instability) -> Instability:
    """The set-up on p's text, in its batches and arithmetic."""
    return setup.replace(**{name: getattr(p, name) for name in Training.model_fields})
