"""A bad field is refused in one line, and a run's key changes with what decides its numbers and nothing else."""

import json

import pytest

import lib
from lib.base.errors import InputError
from lib.base.parameters import Training
from lib.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig
from lib.presets import preset
from lib.train.loop import train
from tests.lines import one_line
from tests.runs import small_run

pytestmark = pytest.mark.precision


def hyper(**changes) -> ModelConfig:
    lanes = dict(injection="hyper-connections", state_init="prelude", backprop_loops="all")
    return ModelConfig(**{**lanes, **changes})


@pytest.mark.parametrize(
    ("make", "field", "remedy"),
    [
        (lambda: ModelConfig(widht=64), "widht", "spelling"),
        (lambda: ModelConfig(width="64"), "width", "integer"),
        (lambda: ModelConfig(width=65), "width", "heads"),
        (lambda: ModelConfig(width=6, heads=2), "heads", "RoPE"),
        (lambda: ModelConfig(vocab_size=2**32 + 1), "vocab_size", "at most"),
        (lambda: ModelConfig(prelude=0, recur=0, coda=0), "recur", "layer"),
        (lambda: ModelConfig(recur=0), "mean_loops", "recur"),
        (lambda: ModelConfig(backprop_loops=0), "backprop_loops", "at least 1"),
        (lambda: ModelConfig(injection="none"), "state_init", "prelude"),
        (lambda: ModelConfig(injection="none", state_init="prelude"), "backprop_loops", "'all'"),
        (
            lambda: ModelConfig(recur=0, mean_loops=1, injection="none", state_init="prelude", loop_norm="own"),
            "loop_norm",
            "'none'",
        ),
        (lambda: ModelConfig(windows="LXS"), "windows", "[LS]"),
        (lambda: ModelConfig(windows="LLSS"), "windows", "3 unique layers"),
        (lambda: ModelConfig(short_window=8), "short_window", "unknown name"),
        (lambda: ModelConfig(lanes=3), "lanes", "injection='hyper-connections'"),
        (lambda: ModelConfig(lanes_receive="s"), "lanes_receive", "injection='hyper-connections'"),
        (lambda: OptimConfig(cooldown="sqrt"), "cooldown", "cooldown_steps"),
        (lambda: OptimConfig(name="muon", weight_decay=0.1), "weight_decay", "muon_weight_decay"),
        (lambda: OptimConfig(injection="adamw"), "injection", "leave it out"),
        (
            lambda: small_run(model={"injection": "concat"}, optim={"name": "muon", "injection_lr": 0.1}),
            "optim.injection_lr",
            "optim.injection='adamw'",
        ),
        (
            lambda: small_run(model={"injection": "add", "state_init": "zero"}, optim={"injection_lr": 0.1}),
            "optim.injection_lr",
            "leave it out",
        ),
        (lambda: small_run(model={"windows": "SL", "context": 64}), "model.windows", "lower model.context"),
        (lambda: ModelConfig(fill=True), "fill", "sampled depth"),
        (lambda: ModelConfig(fill=True, depth="poisson", backprop_loops=9), "backprop_loops", "mean_loops 8"),
        (lambda: ModelConfig(on_top=True), "on_top", "sampled depth"),
        (lambda: ModelConfig(on_top=True, depth="poisson", backprop_loops="all"), "on_top", "backprop_loops"),
        (lambda: ModelConfig(on_top=True, fill=True, depth="poisson"), "on_top", "one of them"),
        (lambda: hyper(depth="poisson"), "injection", "'fixed'"),
        (lambda: hyper(backprop_loops=2), "injection", "'all'"),
        (lambda: hyper(state_init="zero"), "state_init", "'prelude'"),
        (lambda: ModelConfig(experts=4), "experts", "swiglu"),
        (lambda: ModelConfig(injection="boundary"), "injection", "use 'prelude'"),
        (lambda: ModelConfig(injection_bias=True), "injection_bias", "injection='concat'"),
        (lambda: ModelConfig(heads=4, kv_heads=3), "kv_heads", "a divisor"),
        (lambda: ModelConfig(heads=2, kv_heads=1, value_embeddings=True), "kv_heads", "leave"),
        (lambda: ModelConfig(loop_norm="closing"), "loop_norm", "coda=0"),
        (lambda: ModelConfig(coda=0, coda_norm=True), "coda_norm", "set coda"),
        (lambda: hyper(recur=0, mean_loops=1, injection="none", exit_gate=True), "exit_gate", "leave it out"),
        (lambda: small_run(model={"exit_gate": True}), "model.exit_gate", "load a checkpoint"),
        (lambda: ModelConfig(mlp="swiglu", experts=4, active_experts=5), "active_experts", "at most"),
        (lambda: ModelConfig(mlp="swiglu", experts=4, active_experts=3), "mlp_width", "active_experts 3"),
        (lambda: ModelConfig(init="mup"), "init", "tied=False"),
        (lambda: ModelConfig(qk_norm=False, qk_norm_eps=1e-6), "qk_norm_eps", "qk_norm"),
        (lambda: OptimConfig(scaling="nanochat"), "scaling", "name='muon'"),
        (lambda: OptimConfig(scaling="hyperp"), "scaling", "name='muonh'"),
        (lambda: OptimConfig(name="muon", scaling="mup"), "scaling", "name='adamw'"),
        (lambda: OptimConfig(name="muonh", muon_weight_decay=0.1), "name", "muon_*"),
        (lambda: OptimConfig(name="muon", muon_weight_decay=0.0), "muon_cautious", "False"),
        (lambda: OptimConfig(final=0.1), "final", "cooldown_steps"),
        (lambda: small_run(optim={"scaling": "mup"}), "optim.scaling", "model.init"),
        (lambda: small_run(model={"init": "mup", "tied": False}), "optim.scaling", "model.init"),
        (lambda: small_run(model={"init": "parcae"}, optim={"name": "muonh"}), "optim.name", "model.init"),
        (lambda: small_run(model={"init": "uniform-zero"}, optim={"name": "muonh"}), "optim.name", "model.init"),
        (lambda: RunConfig(data="sotu"), "data", "DataConfig"),
        (lambda: ModelConfig(injection="glue"), "injection", "concat"),
        (lambda: ModelConfig(balance_loss=-0.1), "balance_loss", "greater than or equal to 0"),
        (lambda: OptimConfig(lr=-1.0), "lr", "greater than 0"),
        (lambda: OptimConfig(lr=float("nan")), "lr", "finite"),
        (lambda: OptimConfig(betas=(0.9, 1.0)), "betas", "[0, 1)"),
        (lambda: TrainConfig(batch=8, micro_batch=3), "micro_batch", "divide"),
        (lambda: DataConfig(tokenizer="words"), "tokenizer", "bpe-SIZE"),
        (lambda: DataConfig(tokenizer="bpe-100"), "tokenizer", "260"),
        (lambda: DataConfig(tokenizer=f"bpe-{2**32 + 1}"), "tokenizer", str(2**32)),
        (lambda: RunConfig(model={"width": 65}), "model", "heads"),
        (lambda: small_run(model={"context": 16}), "model.context", "data.context"),
        (lambda: small_run(model={"vocab_size": 100}), "model.vocab_size", "256"),
        (lambda: small_run(data={"tokenizer": "bpe-512"}), "model.vocab_size", "bpe-512"),
        (lambda: small_run(optim={"warmup_steps": 7}), "optim.warmup_steps", "6 steps"),
    ],
)
def test_bad_input_is_one_line_with_the_field_and_the_remedy(make, field, remedy):
    with one_line(field, remedy):
        make()


