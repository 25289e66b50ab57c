"""The named models of the papers; ``preset(name, field=value)`` changes fields on the way."""

from lib.config import ModelConfig
from lib.errors import InputError

# 001, Tables "Model definitions of both Parcae and baseline Transformers": name -> (width, unique layers per stack)
TRANSFORMER_SETUP = {"140m": (768, 2), "370m": (1024, 4), "770m": (1280, 6), "1.3b": (1536, 8)}

# 001, Table "Model definitions of both Parcae and baseline residual-norm RDMs":
# name -> (width, MLP width, recurrent layers, mean loops)
RDM_SETUP = {"100m": (1024, 3520, 1, 16), "350m": (2048, 7040, 2, 8)}
RDM_HEAD_DIM = 64  # ours: the paper does not say


def _gpt(width: int, layers: int) -> dict:
    """The Transformer of 001, a simplified nanochat: half relu^2, QK-norm, gated value embeddings, tied head."""
    return dict(
        vocab_size=32_768, width=width, heads=width // 128, mlp_width=4 * width, context=2048,
        prelude=layers, recur=0, coda=0, mean_loops=1, injection="none", state_init="prelude",
        mlp="half-relu2", value_embeddings=True, init="scaled-zero",
    )  # fmt: skip


def _parcae(width: int, layers: int) -> dict:
    """The same with its middle third looped, the diagonal LTI injection, prelude norm and readout C."""
    return _gpt(width, layers) | dict(
        prelude=layers, recur=layers, coda=layers, mean_loops=8, backprop_loops="half", depth="poisson",
        depth_per="sequence", injection="lti", state_init="like-init", prelude_norm=True, readout=True,
    )  # fmt: skip


def _rdm(width: int, mlp_width: int, layers: int, mean_loops: int) -> dict:
    """The recurrent depth model of 001 after Geiping et al.: SwiGLU, residual norm, concatenation, depth per batch."""
    return dict(
        vocab_size=65_536, width=width, heads=width // RDM_HEAD_DIM, mlp_width=mlp_width, context=2048,
        prelude=1, recur=layers, coda=1, mean_loops=mean_loops, backprop_loops="half", depth="poisson",
        depth_per="batch", injection="concat", state_init="like-init", block="sandwich", loop_norm="final",
        mlp="swiglu", qk_norm=False,
    )  # fmt: skip


def _parcae_rdm(width: int, mlp_width: int, layers: int, mean_loops: int) -> dict:
    """Parcae in the RDM set-up: pre-norm blocks and the LTI injection; by its parameter count no C, no prelude norm."""
    return _rdm(width, mlp_width, layers, mean_loops) | dict(
        depth_per="sequence", injection="lti", block="pre-norm", loop_norm="none"
    )


def _table() -> dict[str, dict]:
    models = {}
    for name, (width, layers) in TRANSFORMER_SETUP.items():
        models[f"parcae-{name}"] = _parcae(width, layers)
        models[f"gpt-{name}"] = _gpt(width, 3 * layers)
    for name, sizes in RDM_SETUP.items():
        models[f"rdm-{name}"] = _rdm(*sizes)
        models[f"parcae-rdm-{name}"] = _parcae_rdm(*sizes)
    return models


PRESETS = _table()


def preset(name: str, **changes) -> ModelConfig:
    """The model of that name, with ``changes`` to its fields.

    Raises InputError for an unknown name or an ill-fitting change.
    """
    if name not in PRESETS:
        raise InputError(f"preset: {name!r} is not known, use one of {', '.join(sorted(PRESETS))}")
    return ModelConfig(**{**PRESETS[name], **changes})


#: 001, Sec. "Understanding Instability": what is compared, as changes to the models of its RDM set-up. Base is the RDM
#: without residual normalisation. Parcae is the paper's Eq. of Sec. 4 (prelude norm and readout C), parcae-rdm the
#: smaller one that its table of RDM models counts. Depth is sampled per batch for the baselines, per
#: sequence for Parcae.
INSTABILITY = {
    "base": ("rdm-100m", {"block": "pre-norm", "loop_norm": "none"}),
    "residual-norm": ("rdm-100m", {}),
    "parcae": ("parcae-rdm-100m", {"prelude_norm": True, "readout": True}),
    "parcae-rdm": ("parcae-rdm-100m", {}),
}


def instability_model(architecture: str, **changes) -> ModelConfig:
    """One of the architectures of 001's instability figures, at the size given by ``changes``."""
    if architecture not in INSTABILITY:
        raise InputError(f"architectures: {architecture!r} is not known, use {', '.join(INSTABILITY)}")
    name, difference = INSTABILITY[architecture]
    return preset(name, **{**changes, **difference})
