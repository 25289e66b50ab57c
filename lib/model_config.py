"""What a model is: ``ModelConfig`` holds everything that decides what it computes."""

from typing import Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from lib.base.errors import Checked

MOST_LAYERS = 2**12  # a slip of the keyboard is refused before anything of its size is made


class Config(Checked):
    """Checked, and strict: no text where a number belongs."""

    model_config = ConfigDict(strict=True)
    #: fields that are no more, and the only value that a stored config may have of them
    former: ClassVar[dict[str, Any]] = {}

    @model_validator(mode="before")
    @classmethod
    def _without_former(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: x for name, x in values.items() if name not in cls.former or x != cls.former[name]}

    @model_validator(mode="after")
    def _can_be_packed(self) -> Self:
        for name, x in self.fields().items():
            if isinstance(x, int) and abs(x) >= 2**63:
                raise ValueError(f"{name}: no number of {2**63} or more can be packed, use a smaller one")
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for broken, told in self._rules():
            if broken:
                raise ValueError(told)
        return self

    def _rules(self) -> list[tuple[bool, str]]:
        """Of what fits together: whether each is broken, and what is told then; the first that is broken is."""
        return []


class ModelConfig(Config):
    """A looped language model: embed, prelude, (injection, recur) x loops, coda, head.

    A plain Transformer is ``recur=0``; a fully looped model is ``prelude=coda=0``.
    """

    former: ClassVar = {"truncation": "no-grad", "short_window": None}

    # sizes
    vocab_size: int = Field(256, ge=2, le=2**32)
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
    context: int = Field(64, ge=1, le=2**23, description="longest sequence, in tokens")

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

    def _rules(self) -> list[tuple[bool, str]]:
        return [*self._rules_of_layers(), *self._rules_of_the_loop()]

    def _rules_of_layers(self) -> list[tuple[bool, str]]:
        d, heads, mlp, k = self.width, self.heads, self.mlp_width, self.active_experts
        return [
            (d % heads != 0, f"width: {d} is not divisible by heads {heads}, change one of them"),
            (
                self.head_dim % 2 != 0,
                f"heads: head_dim {self.head_dim} is odd, RoPE needs pairs, change width or heads",
            ),
            (heads % self.key_heads != 0, f"kv_heads: {self.kv_heads} does not divide heads {heads}, use a divisor"),
            (
                self.value_embeddings and self.key_heads != heads,
                "kv_heads: value tables have a gate for each head, leave kv_heads or them out",
            ),
            (
                self.value_embeddings and d < 32,
                f"value_embeddings: the gate reads 32 channels, width {d} has fewer, widen it",
            ),
            (self.layers == 0, "recur: the model has no layer at all, set prelude, recur or coda"),
            (
                len(self.windows) > self.layers,
                f"windows: {self.windows!r} is longer than the {self.layers} unique layers, shorten it",
            ),
            (k > self.experts, f"active_experts: {k} of {self.experts} experts, use at most as many"),
            (self.experts > 1 and self.mlp != "swiglu", "experts: an expert is a SwiGLU, use mlp='swiglu'"),
            (mlp % k != 0, f"mlp_width: {mlp} is not divisible by active_experts {k}, change one"),
            (
                self.init_std != 0.02 and self.init not in ("normal", "mup"),
                f"init_std: {self.init} has its own, use init='normal' or 'mup'",
            ),
            (
                self.qk_norm_eps is not None and not self.qk_norm,
                "qk_norm_eps: there is no QK-norm, set qk_norm or leave it out",
            ),
            (self.init == "mup" and self.tied, "init: muP scales the head and not the table, use tied=False"),
        ]

    def _rules_of_the_loop(self) -> list[tuple[bool, str]]:
        from_prelude, plain = self.state_init == "prelude", self.recur == 0
        has_lanes, k = self.injection == "hyper-connections", self.max_backprop_loops
        fixed = self.depth == "fixed" or k is None
        return [
            (
                isinstance(self.backprop_loops, int) and self.backprop_loops < 1,
                f"backprop_loops: {self.backprop_loops} leaves no gradient, use at least 1",
            ),
            (
                plain and self.mean_loops != 1,
                f"mean_loops: {self.mean_loops} loops over no layer, set recur or mean_loops=1",
            ),
            (
                plain and (self.depth != "fixed" or self.injection != "none"),
                "recur: nothing loops when it is 0, use depth='fixed' and injection='none'",
            ),
            (plain and self.loop_norm != "none", "loop_norm: there is no loop to close when recur is 0, use 'none'"),
            (plain and self.exit_gate, "exit_gate: there is no loop to leave when recur is 0, leave it out"),
            (
                self.injection == "none" and not from_prelude,
                "state_init: without an injection the state must start from the prelude, use 'prelude'",
            ),
            (
                self.injection == "none" and self.truncates and not plain,
                "backprop_loops: without an injection only the first loop sees the input, use 'all'",
            ),
            (
                self.injection == "add" and from_prelude,
                "state_init: additive injection would count the prelude twice, use 'zero'",
            ),
            (
                self.injection == "boundary" and (not from_prelude or self.loop_norm != "none"),
                "injection: boundary starts from the prelude and norms, use 'prelude' and loop_norm='none'",
            ),
            (
                has_lanes and (self.depth != "fixed" or self.truncates),
                "injection: hyper-connections are per loop, use depth='fixed', backprop_loops='all'",
            ),
            (
                has_lanes and not from_prelude,
                "state_init: the lanes of hyper-connections start from the prelude, use 'prelude'",
            ),
            (
                self.loop_norm == "closing" and (self.coda > 0 or self.readout),
                "loop_norm: closing is also the norm of the head, use coda=0 and readout=False",
            ),
            (self.coda_norm and not self.coda, "coda_norm: there is no coda to norm for, set coda"),
            (self.fill and fixed, "fill: it draws loops around a truncation, use a sampled depth and a backprop_loops"),
            (
                self.fill and (k or 0) > self.mean_loops,
                f"fill: backprop_loops {k} exceeds mean_loops {self.mean_loops}, lower it",
            ),
            (self.on_top and fixed, "on_top: it adds loops to those drawn, use a sampled depth and a backprop_loops"),
            (self.on_top and self.fill, "on_top: fill adds the loops with gradient in its own way, use one of them"),
            (self.lanes != 2 and not has_lanes, "lanes: use them with injection='hyper-connections' alone"),
            (
                self.lanes_receive != "s - u" and not has_lanes,
                "lanes_receive: use it with injection='hyper-connections' alone",
            ),
            (
                self.injection_bias and self.injection not in ("concat", "concat-identity"),
                "injection_bias: only a concatenating injection has it, use injection='concat'",
            ),
        ]

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
        return None if self.windows[layer % len(self.windows)] == "L" else max(1, self.context // 2)

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
