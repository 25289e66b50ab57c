"""The named models of the papers, and how they train; ``preset(name, field=value)`` changes fields on the way.

parcae-* and gpt-*, rdm-* and parcae-rdm-* (001); isodepth-s*-r* (000); looped-nanochat-s* (003); residual-L*-N* (002);
base-*, looped-*, moe-* and looped-moe-* (004).
"""

import difflib
import re
from typing import Any

from lib.base.errors import InputError
from lib.config import ModelConfig, OptimConfig

# 001, Tables "Model definitions of both Parcae and baseline Transformers": name -> (width, unique layers per stack)
TRANSFORMER_SETUP = {"140m": (768, 2), "370m": (1024, 4), "770m": (1280, 6), "1.3b": (1536, 8)}

# 001, Table "Model definitions of both Parcae and baseline residual-norm RDMs":
# name -> (width, MLP width, recurrent layers, mean loops)
RDM_SETUP = {"100m": (1024, 3520, 1, 16), "350m": (2048, 7040, 2, 8)}
RDM_HEAD_DIM = 64  # ours: the paper does not say
SCALING_WIDTHS = range(128, 1025, 64)  # 004


def _gpt(width: int, layers: int) -> dict[str, Any]:
    """The Transformer of 001, a simplified nanochat: half relu^2, QK-norm, gated value embeddings, tied head."""
    return dict(
        vocab_size=32_768,
        width=width,
        heads=width // 128,
        mlp_width=4 * width,
        context=2048,
        prelude=layers,
        recur=0,
        coda=0,
        mean_loops=1,
        injection="none",
        state_init="prelude",
        mlp="half-relu2",
        value_embeddings=True,
        init="parcae",
    )


def _parcae(width: int, layers: int) -> dict[str, Any]:
    """The same with its middle third looped, the diagonal LTI injection, prelude norm and readout C."""
    return _gpt(width, layers) | dict(
        prelude=layers,
        recur=layers,
        coda=layers,
        mean_loops=8,
        backprop_loops="half",
        depth="poisson",
        depth_per="sequence",
        injection="lti",
        state_init="like-init",
        prelude_norm=True,
        readout=True,
    )


def _rdm(width: int, mlp_width: int, layers: int, mean_loops: int) -> dict[str, Any]:
    """The recurrent depth model of 001 after Geiping et al.: SwiGLU, residual norm, concatenation, depth per batch."""
    return dict(
        vocab_size=65_536,
        width=width,
        heads=width // RDM_HEAD_DIM,
        mlp_width=mlp_width,
        context=2048,
        prelude=1,
        recur=layers,
        coda=1,
        mean_loops=mean_loops,
        backprop_loops="half",
        depth="poisson",
        depth_per="batch",
        injection="concat",
        state_init="like-init",
        block="sandwich",
        loop_norm="final",
        mlp="swiglu",
        qk_norm=False,
    )


def _parcae_rdm(width: int, mlp_width: int, layers: int, mean_loops: int) -> dict[str, Any]:
    """Parcae in the RDM set-up: pre-norm blocks and the LTI injection; by its parameter count no C, no prelude norm."""
    return _rdm(width, mlp_width, layers, mean_loops) | dict(
        depth_per="sequence", injection="lti", block="pre-norm", loop_norm="none"
    )


def _isodepth(size: int, loops: int) -> dict[str, Any]:
    """000, App. C.1: 2 + 16 + 2 effective layers of nanochat blocks, the middle as 16/r layers looped r times;
    injection [I | 0], three model-level norms, softcap 15. At r = 1 nothing is injected."""
    looped = loops > 1
    return dict(
        vocab_size=32_064,
        width=64 * size,
        heads=size // 2,
        mlp_width=256 * size,
        context=2048,
        prelude=2,
        recur=16 // loops,
        coda=2,
        mean_loops=loops,
        backprop_loops="all",
        injection="concat-identity" if looped else "none",
        state_init="prelude",
        loop_norm="own",
        norm_eps=1e-6,
        qk_norm_eps=1e-6,
        rope="half-split",
        rope_base=10_000.0,
        embed_norm=True,
        tied=False,
        softcap=15.0,
        init="uniform",
    )