def test_a_truncation_that_cuts_nothing_is_none():
    for k in ("half", 1, 4):
        assert not preset("isodepth-s10-r1", backprop_loops=k).truncates
    assert not preset("isodepth-s10-r4", injection="hyper-connections", backprop_loops=4).truncates
    assert preset("isodepth-s10-r4", backprop_loops=2).truncates
    assert ModelConfig(depth="poisson", backprop_loops=8).truncates and not ModelConfig(backprop_loops="all").truncates
    with pytest.raises(InputError, match="only the first loop sees the input"):
        preset("looped-256", backprop_loops=1)  # the table would never learn


def test_another_optimiser_has_its_own_defaults():
    muon = OptimConfig(name="muon", lr=0.02)
    assert muon.replace(name="muonh").replace(name="muon") == muon
    assert OptimConfig().replace(name="muonh") == OptimConfig(name="muonh")
    assert OptimConfig(name="muon", muon_weight_decay=0.1).replace(lr=0.5).muon_weight_decay == 0.1


def test_configs_are_frozen():
    with pytest.raises(ValueError, match="frozen"):
        ModelConfig().width = 128


def test_a_config_survives_its_json():
    cfg = small_run(optim={"betas": (0.8, 0.95)})
    again = RunConfig(**json.loads(cfg.model_dump_json()))
    assert again == cfg and again.key == cfg.key


