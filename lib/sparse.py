"""004's runs: Base, Looped, MoE and Looped-MoE at any size, matched in what a token uses.

``p`` is everywhere the parameters of a notebook: depth, the effective layers, and loops, of the looped two; experts,
active_experts and head_dim; vocab_size, context; the text; batch, micro_batch and precision.
"""

from lib.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from lib.errors import InputError
from lib.presets import head_count, optimizer, preset

#: the four, and the names of their colours and markers: Base is a plain Transformer
LOOK = {"base": "transformer", "looped": "looped", "moe": "moe", "looped-moe": "looped-moe"}
WARMUP = 0.05  # of a run; ours, 004 does not state it


def model(p: dict, architecture: str, width: int, loops: int | None = None) -> ModelConfig:
    """One of the four at a width d: ``depth`` effective layers, the looped ones as depth / loops layers (p's loops when
    None), SwiGLU of 8 d / 3 rounded up to a multiple of 8, split among the active experts (004, Table 1 and 5).

    Raises InputError for another name, or sizes that do not divide."""
    if architecture not in LOOK:
        raise InputError(f"architectures: {architecture!r} is not known, use {', '.join(LOOK)}")
    depth, loops, head_dim = p["depth"], loops or p["loops"], p["head_dim"]
    if depth % loops:
        raise InputError(f"loops: {loops} loops do not divide the depth of {depth} layers, use a divisor")
    looped, sparse = "looped" in architecture, "moe" in architecture
    stacks = {"recur": depth // loops, "mean_loops": loops} if looped else {"prelude": depth}
    experts = {"experts": p["experts"], "active_experts": p["active_experts"]} if sparse else {}
    return preset(
        f"{architecture}-128", width=width, heads=head_count(width, head_dim, "widths"),
        mlp_width=-(-8 * width // (3 * 8)) * 8,
        vocab_size=p["vocab_size"], context=p["context"], **stacks, **experts,
    )  # fmt: skip


def run(p: dict, cfg: ModelConfig, lr: float, steps: int, seed: int) -> RunConfig:
    """A run of ``steps`` at base rate ``lr``, as 004 trains: muP, AdamW with independent decay, warm-up, stable, and a
    square-root cool-down over the last tenth."""
    warmup = int(WARMUP * steps)
    return RunConfig(
        model=cfg, data=DataConfig.of(p),
        optim=optimizer("base-128", steps, lr=lr, warmup_steps=warmup),
        train=TrainConfig(
            steps=steps, batch=p["batch"], micro_batch=p["micro_batch"] or None, precision=p["precision"], seed=seed
        ),
    )  # fmt: skip