def _looped_nanochat(size: int) -> dict[str, Any]:
    """003: 2 + 4 x 4 + 2 layers with sandwich norm and nanochat's window pattern over the unique layers. Depth is
    fixed, as in its scaling laws. It starts as nanochat does, whose training it keeps; the init of its injection is not
    stated and taken from 000."""
    return _isodepth(size, 4) | dict(vocab_size=65_536, block="sandwich", windows="LLSSSLLL", init="uniform-zero")


def _residual(layers: int, loops: int) -> dict[str, Any]:
    """002, App. 8.1: L Llama layers looped N times without injection, the branches scaled by 1/(N sqrt L)."""
    return dict(
        vocab_size=128_256,
        width=768,
        heads=12,
        mlp_width=2048,
        context=2048,
        prelude=0,
        recur=layers,
        coda=0,
        mean_loops=loops,
        backprop_loops="all",
        injection="none",
        state_init="prelude",
        qk_norm=False,
        rope="half-split",
        rope_base=10_000.0,
        mlp="swiglu",
        residual="1/(N sqrt(L))",
        init="normal",
    )


def _scaling_study(width: int, looped: bool, sparse: bool) -> dict[str, Any]:
    """004, Tables 1 and 5: 16 effective layers, 8 looped twice or 16, dense or 2 of 8 experts, without norm gains."""
    return dict(
        vocab_size=50_257,
        width=width,
        heads=width // 64,
        mlp_width=-(-8 * width // (3 * 64)) * 64,
        context=1024,
        prelude=0 if looped else 16,
        recur=8 if looped else 0,
        coda=0,
        mean_loops=2 if looped else 1,
        backprop_loops="all",
        injection="none",
        state_init="prelude",
        norm_gain=False,
        qk_norm=False,
        rope="half-split",
        rope_base=10_000.0,
        mlp="swiglu",
        tied=False,
        init="mup",
        experts=8 if sparse else 1,
        active_experts=2 if sparse else 1,
    )


PRESETS: dict[str, dict[str, Any]] = {
    **{f"parcae-{name}": _parcae(width, layers) for name, (width, layers) in TRANSFORMER_SETUP.items()},
    **{f"gpt-{name}": _gpt(width, 3 * layers) for name, (width, layers) in TRANSFORMER_SETUP.items()},
    **{f"rdm-{name}": _rdm(*sizes) for name, sizes in RDM_SETUP.items()},
    **{f"parcae-rdm-{name}": _parcae_rdm(*sizes) for name, sizes in RDM_SETUP.items()},
    **{f"isodepth-s{size}-r{r}": _isodepth(size, r) for size in range(6, 36, 2) for r in (1, 2, 4, 8)},
    **{f"looped-nanochat-s{size}": _looped_nanochat(size) for size in range(8, 22, 2)},
    **{f"residual-L{layers}-N{n}": _residual(layers, n) for layers in (12, 24, 48) for n in (1, 2, 4, 8, 16)},
    **{f"base-{width}": _scaling_study(width, looped=False, sparse=False) for width in SCALING_WIDTHS},
    **{f"looped-{width}": _scaling_study(width, looped=True, sparse=False) for width in SCALING_WIDTHS},
    **{f"moe-{width}": _scaling_study(width, looped=False, sparse=True) for width in SCALING_WIDTHS},
    **{f"looped-moe-{width}": _scaling_study(width, looped=True, sparse=True) for width in SCALING_WIDTHS},
}


def preset(name: str, **changes: Any) -> ModelConfig:
    """The model of that name, with ``changes`` to its fields.

    Raises InputError for an unknown name or an ill-fitting change.
    """
    if name not in PRESETS:
        families = ", ".join(dict.fromkeys(re.sub(r"\d+(\.\d+)?[mb]?", "*", known) for known in sorted(PRESETS)))
        near = difflib.get_close_matches(str(name), PRESETS, 3)
        raise InputError(f"preset: {name!r} is not known, use one of {', '.join(near) or families}")
    return ModelConfig(**{**PRESETS[name], **changes})


def head_count(width: int, head_dim: int, field: str = "width") -> int:
    """The heads of a model of that width. Raises InputError, which names ``field``, where they do not divide it."""
    if head_dim < 1 or width % head_dim:
        raise InputError(f"{field}: {width} is not a multiple of head_dim {head_dim}, use multiples of it")
    return width // head_dim


def optimizer(name: str, steps: int, **changes: Any) -> OptimConfig:
    """How the papers train the preset of that name for ``steps``, with ``changes`` to the fields.

    Raises InputError for an unknown name or an ill-fitting change.
    """
    preset(name)
    if steps < 1:
        raise InputError(f"steps: {steps} train nothing, use at least 1")
    size = name.rsplit("-", 1)[1]
    ramp = min(4096, steps // 2)
    rdm = dict(  # 001, App. "Hyperparameters for Parcae and RDM": eps is removed, here tiny
        lr=4e-4 if size == "100m" else 2e-4,
        betas=(0.9, 0.95),
        eps=1e-30,
        update_clipping=True,
        warmup_steps=ramp,
        cooldown_steps=ramp,
    )
    parcae = dict(  # 001, Table "Hyperparameter"; the momentum's warm-up from its code
        name="muon",
        lr=8e-3 if size in ("140m", "370m") else 6e-3,
        betas=(0.8, 0.95),
        eps=1e-10,
        muon_lr=8e-3,
        injection="adamw",
        muon_momentum_warmup=300,
        cooldown_steps=steps // 2,
    )
    families: dict[str, dict[str, Any]] = {  # how names begin; the first that fits
        "parcae-rdm-": rdm,
        "rdm-": rdm,
        "parcae-": parcae,
        "gpt-": parcae,
        # 003 keeps nanochat's training, rates as in its first release; the norms' is ours
        "looped-nanochat-": dict(
            name="muon",
            scaling="nanochat",
            betas=(0.8, 0.95),
            eps=1e-10,
            muon_lr=0.02,
            embedding_lr=0.2,
            head_lr=0.004,
            norm_lr=0.005,
            muon_momentum_warmup=300,
            muon_weight_decay=0.0,
            muon_cautious=False,
            cooldown_steps=steps // 2,
        ),
        # 000, Sec. 4.1 and App. D
        "isodepth-": dict(
            name="muonh",
            scaling="hyperp",
            muon_lr=0.014,
            embedding_lr=0.3,
            head_lr=0.004,
            norm_lr=0.005,
            lanes_lr=0.01,
            cooldown_steps=steps,
            final=0.1,
        ),
        # 002, App. 8.2; rate, decay and eps are lost in its text, ours
        "residual-": dict(scaling="depth-loop", lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1),
        # 004, Sec. "IsoFLOP Scaling Study"; the rate comes from its own transfer test, ours
        "": dict(
            scaling="mup",
            lr=4e-3,
            betas=(0.9, 0.999),
            eps=1e-8,
            weight_decay=1e-4,
            decay="independent",
            cooldown_steps=max(1, steps // 10),
            cooldown="sqrt",
            final=0.05,
        ),
    }
    settings = next(settings for family, settings in families.items() if name.startswith(family))
    return OptimConfig(**{**settings, **changes})


#: 001, Sec. "Understanding Instability": what is compared, as changes to the models of its RDM set-up. Base is the RDM
#: without residual normalisation. Parcae is the paper's Eq. of Sec. 4 (prelude norm and readout C), parcae-rdm the
#: smaller one that its table of RDM models counts. Depth is sampled per batch for the baselines, per
#: sequence for Parcae.
INSTABILITY: dict[str, tuple[str, dict[str, Any]]] = {
    "base": ("rdm-100m", {"block": "pre-norm", "loop_norm": "none"}),
    "residual-norm": ("rdm-100m", {}),
    "parcae": ("parcae-rdm-100m", {"prelude_norm": True, "readout": True}),
    "parcae-rdm": ("parcae-rdm-100m", {}),
}


def instability_model(architecture: str, **changes: Any) -> ModelConfig:
    """One of the architectures of 001's instability figures, at the size given by ``changes``."""
    if architecture not in INSTABILITY:
        raise InputError(f"architectures: {architecture!r} is not known, use {', '.join(INSTABILITY)}")
    name, difference = INSTABILITY[architecture]
    return preset(name, **{**changes, **difference})