def test_everything_that_decides_numbers_changes_the_key():
    cfg = small_run()
    changed = [
        small_run(model={"rope": "half-split"}),
        small_run(data={"val_rows": 17}),
        small_run(optim={"lr": 4.001e-3}),
        small_run(train={"seed": 1}),
        small_run(train={"precision": "bf16"}),
    ]
    assert len({c.key for c in [cfg, *changed]}) == 6


def test_fields_at_their_defaults_are_not_in_the_key():
    # so that a field that is added later leaves finished runs their keys
    cfg = small_run()
    assert "injection" not in cfg.canonical()["model"]
    assert small_run(model={"injection": "lti"}).key == cfg.key
    # of the default text in its default form not even the content is, named or not
    for data in (DataConfig(), DataConfig(source="sotu"), DataConfig().known()):
        assert RunConfig(data=data).canonical() == {"recipe": lib.RECIPE, "data": {}}
    assert "content" in RunConfig(data=DataConfig(val_rows=64)).canonical()["data"]


def test_defaults_are_those_of_the_recipe():
    """A default that changes would give old keys another meaning: raise lib.RECIPE with it, and this list."""
    fixed = {
        ModelConfig: dict(
            vocab_size=256,
            width=64,
            heads=2,
            mlp_width=256,
            prelude=1,
            recur=1,
            coda=1,
            context=64,
            mean_loops=8,
            backprop_loops="half",
            depth="fixed",
            depth_per="sequence",
            fill=False,
            on_top=False,
            injection="lti",
            lanes=2,
            lanes_receive="s - u",
            state_init="like-init",
            prelude_norm=False,
            loop_norm="none",
            readout=False,
            block="pre-norm",
            norm_gain=True,
            norm_eps=1e-5,
            qk_norm=True,
            qk_norm_eps=None,
            rope="interleaved",
            rope_base=50_000.0,
            mlp="relu2",
            value_embeddings=False,
            windows="L",
            residual="none",
            residual_c=1.0,
            experts=1,
            active_experts=1,
            balance_loss=0.01,
            router_z_loss=0.001,
            embed_norm=False,
            tied=True,
            softcap=0.0,
            init="scaled",
        ),
        DataConfig: dict(
            source="sotu",
            subset="",
            field="text",
            max_bytes=None,
            tokenizer="bytes",
            context=64,
            val_fraction=0.05,
            val_rows=128,
        ),
        OptimConfig: dict(
            name="adamw",
            scaling="none",
            injection="matrix",
            lr=1e-3,
            embedding_lr=None,
            head_lr=None,
            norm_lr=None,
            lanes_lr=None,
            injection_lr=None,
            betas=(0.9, 0.95),
            eps=1e-10,
            weight_decay=0.0,
            decay="coupled",
            update_clipping=False,
            muon_lr=8e-3,
            muon_momentum=0.95,
            muon_momentum_warmup=0,
            muon_variance_reduction=True,
            muon_weight_decay=0.2,
            muon_cautious=True,
            clip=1.0,
            warmup_steps=0,
            cooldown_steps=0,
            cooldown="linear",
            final=0.0,
        ),
        TrainConfig: dict(
            steps=300,
            batch=8,
            micro_batch=None,
            seed=0,
            checkpoint_loops=False,
            eval_every=None,
            trace_every=None,
            max_state_rms=1e4,
        ),
    }
    assert lib.RECIPE == 3
    for kind, defaults in fixed.items():
        assert {name: value for name, value in kind().model_dump().items() if name in defaults} == defaults


