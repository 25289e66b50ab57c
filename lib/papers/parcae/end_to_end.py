"""Parcae beside what it replaces, in both of 001's set-ups: Tables "Comparing Parcae to Fixed-Depth Transformers" and
"Zero-Shot and Perplexity Results Trained on RDM Setup"."""

from lib.config import Label, RunConfig
from lib.papers.parcae import rdm_setup, transformer_setup
from lib.papers.parcae.parameters import EndToEnd, Instability


def in_rdm_setup(architecture: str) -> str:
    """How it is called there: two set-ups train a Parcae."""
    return f"{architecture}, RDM set-up"


def lengths(p: EndToEnd, setup: Instability) -> dict[str, dict[Label, RunConfig]]:
    """What is said of its length -> (architecture, d, seed) -> run of either set-up: of all steps, of which nothing is
    said, and of p's share of them where there is one."""
    every = {"": _both(p, setup)}
    return every | ({f", {p.shorter:g} of the tokens": _both(p.shortened(), setup)} if p.shorter else {})


def _both(p: EndToEnd, setup: Instability) -> dict[Label, RunConfig]:
    rdm = {(in_rdm_setup(name), *label): cfg for (name, *label), cfg in rdm_setup.against_rdm(p, setup).items()}
    return transformer_setup.against_transformer(p) | rdm