def test_a_run_has_one_key_on_every_machine_whether_or_not_its_blocks_are_compiled(monkeypatch):
    plain = small_run(train={"steps": 5000})
    assert plain.canonical()["train"]["compile"] is False
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert small_run(train={"steps": 5000}).key == plain.key
    assert RunConfig(**plain.model_dump()) == plain


def test_a_stored_config_may_have_former_fields_at_the_value_of_all_runs():
    stored = small_run().model_dump()
    stored["model"] |= {"truncation": "no-grad", "short_window": None}
    stored["optim"]["muon_orthogonalizer"] = "polar-express"
    stored["train"]["compile"] = False
    assert RunConfig(**stored) == small_run() and RunConfig(**stored).key == small_run().key
    stored["train"]["compile"] = True
    with one_line("train: compile:", "unknown name"):
        RunConfig(**stored)


def test_a_gpu_compiles_the_blocks_of_runs_that_are_long_enough():
    assert TrainConfig(steps=250).compiles_on("cuda") and not TrainConfig(steps=249).compiles_on("cuda")
    assert not TrainConfig(steps=5000).compiles_on("cpu")


def test_memory_is_not_in_the_key():
    assert small_run(train={"checkpoint_loops": True}).key == small_run().key


def test_the_recipe_changes_the_key(monkeypatch):
    before = small_run().key
    monkeypatch.setattr(lib, "RECIPE", lib.RECIPE + 1)
    assert small_run().key != before


def test_text_is_known_by_content_not_by_place(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    (tmp_path / "b.txt").write_text("one\n\ntwo\n")
    (tmp_path / "c.txt").write_text("one\n\nthree\n")
    a, b, c = (small_run(data={"source": str(tmp_path / f"{name}.txt")}) for name in "abc")
    assert a.key == b.key != c.key
    assert str(tmp_path) not in json.dumps(a.canonical())


def test_a_stated_content_needs_no_text():
    cfg = small_run(data={"source": "/nowhere/a.txt", "content": "0123456789abcdef"})
    assert cfg.key == small_run(data={"source": "/elsewhere/b.txt", "content": "0123456789abcdef"}).key


def test_another_text_in_a_config_is_known_as_such(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    (tmp_path / "b.txt").write_text("one\n\nthree\n")
    a = DataConfig(source=str(tmp_path / "a.txt"))
    b = a.replace(source=str(tmp_path / "b.txt"))
    assert b == DataConfig(source=str(tmp_path / "b.txt")) and a.known().content != b.known().content
    assert a.known().replace(context=32).content == a.known().content
    assert a.known().replace(source=b.source).known() == b.known()


def test_a_config_reads_no_text_until_its_run_is_planned(tmp_path):
    text = tmp_path / "a.txt"
    cfg = small_run(data={"source": str(text)})
    with one_line("data.source:", "does not exist"):
        cfg.key  # noqa: B018
    text.write_text("one\n\ntwo\n")
    assert cfg.planned.data.content == DataConfig(source=str(text)).known().content and cfg.planned.key == cfg.key
    text.write_text("another\n")  # the run is that of the text that it was planned with
    assert cfg.planned.data.content != DataConfig(source=str(text)).known().content
    with one_line("data.content:", "leave content empty"):
        train(cfg)


def test_precision_is_resolved_before_hashing():
    assert TrainConfig().precision in ("fp32", "bf16-mixed")
    assert TrainConfig(precision="fp32").precision == "fp32"


def test_half_rounds_up():
    assert ModelConfig(mean_loops=7, backprop_loops="half").max_backprop_loops == 4
    assert ModelConfig(mean_loops=7, backprop_loops="all").max_backprop_loops is None
    assert ModelConfig(mean_loops=7, backprop_loops=3).max_backprop_loops == 3


def test_the_text_of_a_notebooks_parameters():
    p = Training(
        profile="cpu",
        outputs="o",
        train=True,
        jobs=0,
        max_hours=1,
        source="sotu",
        max_bytes=0,
        content="",
        vocab_size=256,
        context=32,
        tokenizer="bytes",
        val_rows=16,
        batch=6,
        micro_batch=0,
        precision="fp32",
    )
    assert DataConfig.of(p) == DataConfig(context=32, val_rows=16)
    assert DataConfig.of(p.replace(max_bytes=1000)).max_bytes == 1000
    assert TrainConfig.of(p, seed=3) == TrainConfig(batch=6, precision="fp32", seed=3)
    assert TrainConfig.of(p.replace(micro_batch=2)).micro_batch == 2


def test_value_tables_need_the_width_that_their_gate_reads():
    assert ModelConfig(width=32, heads=2, value_embeddings=True).value_embeddings
    for width, heads in ((16, 1), (24, 3)):
        with one_line("value_embeddings:", "widen"):
            ModelConfig(width=width, heads=heads, value_embeddings=True)


@pytest.mark.parametrize(
    ("rule", "alpha"), [("none", 1), ("1/sqrt(N)", 4**-0.5), ("1/N", 1 / 4), ("1/(N sqrt(L))", 1 / (4 * 3))]
)
def test_the_residual_multiplier_is_002s(rule, alpha):
    cfg = ModelConfig(mean_loops=4, recur=9, prelude=2, residual=rule, residual_c=3.0)
    assert cfg.residual_multiplier == pytest.approx(3 * alpha)


def test_tokens_are_those_of_all_steps():
    cfg = RunConfig(data=DataConfig(context=64), train=TrainConfig(steps=5, batch=3))
    assert (cfg.tokens_per_step, cfg.tokens) == (3 * 64, 5 * 3 * 64)


def test_a_pass_may_take_any_part_that_divides_the_batch():
    assert [TrainConfig(batch=6, micro_batch=rows).micro_batch for rows in (1, 2, 6)] == [1, 2, 6]


@pytest.mark.parametrize("layers", [4, 5])
def test_value_tables_are_at_every_second_layer_back_from_the_last(layers):
    cfg = ModelConfig(value_embeddings=True, prelude=1, recur=2, coda=layers - 3)
    assert [layer for layer in range(layers) if cfg.has_values(layer)] == [*range((layers - 1) % 2, layers, 2)]
    assert not any(map(cfg.replace(value_embeddings=False).has_values, range(layers)))


def test_fill_wants_a_truncation_of_at_most_the_mean():
    assert all(ModelConfig(fill=True, depth="poisson", mean_loops=4, backprop_loops=k).fill for k in (2, 4))
    with one_line("fill:", "backprop_loops 5 exceeds mean_loops 4"):
        ModelConfig(fill=True, depth="poisson", mean_loops=4, backprop_loops=5)


def test_sizes_that_nobody_could_train_are_refused():
    widest = ModelConfig(width=2**20, heads=2**13)
    assert widest.width == 2**20
    with one_line("width:", "1048576"):
        ModelConfig(width=2**20 + 2**13, heads=2**13)
